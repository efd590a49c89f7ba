"""Later samples for a model that is trained: read as the data set that it was trained on was, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..errors import need, unknown
from .dataset import Dataset
from .files import read_npz
from .tables import CATEGORIES, as_text, column_of, encode, features, open_table


def read_like(path: Path, like: Dataset, target: str | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    """The samples of a file as those of another data set: x [n, ...], and y [n] where the file has the target.

    Columns are found by name and stand as they did there; a text that was not seen there is refused, not guessed.
    """
    need(path.is_file(), f"there is no file {path}.")
    if path.suffix.lower() == ".npz":
        arrays = read_npz(path)
        if "x" not in arrays:
            raise unknown(f"array of {path.name}", "x", arrays)
        x, y = arrays["x"], arrays.get(target or "y")
    else:
        table = open_table(path)
        need(table.num_rows > 0, f"{path.name}: there are no rows.")
        labelled = target is not None and target in table.column_names
        y = column_of(path.name, table, str(target)) if labelled else None
        x = _columns(path.name, table, like, target)
    shape = like.x.shape[1:]
    need(len(x) > 0, f"{path.name}: there are no samples.")
    need(
        x.shape[1:] == shape or x[0].size == np.prod(shape),
        f"{path.name}: samples of shape {list(x.shape[1:])}, but the model was trained on {list(shape)}.",
    )
    need(x.dtype.kind in "fiub", f"{path.name}: x must be numbers; got {x.dtype}.")
    images = like.x.dtype == np.uint8
    need(
        not images or x.dtype == np.uint8,
        f"{path.name}: the model was trained on images 0..255 of type uint8; got {x.dtype}.",
    )
    x = x.reshape(len(x), *shape)
    x = x if images else x.astype(like.x.dtype)
    need(images or bool(np.isfinite(x).all()), f"{path.name}: the data hold NaN or Inf; drop or fill them first.")
    return x, None if y is None else _labels(path.name, as_text(y), like)


def _columns(file: str, table: Any, like: Dataset, target: str | None) -> np.ndarray:
    """[n, k] the features by their names; of a data set without names, all columns but the target in order."""
    columns = [c for c in table.column_names if c != target]
    if not like.feature_names:
        return features(file, table, columns)[0]
    known: dict[str, dict[str, int]] = {}  # of each text column, the place of each text
    places: dict[str, int] = {}
    for place, name in enumerate(like.feature_names):
        column, equals, text = name.partition("=")
        if name in columns or not equals:
            places[name] = place
        else:
            known.setdefault(column, {})[text] = place
    x = np.zeros((table.num_rows, len(like.feature_names)), dtype=np.float32)
    for column in [*places, *known]:
        if column not in columns:
            raise unknown(f"column of {file}; the model was trained with", column, columns)
        block, texts = encode(file, column, table.column(column), CATEGORIES)
        need(
            bool(texts) == (column in known), f"{file}: column {column} was {'text' if column in known else 'numbers'}."
        )
        new = [text for text in texts if text not in known[column]]
        need(not new, f"{file}: column {column} holds {new[0] if new else ''!r}, which the model has never seen.")
        x[:, [known[column][text] for text in texts] if texts else [places[column]]] = block
    return x


def _labels(file: str, y: np.ndarray, like: Dataset) -> np.ndarray:
    """Targets as the data set has them: class numbers by their names, or numbers."""
    need(y.ndim == 1, f"{file}: y must be one value per sample; got shape {y.shape}.")
    if like.y.dtype.kind == "f":
        need(y.dtype.kind in "fiub", f"{file}: targets must be numbers; got {y.dtype}.")
        allowed = np.unique(like.y) if like.classes is not None else y
        wrong = y[~np.isin(y, allowed)]
        need(len(wrong) == 0, f"{file}: targets are {', '.join(map(str, allowed[:5]))}; got {wrong[:1]}.")
        return y.astype(like.y.dtype)
    words = [str(int(v)) if y.dtype.kind == "f" and float(v).is_integer() else str(v) for v in y.tolist()]
    names = {name: i for i, name in enumerate(like.class_names)}
    if not names or (y.dtype.kind in "iu" and not names.keys() >= set(words)):  # already numbers of classes
        names = {str(i): i for i in range(like.classes or 0)}
    for word in words:
        if word not in names:
            raise unknown(f"class in {file}", word, names)
    return np.array([names[word] for word in words], dtype=np.int64)
