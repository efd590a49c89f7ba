"""What each method's file says about it, read without importing it.

A method file ends with one plain literal, `ABOUT = {...}`. What it says holds for all names of the file; what stands
under a name holds for that name.

    class        the method's class in this file
    factories    functions of this file that make it with other defaults, to be public names, too
    title        of its page; otherwise the class's name
    order        where it stands in lists: the lowest first, 500 unless said
    names        the names on the command line, each with a table of the keys below
    personal     which model is scored as a client's personal one; empty: it has none
    settings     what each setting does, in a line (those that many methods have: docs/settings.toml)

    line         what it is, in a line
    paper        whose it is, in a few words
    preset       settings that make it this method, written as in a recipe
    tune         what `sartor tune` searches beside the solver's step size: "log(0.01, 10)", "flat(0, 1)", "oneof(1, 2)"
    convex       settings with which it solves a linear model of a table to the end, in place of a few steps
    cite         keys of report/papers.bib, or BibTeX entries
    local_steps  how --local-steps N is split among its loops, where it has more than one
    cold_start   what a client gets that joins after training
    privacy      what a client "sends"; whether noise can be added at the "server", at the "client"
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import spelling
from ..errors import SartorError, need, see, unknown

if TYPE_CHECKING:
    from ..core import Method

_START = "\nABOUT = "
_OF_A_NAME = ("line", "paper", "preset", "tune", "convex", "cite", "local_steps", "cold_start", "privacy")
_OF_A_FILE = ("class", "factories", "title", "order", "names", "personal", "settings", *_OF_A_NAME)


@dataclass(frozen=True)
class Entry:
    """A named method. Its class is imported when `make` is asked for."""

    file: str  # without .py; its page has the same name
    class_name: str
    line: str
    paper: str = "-"
    preset: Mapping[str, Any] = field(default_factory=dict)
    tune: Mapping[str, str] = field(default_factory=dict)
    convex: Mapping[str, Any] = field(default_factory=dict)
    cite: tuple[str, ...] = ()
    local_steps: str = ""
    cold_start: str = ""
    privacy: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    personal: str = ""
    title: str = ""
    factories: tuple[str, ...] = ()

    @property
    def make(self) -> type[Method]:
        """The class."""
        module = self.file if "." in self.file else f"{__package__}.{self.file}"  # one of the authors' is elsewhere
        made: type[Method] = getattr(importlib.import_module(module), self.class_name)
        return made


class _Names(Mapping[str, Entry]):
    """Every method by name. Files are read when the first name is asked for, and again when `__path__` has changed."""

    def __getitem__(self, name: str) -> Entry:
        return _entries(_folders())[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_entries(_folders()))

    def __len__(self) -> int:
        return len(_entries(_folders()))

    def items(self) -> ItemsView[str, Entry]:  # a mapping's own looks up name by name
        return _entries(_folders()).items()

    def values(self) -> ValuesView[Entry]:
        return _entries(_folders()).values()


NAMES = _Names()


def entry(name: str) -> Entry:
    """The named method's entry; an unknown name is refused with the nearest known ones."""
    if name in NAMES:
        return NAMES[name]
    made = spelling.find("method", dict[str, type["Method"]](), name)
    if not isinstance(made, type):
        raise unknown("method", name, NAMES, do=see("names-and-settings"))
    return Entry(made.__module__, made.__name__, (made.__doc__ or "").splitlines()[0], "its authors' code")


def personal_model(method: Method, parts: str | None = None) -> str | None:
    """Which model is scored as a client's personal one, in words; None where nobody has said. `parts`: parameters that
    stay at each client (--personal)."""
    said = next((e.personal for e in NAMES.values() if e.class_name == method.name), "")
    makes_one = getattr(method, "finetune", True) is not None
    if parts is None:
        return said if said and makes_one else None
    return f"{said if said and makes_one else 'the latest w'}, with the client's own {parts}"


def public() -> dict[str, str]:
    """The classes and factories, and which file has each."""
    return {name: e.file for e in NAMES.values() for name in (e.class_name, *e.factories)}


def _folders() -> tuple[str, ...]:
    return tuple(sys.modules[str(__package__)].__path__)


@cache
def _entries(folders: tuple[str, ...]) -> dict[str, Entry]:
    found: dict[str, tuple[Path, dict[str, Any]]] = {}
    for path in (path for folder in folders for path in sorted(Path(folder).glob("*.py"))):
        if (about := _about(path)) is not None:
            need(path.stem not in found, f"{path}: there is a method file {path.name} already; choose another name.")
            found[path.stem] = path, about
    entries: dict[str, Entry] = {}
    for path, about in sorted(found.values(), key=lambda known: known[1].get("order", 500)):
        for name, made in _read(path, about):
            need(name not in entries, f"{path}: there is a method {name!r} already; choose another name.")
            entries[name] = made
    return entries


def _about(path: Path) -> dict[str, Any] | None:
    """The literal at the end of a file; None: it has none, and is no method's file."""
    text = path.read_text(encoding="utf-8").partition(_START)[2]
    if not text:
        return None
    try:
        about = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        about = None
    if not isinstance(about, dict):
        raise SartorError(f"{path}: ABOUT must be a table of plain literals, and the last thing in the file.")
    return about


def _read(path: Path, about: dict[str, Any]) -> Iterator[tuple[str, Entry]]:
    """The names of a file."""
    for key in about:
        if key not in _OF_A_FILE:
            raise unknown(f"key of ABOUT in {path}", key, _OF_A_FILE)
    for key in ("class", "names"):
        need(key in about, f"{path}: ABOUT lacks {key!r}.")
    common = {key: about[key] for key in _OF_A_NAME if key in about}
    for name, own in about["names"].items():
        for key in own:
            if key not in _OF_A_NAME:
                raise unknown(f"key of ABOUT for {name} in {path}", key, _OF_A_NAME)
        said = common | own
        need("line" in said, f"{path}: ABOUT says no 'line' for {name}.")
        said["cite"] = tuple(said.get("cite", ()))
        yield (
            name,
            Entry(
                path.stem,
                about["class"],
                settings=about.get("settings", {}),
                personal=about.get("personal", ""),
                title=about.get("title", about["class"]),
                factories=tuple(about.get("factories", ())),
                **said,
            ),
        )
