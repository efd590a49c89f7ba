"""The user's own data: arrays, .npz, tables (CSV, Parquet, data frames), a folder with a file for each client.

Tables are read in pieces, twice: once to see what the columns hold (columns.py), once to fill the features. Besides the
features, four bytes each, no more than a piece is in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import SartorError, need, one_of, see, unknown
from ..dataset import Dataset
from ..file_formats import read_npz
from . import scan
from .client_keys import coded, sort_out
from .columns import NUMBERS, Column, feature_names, places
from .scan import Source
from .sentences import WIDTH, embedded, encoder_name

SUFFIXES = (".npz", *scan.SUFFIXES)
TASKS = ("auto", "classification", "regression")
CLASSES = 100  # whole numbers with more distinct values than this are taken as a regression target


def from_arrays(
    x: Any,
    y: Any,
    keys: Any = None,
    name: str = "arrays",
    task: str = "auto",
    feature_names: Sequence[str] = (),
) -> Dataset:
    """A data set from features x [n, ...], targets y [n] and, if there are natural clients, their keys [n].

    Text, true/false and whole numbers with at most 100 distinct values are classes, in sorted order; other targets are
    for regression. x of type uint8 with three or more axes is taken as images 0..255, which `split` divides by 255.

        >>> x, y = [[0.0], [1.0]] * 20, ["home", "readmitted"] * 20
        >>> data = st.data.from_arrays(x, y, keys=["north"] * 20 + ["south"] * 20)
        >>> data.class_names
        ('home', 'readmitted')
    """
    x, y = np.asarray(x), as_text(y)
    need(x.ndim >= 2, f"{name}: x must have one row per sample and at least one column; got shape {x.shape}.")
    need(len(x) > 0, f"{name}: there are no samples.")
    good = x.dtype.kind in "fiub"
    need(good, f"{name}: x must be numbers; got {x.dtype}. Use a CSV or Parquet file for text columns.")
    need(y.ndim == 1, f"{name}: y must be one value per sample; got shape {y.shape}.")
    image = x.dtype == np.uint8 and x.ndim >= 3
    targets, classes, names = _targets(name, y, task)
    owners = None if keys is None else _keys(name, as_text(keys))
    features = x if image or x.dtype.kind == "f" else x.astype(np.float32)
    return Dataset(features, targets, classes, name, owners, class_names=names, feature_names=tuple(feature_names))


def as_text(values: Any) -> np.ndarray:
    """An array; text as NumPy's own text, not as Python objects (which is how pandas keeps it)."""
    array = np.asarray(values)
    words = array.dtype.kind == "O" and all(isinstance(value, str) for value in array.flat)
    return array.astype(str) if words else array


def _targets(name: str, y: np.ndarray, task: str) -> tuple[np.ndarray, int | None, tuple[str, ...]]:
    """Targets as class numbers or floats, the number of classes, and their names."""
    one_of(name, "task", task, TASKS)
    need(y.dtype.kind in "fiubU", f"{name}: targets must be numbers or text; got {y.dtype}.")
    fractional = False
    if y.dtype.kind == "f":
        missing = int((~np.isfinite(y)).sum())
        need(missing == 0, f"{name}: {missing} targets are missing, NaN or Inf; drop those rows first.")
        fractional = bool((y != np.round(y)).any())
    values, inverse = np.unique(y, return_inverse=True)
    return _classes(name, values, inverse, y, task, fractional)


def _classes(
    name: str, values: np.ndarray, inverse: np.ndarray, y: np.ndarray, task: str, fractional: bool
) -> tuple[np.ndarray, int | None, tuple[str, ...]]:
    text, few = values.dtype.kind == "U", len(values) <= CLASSES and not fractional
    if task == "auto" and text and not few:
        raise SartorError(
            f"{name}: the target is text with {len(values)} distinct values, too many to be taken as classes; "
            f'say task="classification" if they are.{see("the-target")}'
        )
    if task == "classification" or (task == "auto" and few):
        need(not fractional, f"{name}: the target has fractional values, so it cannot be classes; use task=regression.")
        names = tuple(str(int(v)) if values.dtype.kind == "f" else str(v) for v in values)
        return inverse.astype(np.int64), len(values), names
    need(not text, f"{name}: the target is text, so it cannot be used for regression.")
    return y.astype(np.float64 if y.dtype == np.float64 else np.float32), None, ()


def _keys(name: str, keys: np.ndarray) -> np.ndarray:
    need(keys.ndim == 1, f"{name}: the client key must be one value per sample; got shape {keys.shape}.")
    need(keys.dtype.kind in "fiubU", f"{name}: the client key must be numbers or text; got {keys.dtype}.")
    missing = int(np.isnan(keys).sum()) if keys.dtype.kind == "f" else 0
    need(missing == 0, f"{name}: the client key is missing in {missing} rows; fill it or drop those rows first.")
    return keys


def read_table(
    path: Path,
    target: str | None = None,
    client_key: str | None = None,
    task: str = "auto",
    drop: Sequence[str] = (),
    spellings: str = "refuse",
    text: Sequence[str] = (),
) -> Dataset:
    """A data set from a file: .npz (x, y and the key's array), CSV or Parquet (a column each); or from a folder of
    tables, each of which is a client unless there is a key.
    """
    if path.is_dir():
        return _from_folder(path, target, client_key, task, drop, spellings, text)
    need(path.is_file(), f"there is no file {path}.")
    if path.suffix.lower() == ".npz":
        need(not drop, f"{path.name}: drop is for the columns of CSV and Parquet files.")
        need(not text, f"{path.name}: text is for the columns of CSV and Parquet files.")
        return _from_npz(path, target or "y", client_key, task)
    return from_sources(path.name, [scan.open_file(path)], None, target, client_key, task, drop, spellings, text)


def _from_folder(
    folder: Path,
    target: str | None,
    client_key: str | None,
    task: str,
    drop: Sequence[str],
    spellings: str,
    text: Sequence[str],
) -> Dataset:
    paths = sorted(p for p in folder.iterdir() if p.is_file() and p.name.lower().endswith(scan.SUFFIXES))
    need(len(paths) > 0, f"{folder} holds no tables; their names end in {', '.join(scan.SUFFIXES)}.")
    sources = [scan.open_file(path) for path in paths]
    kinds = {source.typed for source in sources}
    need(len(kinds) == 1, f"{folder} holds CSV and Parquet files; bring them to one kind.")
    names = None if client_key is not None else [path.name.partition(".")[0] for path in paths]
    return from_sources(folder.name, sources, names, target, client_key, task, drop, spellings, text)


def from_sources(
    name: str,
    sources: Sequence[Source],
    owners: Sequence[str] | None,
    target: str | None,
    client_key: str | None,
    task: str = "auto",
    drop: Sequence[str] = (),
    spellings: str = "refuse",
    text: Sequence[str] = (),
) -> Dataset:
    """A data set from tables with the same columns; `owners` says whose each table is, where no column does."""
    columns = sources[0].columns
    for source in sources:
        twice = sorted(c for c, count in Counter(source.columns).items() if count > 1)
        need(not twice, f"{source.name}: the column {', '.join(twice)} occurs twice; rename one.")
        for one, other in ((source, sources[0]), (sources[0], source)):
            lacks = sorted(set(other.columns) - set(one.columns))
            need(not lacks, f"{one.name} has no column {', '.join(lacks)}, which {other.name} has.")
    if target is None:
        asked = f"{name}: say which column is the target (--target); there are {', '.join(columns)}."
        raise SartorError(asked + see("the-target"))
    drop, text = ((names,) if isinstance(names, str) else tuple(names) for names in (drop, text))
    if target == client_key:
        told = f"{name}: {target} is the target and the client key: each client would have one outcome only."
        raise SartorError(f"{told} Choose another column for one of them.{see('the-target')}")
    singly = [target] if client_key is None else [target, client_key]
    for wanted in (*singly, *drop, *text):
        if wanted not in columns:
            raise unknown(f"column of {name}", wanted, columns, do=see("the-target"))
    for both in {*text} & {*singly, *drop}:
        raise SartorError(f"{name}: column {both} cannot be embedded as text: it is the target, the key or left out.")
    inside = [c for c in columns if c not in {*singly, *drop}]
    seen = scan.look(sources, [*singly, *inside])
    n = seen[target].rows
    need(n > 0, f"{name}: there are no rows.")
    found = _columns(name, seen, [c for c in columns if c in drop or c in inside], drop, text)
    kinds = {c: _single(name, seen[c]) for c in singly}
    x = np.zeros((n, len(feature_names(found))), dtype=np.float32)
    singles = {c: _Single(kind, n) for c, kind in kinds.items()}
    at, whose = 0, np.zeros(n, dtype=np.int64)
    for number, source in enumerate(sources):
        for batch in source.batches():
            rows = slice(at, at + len(batch))
            fill(x[rows], found, {c: batch.column(batch.schema.get_field_index(c)) for c in inside}, name)
            for c, single in singles.items():
                single.take(rows, batch.column(batch.schema.get_field_index(c)))
            whose[rows], at = number, rows.stop
    y, classes, names = singles[target].targets(name, task)
    if owners is not None:
        keys, key_names = coded(whose, list(owners))
    elif client_key is not None:
        keys, key_names = singles[client_key].keys()
    else:
        return Dataset(x, y, classes, name, None, columns=tuple(found), class_names=names, target=target)
    keys, key_names = sort_out(name, client_key or "the files' names", keys, key_names, spellings)
    return Dataset(
        x, y, classes, name, keys, columns=tuple(found), class_names=names, key_names=key_names, target=target
    )


def _columns(
    name: str,
    seen: dict[str, scan.ColumnScan],
    columns: Sequence[str],
    drop: Sequence[str] = (),
    text: Sequence[str] = (),
) -> list[Column]:
    """What a table's columns are, once they have been looked through; those in `text` are embedded."""
    most = scan.texts_allowed({c: seen[c] for c in columns if c not in (*drop, *text)}, name)
    found = [
        Column(c, "left out")
        if c in drop
        else seen[c].sentences(name, encoder_name())
        if c in text
        else seen[c].column(name, most)
        for c in columns
    ]
    need(bool(feature_names(found)), f"{name}: no column is left for the features.")
    return found


def features_of(source: Source, dtype: str) -> tuple[np.ndarray, tuple[Column, ...]]:
    """The features [n, k] of a table without target and clients, and its columns."""
    found = tuple(_columns(source.name, scan.look([source], source.columns), source.columns))
    return features_like(source, found, dtype), found


def features_like(source: Source, columns: Sequence[Column], dtype: str) -> np.ndarray:
    """The features [n, k] of a table that has the columns of another one; texts that are new have none."""
    for column in columns:
        if column.features and column.name not in source.columns:
            raise unknown(f"column of {source.name}; there was one in fit", column.name, source.columns)
    pieces = []
    for batch in source.batches():
        pieces.append(np.zeros((len(batch), len(feature_names(columns))), dtype=dtype))
        fill(pieces[-1], columns, {c: batch.column(c) for c in source.columns}, source.name)
    need(len(pieces) > 0, f"{source.name}: there are no rows.")
    return np.concatenate(pieces)


def _single(table: str, seen: scan.ColumnScan) -> str:
    """The kind of a target or key column; refuses missing values."""
    kind = "text" if seen.missing == seen.rows else seen.kind(table)
    missing = max(seen.blank, seen.missing * (kind != "text" or seen.missing == seen.rows))
    text = f"{table}: column {seen.name} is missing in {missing} rows; fill it or drop those rows first."
    need(missing == 0, text + see("missing-values"))
    need(kind != "date", seen.unfit(table, "dates"))
    return kind


class _Single:
    """A target or key column, filled piece by piece."""

    def __init__(self, kind: str, n: int) -> None:
        self.kind = kind
        self.values = np.zeros(n, dtype=np.int64 if kind == "text" else np.float64)
        self.texts: dict[str, int] = {}

    def take(self, rows: slice, values: Any) -> None:
        """Some of its values."""
        if self.kind != "text":
            self.values[rows] = scan.to_numbers(values)
            return
        where, texts = scan.to_texts(values)
        numbers = [self.texts.setdefault(text, len(self.texts)) for text in texts]
        self.values[rows] = np.array(numbers, dtype=np.int64)[where]

    def targets(self, name: str, task: str) -> tuple[np.ndarray, int | None, tuple[str, ...]]:
        """As `_targets` gives them."""
        if self.kind != "text":
            return _targets(name, self.values if self.kind == "number" else self.values.astype(bool), task)
        one_of(name, "task", task, TASKS)
        values, inverse = np.unique(np.array(list(self.texts)), return_inverse=True)
        return _classes(name, values, inverse[self.values], self.values, task, False)

    def keys(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """Keys, and their names where they are numbers of names."""
        if self.kind == "text":
            return coded(self.values, list(self.texts))
        if self.kind == "flag":
            return self.values.astype(bool), ()
        whole = bool((self.values == np.round(self.values)).all())
        return (self.values.astype(np.int64) if whole else self.values), ()


def fill(x: np.ndarray, columns: Sequence[Column], values: dict[str, Any], table: str) -> dict[str, set[str]]:
    """Write the features [n, k] of some rows; returns by column the texts that were not known, which have no feature.

    Missing numbers are NaN, beside a 1 in the feature that says so.
    """
    import pyarrow

    new: dict[str, set[str]] = {}
    first = places(columns)
    for column in columns:
        if not column.features:
            continue
        at = first[column.name]
        if column.kind in NUMBERS:
            held, read = ("dates", scan.to_days) if column.kind == "date" else ("numbers", scan.to_numbers)
            try:
                x[:, at] = read(values[column.name])
            except pyarrow.ArrowInvalid as e:
                raise SartorError(f"{table}: column {column.name} was {held}; got {str(e).split(': ')[-1]}.") from None
            if column.missing:
                x[:, at + 1] = np.isnan(x[:, at])
            continue
        where, texts = scan.to_texts(values[column.name])
        if column.kind == "sentences":
            x[:, at : at + WIDTH] = embedded(texts, column.texts[0], column.name)[where]
            continue
        known = {text: at + i for i, text in enumerate(column.texts)}
        unknown_at = at + len(column.texts) if column.other else -1
        place = np.array([known.get(text, unknown_at) for text in texts], dtype=np.int64)[where]
        rows = np.flatnonzero(place >= 0)
        x[rows, place[rows]] = 1.0
        if (strange := set(texts) - known.keys()) and not column.other:
            new[column.name] = strange
    return new


def _from_npz(path: Path, target: str, client_key: str | None, task: str) -> Dataset:
    arrays = read_npz(path)
    for wanted in ("x", target, *(() if client_key is None else (client_key,))):
        if wanted not in arrays:
            raise unknown(f"array of {path.name}", wanted, arrays)
    return from_arrays(arrays["x"], arrays[target], None if client_key is None else arrays[client_key], path.name, task)
