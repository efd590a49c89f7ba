"""Read by Python when it starts with this folder on its path: install the fault that the environment names, the models
of tests, and noise that is a simulation's.

Not before the module that it is about is imported: most of the processes that an engine starts never do.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class Afterwards(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Does something to one module when it has been imported, once."""

    def __init__(self, name: str, change: Callable[[ModuleType], None]) -> None:
        self.name, self.change = name, change

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
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
        self.change(module)


WHOLE_LIFE = []  # what is entered and never left


def engine(_: ModuleType) -> None:
    if "SARTOR_TEST_MODELS" in os.environ:
        from frozen_models import known

        known()
    if "SARTOR_TEST_FAULT" in os.environ:
        from faults import Fault, installed

        WHOLE_LIFE.append(installed(Fault.of(os.environ["SARTOR_TEST_FAULT"])))
        WHOLE_LIFE[-1].__enter__()


def noise(module: Any) -> None:
    from noise import simulated

    module.standard_normal = functools.partial(simulated, int(os.environ["SARTOR_TEST_NOISE"]))


if {"SARTOR_TEST_FAULT", "SARTOR_TEST_MODELS"} & os.environ.keys():
    sys.meta_path.insert(0, Afterwards("sartor.engines.local", engine))
if "SARTOR_TEST_NOISE" in os.environ:
    sys.meta_path.insert(0, Afterwards("sartor.federation.os_noise", noise))
