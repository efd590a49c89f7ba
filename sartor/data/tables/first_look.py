"""What a table seems to hold, for somebody who is about to learn from it: `sartor init`, and warnings of others.

A column is taken for the target, or for the one that names clients, only where its name says so and no other column's
does: a guess that has to be checked is worth less than a question.
"""

from __future__ import annotations

import re
import shlex
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import need, readable
from ..file_formats import read_npz
from . import scan
from .columns import Column, places

if TYPE_CHECKING:
    from ..dataset import Dataset

# Words of a column's name. They are few on purpose.
TARGETS = {"target", "label", "outcome", "class", "y", "diagnosis", "disease", "response", "readmitted", "died"}
CLIENTS = {
    *("client", "hospital", "site", "clinic", "centre", "center", "institution", "practice", "shop", "store"),
    *("branch", "device", "machine", "user", "subject", "school", "bank", "owner"),
}
IDENTIFIERS = {"id", "uuid", "guid", "mrn"}
AFTER = IDENTIFIERS | {"name", "code", "number", "no", "nr"}  # words that may follow: hospital_id, site name
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


def made_up(path: Path, data: Dataset, partition: str) -> str:
    """A line where no client key was given for a table: what happens to its rows, which columns look like the key, and
    how to name it."""
    names = _possible_keys(path, data)
    told = f"{path.name}: no client key is given, so rows are dealt out artificially to clients that do not exist"
    told += f" (--partition {partition})."
    if not names:
        return f"{told} If a column says whose each row is, name it: --client-key COLUMN"
    said = readable(", ".join(names[:EXAMPLES])) + (", ..." if len(names) > EXAMPLES else "")
    one = len(names) == 1
    looks = f"column {said} looks like a client key" if one else f"columns {said} look like client keys"
    return f"{told} The {looks}; to take {'it' if one else 'the first'}: --client-key {readable(shlex.quote(names[0]))}"


def _possible_keys(path: Path, data: Dataset) -> list[str]:
    """Columns whose names are those of clients, unless all rows have the same value or each has another one."""
    if path.suffix.lower() == ".npz":
        with zipfile.ZipFile(path) as file:
            return [name for name in (n.removesuffix(".npy") for n in file.namelist()) if _of_clients(name)]
    where = places(data.columns)
    return [c.name for c in data.columns if _of_clients(c.name) and _parts(c, data.x, where.get(c.name))]


def _of_clients(name: str) -> bool:
    words = _words(name)
    while len(words) > 1 and words[-1] in AFTER:
        words.pop()
    return bool(words) and words[-1] in CLIENTS


def _parts(column: Column, x: np.ndarray, at: int | None) -> bool:
    """Whether the values of a column part the rows into groups; of a column that was left out nobody knows."""
    if at is None:
        return column.kind == "left out"
    groups = len(column.features) if column.kind == "text" else len(np.unique(x[:, at]))
    return column.kind != "sentences" and 1 < groups < len(x)


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
