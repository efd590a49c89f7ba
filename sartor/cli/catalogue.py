"""What there is, by kind: the rows behind `sartor list` and the tab key, read from the source files without importing
them, as PyTorch takes seconds to import.

A kind has a table in one file: of names with their lines, or of names with classes or functions. A class says the rest
itself: the first line of its docstring, `paper`, `site`.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from .. import methods
from ..errors import unknown

PACKAGE = Path(__file__).parents[1]
Row = dict[str, str]
Definition = ast.ClassDef | ast.FunctionDef


def rows(kind: str) -> list[Row]:
    """The rows of a kind; an unknown kind is refused with the nearest known ones."""
    if kind not in KINDS:
        raise unknown("kind of thing to list", kind, KINDS)
    return KINDS[kind]()


def theorems() -> list[Row]:
    """What `sartor theory` can check. Its table is made of classes, which have their names."""
    path = PACKAGE / "papers" / "theory" / "__init__.py"
    found = []
    for node in ast.walk(_value(path, "NAMES")):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr[0].isupper():
            at = _definition(path.with_name(f"{node.value.id}.py"), node.attr)
            found.append({"name": _said(*at, "name"), "paper": _said(*at, "paper"), "line": _first_line(at[1])})
    return found


def _methods() -> list[Row]:
    return [{"name": name, "paper": e.paper, "line": e.line} for name, e in methods.NAMES.items()]


def _definitions(file: str, table: str = "NAMES", *attributes: str) -> Callable[[], list[Row]]:
    """The rows of a table of classes or functions, with these attributes of theirs."""

    def found() -> list[Row]:
        said = []
        for name, value in _items(PACKAGE / file, table):
            assert isinstance(value, ast.Name)
            at = _definition(PACKAGE / file, value.id)
            own = {"paper": "-"} | {attribute: _said(*at, attribute) for attribute in attributes}
            said.append({"name": name, **own, "line": _first_line(at[1])})
        return said

    return found


def _lines(file: str, table: str) -> Callable[[], list[Row]]:
    """The rows of a table of lines, or of tuples that begin with one."""

    def found() -> list[Row]:
        items = _items(PACKAGE / file, table)
        lines = [(name, value.elts[0] if isinstance(value, ast.Tuple) else value) for name, value in items]
        return [{"name": name, "paper": "-", "line": ast.literal_eval(line)} for name, line in lines]

    return found


def _recipes() -> list[Row]:
    """The experiments of the papers. What is asked for stands in lines of their own; the whole files are long."""
    folder = PACKAGE / "papers" / "recipes"

    def head(path: Path) -> dict[str, Any]:
        return tomllib.loads("\n".join(re.findall(r"^(?:title|paper|published) = .*", path.read_text("utf-8"), re.M)))

    found = []
    for path in sorted(folder.glob("*.toml"), key=lambda path: path.stem):
        about = head(path)
        own = [path.stem] if (folder / "published" / path.name).exists() else []
        papers = [head(folder / "published" / f"{name}.toml")["paper"] for name in about.get("published", own)]
        paper = about.get("paper") or ", ".join(dict.fromkeys(papers))
        found.append({"name": path.stem, "paper": paper, "line": about["title"]})
    return found


KINDS: dict[str, Callable[[], list[Row]]] = {
    "methods": _methods,
    "attacks": _definitions("wrappers/attacks/__init__.py", "NAMES", "paper", "site"),
    "aggregators": _definitions("aggregators/__init__.py", "NAMES", "paper"),
    "compressors": _definitions("compressors/__init__.py", "NAMES", "paper"),
    "partitions": _definitions("data/partitions/__init__.py"),
    "datasets": _lines("data/known_sets/readers.py", "DATASETS"),
    "models": _lines("models.py", "NAMES"),
    "losses": _definitions("tasks/task.py", "LOSSES"),
    "recipes": _recipes,
    "solvers": _definitions("solvers.py"),
}


# --- source files, read and not run -----------------------------------------------------------------------------------


@cache
def _parsed(path: Path) -> dict[str, ast.stmt]:
    """What a file defines or imports at its top level, by name."""
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, Definition):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: node for alias in node.names}
    return found


def _value(path: Path, name: str) -> ast.expr:
    """What a name stands for, in this file or in that from which it is imported."""
    node = _parsed(path)[name]
    if isinstance(node, ast.ImportFrom):
        return _value(_imported(path, node), name)
    assert isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
    return node.value


def _items(path: Path, name: str) -> Iterator[tuple[str, ast.expr]]:
    table = _value(path, name)
    assert isinstance(table, ast.Dict)
    for key, value in zip(table.keys, table.values, strict=True):
        assert isinstance(key, ast.Constant)
        yield str(key.value), value


def _definition(path: Path, name: str) -> tuple[Path, Definition]:
    """The class or function of that name, in this file or in that from which it is imported."""
    node = _parsed(path)[name]
    if isinstance(node, ast.ImportFrom):
        return _definition(_imported(path, node), name)
    assert isinstance(node, Definition)
    return path, node


def _imported(path: Path, node: ast.ImportFrom) -> Path:
    return path.parents[node.level - 1].joinpath(*str(node.module).split(".")).with_suffix(".py")


def _said(path: Path, node: Definition, attribute: str) -> str:
    """A class's attribute, or its base's."""
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.target.id == attribute:
            value = _value(path, line.value.id) if isinstance(line.value, ast.Name) else line.value
            assert isinstance(value, ast.Constant)
            return str(value.value)
    assert isinstance(node, ast.ClassDef) and isinstance(node.bases[0], ast.Name)
    return _said(*_definition(path, node.bases[0].id), attribute)


def _first_line(node: Definition) -> str:
    """What a thing says about itself in its docstring's first line."""
    return (ast.get_docstring(node) or "").partition("\n")[0].rstrip(".")
