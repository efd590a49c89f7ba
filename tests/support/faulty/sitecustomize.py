"""Read by Python when it starts with this folder on its path: install the fault that the environment names, and
the models of tests.

Not before sartor's engine is imported: most of the processes that an engine starts never do.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

ENGINE = "sartor.engines.local"


class Beforehand(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands before the engine, once."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != ENGINE:
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        assert found is not None and found.loader is not None
        self.real = found.loader
        found.loader = self
        return found

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.real.exec_module(module)
        if "SARTOR_TEST_MODELS" in os.environ:
            from frozen_models import known

            known()
        if "SARTOR_TEST_FAULT" in os.environ:
            from faults import Fault, installed

            self.whole_life = installed(Fault.of(os.environ["SARTOR_TEST_FAULT"]))
            self.whole_life.__enter__()


if {"SARTOR_TEST_FAULT", "SARTOR_TEST_MODELS"} & os.environ.keys():
    sys.meta_path.insert(0, Beforehand())
