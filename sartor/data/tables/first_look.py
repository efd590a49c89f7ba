"""What a table seems to hold, for somebody who is about to learn from it: `sartor init`.

A column is taken for the target, or for the one that names clients, only where its name says so and no other column's
does: a guess that has to be checked is worth less than a question.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...errors import need
from ..file_formats import read_npz
from . import scan

# Words of a column's name. They are few on purpose.
TARGETS = {"target", "label", "outcome", "class", "y", "diagnosis", "disease", "response", "readmitted", "died"}
CLIENTS = {
    *("client", "hospital", "site", "clinic", "centre", "center", "institution", "practice", "shop", "store"),
    *("branch", "device", "machine", "user", "subject", "school", "bank", "owner"),
}
IDENTIFIERS = {"id", "uuid", "guid", "mrn"}
EXAMPLES = 3


@dataclass(frozen=True)
class Seen:
    """A column: what it holds in a few words, and whether every row seems to have another value."""

    name: str
    words: str
    identifier: bool = False


@dataclass(frozen=True)
class FirstLook:
    """A table's columns, and which are clearly the target and the clients' names. `files`: as many clients, where each
    has a file of its own."""

    columns: tuple[Seen, ...]
    rows: int | None
    target: str | None
    client_key: str | None
    files: int | None = None


def first_look(path: Path) -> FirstLook:
    """Look through a CSV, Parquet or .npz file, or a folder of tables."""
    need(path.exists(), f"there is no file or folder {path}.")
    if path.suffix.lower() == ".npz":
        names = [name for name in read_npz(path) if name != "x"]
        return FirstLook(
            tuple(Seen(n, "an array") for n in names), None, _named(names, TARGETS), _named(names, CLIENTS)
        )
    paths = sorted(p for p in path.iterdir() if p.name.lower().endswith(scan.SUFFIXES)) if path.is_dir() else [path]
    need(len(paths) > 0, f"{path} holds no tables; their names end in {', '.join(scan.SUFFIXES)}.")
    sources = [scan.open_file(p) for p in paths]
    shared = [c for c in sources[0].columns if all(c in s.columns for s in sources)]
    seen = scan.look(sources, shared)
    columns = tuple(_seen(seen[c], path.name) for c in shared)
    possible = [c.name for c in columns if not c.identifier]
    return FirstLook(
        columns,
        next((s.rows for s in seen.values()), 0),
        _named(possible, TARGETS),
        _named(possible, CLIENTS),
        len(paths) if path.is_dir() else None,
    )


def _named(names: Iterable[str], words: set[str]) -> str | None:
    """The one column whose whole name, or last word, is among the words."""
    whole = [n for n in names if n.strip().lower() in words]
    last = [n for n in names if _words(n)[-1:] and _words(n)[-1] in words]
    for found in (whole, last):
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())


def _seen(column: scan.ColumnScan, table: str) -> Seen:
    if column.missing == column.rows or column.blank == column.rows:
        return Seen(column.name, "empty")
    kind = column.kind(table)
    missing = column.blank if kind == "text" else column.missing
    words = {"number": "numbers", "flag": "true or false", "date": "dates", "text": "text"}[kind]
    if kind == "number" and column.binary:
        words = "0 or 1"
    if kind == "text":
        often = [text for text, _ in column.texts.most_common(EXAMPLES + 1) if text]
        more = ", ..." if len(often) > EXAMPLES else ""
        words = f"text, {len(column.texts)} different: {', '.join(often[:EXAMPLES])}{more}"
    words += f"; missing in {missing} of {column.rows} rows" if missing else ""
    every = kind == "text" and column.rows > EXAMPLES and len(column.texts) == column.rows
    return Seen(column.name, words, every or bool(set(_words(column.name)[-1:]) & IDENTIFIERS))
