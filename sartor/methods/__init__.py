"""The methods, one paper a file. A file describes itself (entries.py says how), and that is enough: `NAMES` is every
method by name, and the classes are names of this package, imported when they are asked for.

Defaults are the settings that did well on the validation data of the embedded demo (MOCHA: of Vehicle), the same solver
for all; they are not the papers'.

Method files of your own lie in folders that $SARTOR_METHODS names; they are modules of this package like the others.
"""

from __future__ import annotations

import importlib
import os

from .entries import NAMES as NAMES
from .entries import Entry as Entry
from .entries import entry as entry
from .entries import public

# mypy and editors read __init__.pyi in place of what follows; `make docs-fill` writes it.
__path__ += [os.path.abspath(folder) for folder in os.environ.get("SARTOR_METHODS", "").split(os.pathsep) if folder]


def __getattr__(name: str) -> object:
    """A method's class, or a function that makes one; `__all__`."""
    if name == "__all__":
        return ["NAMES", "Entry", "entry", *public()]
    if name.startswith("_") or name not in (where := public()):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{where[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *public()])
