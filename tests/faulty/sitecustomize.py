"""Read by Python when it starts with this folder on its path: install the fault that the environment names."""

from __future__ import annotations

import os

if "SARTOR_TEST_FAULT" in os.environ:
    from faults import Fault, installed

    _whole_life = installed(Fault.of(os.environ["SARTOR_TEST_FAULT"]))
    _whole_life.__enter__()
