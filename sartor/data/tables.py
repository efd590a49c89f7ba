"""The user's own data: arrays, .npz, CSV and Parquet files.

Columns are treated one by one and without statistics: numbers stay as they are, true/false becomes 1/0, text becomes
one column per distinct value. Nothing is standardised or imputed: that would carry numbers from client to client.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import SartorError, need, one_of, unknown
from .dataset import Dataset
from .files import first_line, read_npz

SUFFIXES = (".npz", ".csv", ".csv.gz", ".parquet", ".pq")
TASKS = ("auto", "classification", "regression")
CLASSES = 100  # whole numbers with more distinct values than this are taken as a regression target
CATEGORIES = 1000  # as many columns may come from text columns, all together


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
    text, fractional = y.dtype.kind == "U", False
    if y.dtype.kind == "f":
        missing = int((~np.isfinite(y)).sum())
        need(missing == 0, f"{name}: {missing} targets are missing, NaN or Inf; drop those rows first.")
        fractional = bool((y != np.round(y)).any())
    values, inverse = np.unique(y, return_inverse=True)
    few = len(values) <= CLASSES and not fractional
    if task == "auto" and text and not few:
        raise SartorError(
            f"{name}: the target is text with {len(values)} distinct values, too many to be taken as classes; "
            'say task="classification" if they are.'
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
) -> Dataset:
    """A data set from a file: .npz (x, y and the key's array), CSV or Parquet (a column each)."""
    need(path.is_file(), f"there is no file {path}.")
    if path.suffix.lower() == ".npz":
        need(not drop, f"{path.name}: drop is for the columns of CSV and Parquet files.")
        return _from_npz(path, target or "y", client_key, task)
    table = open_table(path)
    columns: list[str] = table.column_names
    twice = sorted({c for c in columns if columns.count(c) > 1})
    need(not twice, f"{path.name}: the column {', '.join(twice)} occurs twice; rename one.")
    if target is None:
        raise SartorError(f"{path.name}: say which column is the target (--target); there are {', '.join(columns)}.")
    drop = (drop,) if isinstance(drop, str) else tuple(drop)
    for wanted in (target, *([client_key] if client_key else []), *drop):
        if wanted not in columns:
            raise unknown(f"column of {path.name}", wanted, columns)
    need(table.num_rows > 0, f"{path.name}: there are no rows.")
    y = column_of(path.name, table, target)
    keys = column_of(path.name, table, client_key) if client_key else None
    x, names = features(path.name, table, [c for c in columns if c not in {target, client_key, *drop}])
    return from_arrays(x, y, keys, path.name, task, names)


def _from_npz(path: Path, target: str, client_key: str | None, task: str) -> Dataset:
    arrays = read_npz(path)
    for wanted in ("x", target, *([client_key] if client_key else [])):
        if wanted not in arrays:
            raise unknown(f"array of {path.name}", wanted, arrays)
    return from_arrays(arrays["x"], arrays[target], arrays[client_key] if client_key else None, path.name, task)


def open_table(path: Path) -> Any:
    """The file as a pyarrow table."""
    import pyarrow  # slow to import, and only needed for tables
    from pyarrow import csv, parquet

    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return parquet.read_table(path)
        return csv.read_csv(path)
    except (pyarrow.ArrowException, OSError, EOFError) as error:
        raise SartorError(f"{path.name} cannot be read, it may be truncated or damaged: {first_line(error)}") from None


def column_of(file: str, table: Any, column: str) -> np.ndarray:
    """A target or key column as numbers or text; refuses missing values."""
    values = table.column(column)
    missing = values.null_count
    need(missing == 0, f"{file}: column {column} is missing in {missing} rows; fill it or drop those rows first.")
    array = np.asarray(values.to_pylist())
    need(array.dtype.kind != "O", f"{file}: column {column} holds {values.type}, neither numbers nor text.")
    return array


def features(file: str, table: Any, columns: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """[n, k] float32 and the names of the k columns; a text column `c` becomes columns "c=value"."""
    need(len(columns) > 0, f"{file}: no column is left for the features.")
    parts: list[np.ndarray] = []
    names: list[str] = []
    categories = 0
    for column in columns:
        block, values = encode(file, column, table.column(column), CATEGORIES - categories)
        categories += len(values)
        parts.append(block)
        names += [f"{column}={value}" for value in values] or [column]
    return np.concatenate(parts, axis=1), names


def encode(file: str, column: str, values: Any, allowed: int) -> tuple[np.ndarray, list[str]]:
    """One column as [n, 1] numbers and no names, or as [n, k] ones and zeros and the k values of the text."""
    import pyarrow
    from pyarrow import types as kind

    if kind.is_null(values.type):
        raise SartorError(
            f"{file}: column {column} is empty; leave that column out of the file, or load with drop=[...]."
        )
    inner = values.type.value_type if kind.is_dictionary(values.type) else values.type
    if kind.is_string(inner) or kind.is_large_string(inner):
        text = np.array([value or "" for value in values.to_pylist()])  # missing text is a category of its own
        found, place = np.unique(text, return_inverse=True)
        need(
            len(found) <= allowed,
            f"{file}: column {column} has {len(found)} distinct texts; at most {CATEGORIES} in all text columns become "
            "features. Leave that column out of the file (or load with drop=[...]), or group its values.",
        )
        return np.eye(len(found), dtype=np.float32)[place], [str(v) for v in found]
    number = kind.is_integer(inner) or kind.is_floating(inner) or kind.is_boolean(inner) or kind.is_decimal(inner)
    need(
        number,
        f"{file}: column {column} holds {values.type}; turn it into numbers or leave it out (drop=[...]).",
    )
    array = values.cast(inner).cast(pyarrow.float64(), safe=False).to_numpy()  # missing becomes NaN
    missing = int(np.isnan(array).sum())
    need(
        missing == 0,
        f"{file}: column {column} is missing in {missing} of {len(array)} rows; values are not imputed: "
        "fill it, or drop it or those rows first.",
    )
    return array.astype(np.float32)[:, None], []
