"""Later samples for a model that is trained: read as those that it was trained on were, or refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import SartorError, need, see, unknown
from ..file_formats import read_npz
from ..inputs import Inputs
from .own_data import as_text, fill
from .scan import Source, open_file, to_numbers, to_texts


@dataclass
class NewSamples:
    """Samples of a file, before a client's statistics are applied."""

    x: np.ndarray  # [n, ...]
    y: np.ndarray | None = None  # [n] where the file has the target
    keys: list[str] | None = None  # [n] whose each sample is, where the file says
    notes: list[str] = field(default_factory=list)  # what was new, in plain words


def read_like(path: Path, like: Inputs, target: str | None = None, client_key: str | None = None) -> NewSamples:
    """The samples of a file as those of the data set that a model was trained on.

    Columns are found by name and stand as they did there. A text that was not seen there has no feature: the model is
    told of none of the known ones, and a note says so.
    """
    need(path.is_file(), f"there is no file {path}.")
    if path.suffix.lower() == ".npz":
        arrays = read_npz(path)
        if "x" not in arrays:
            raise unknown(f"array of {path.name}", "x", arrays)
        keys = arrays.get(client_key or "")
        found = NewSamples(arrays["x"], arrays.get(target or "y"), None if keys is None else [str(k) for k in keys])
    else:
        found = _from_table(open_file(path), like, target or like.target, client_key)
    x, shape = found.x, like.shape
    need(len(x) > 0, f"{path.name}: there are no samples.")
    need(
        x.shape[1:] == shape or x[0].size == np.prod(shape),
        f"{path.name}: samples of shape {list(x.shape[1:])}, but the model was trained on {list(shape)}.",
    )
    need(x.dtype.kind in "fiub", f"{path.name}: x must be numbers; got {x.dtype}.")
    images = like.images is not None
    need(
        not images or x.dtype == np.uint8,
        f"{path.name}: the model was trained on images 0..255 of type uint8; got {x.dtype}.",
    )
    x = x.reshape(len(x), *shape)
    found.x = x if images or x.dtype.kind == "f" else x.astype(np.float32)
    good = images or bool((np.isfinite(x) if not like.columns else ~np.isinf(x)).all())
    need(good, f"{path.name}: the data hold NaN or Inf; drop or fill them first.")
    found.y = None if found.y is None else _labels(path.name, as_text(found.y), like)
    return found


def _from_table(source: Source, like: Inputs, target: str | None, client_key: str | None) -> NewSamples:
    wanted = [c.name for c in like.columns if c.features]
    if not wanted:  # the model was trained on arrays: all columns but the target, in order
        wanted = [c for c in source.columns if c not in (target, client_key)]
    for column in wanted:
        if column not in source.columns:
            raise unknown(
                f"column of {source.name}; the model was trained with", column, source.columns, do=see("new-rows")
            )
    if like.how == "raw":
        _complete(source, wanted)
    xs, ys, keys, new = [], [], [], dict[str, set[str]]()
    for batch in source.batches():
        values = {c: batch.column(batch.schema.get_field_index(c)) for c in source.columns}
        if like.columns:
            x = np.zeros((len(batch), like.shape[0]), dtype=np.float32)
            for column, texts in fill(x, like.columns, values, source.name).items():
                new.setdefault(column, set()).update(texts)
        else:
            x = np.column_stack([_numbers(source, c, values[c]) for c in wanted]).astype(np.float32)
        xs.append(x)
        if target in values:
            ys.append(_plain(source, str(target), values[target], like))
        if client_key in values:
            where, names = to_texts(values[client_key])
            keys += [names[i] for i in where]
    need(len(xs) > 0 and sum(map(len, xs)) > 0, f"{source.name}: there are no rows.")
    notes = [
        f"{source.name}: column {c} holds {', '.join(map(repr, sorted(texts)[:3]))}{' ...' if len(texts) > 3 else ''}, "
        "which the model has never seen: taken as none of the known ones"
        for c, texts in new.items()
    ]
    return NewSamples(np.concatenate(xs), np.concatenate(ys) if ys else None, keys or None, notes)


def _complete(source: Source, columns: list[str]) -> None:
    """Raw columns are not imputed, neither in training nor later."""
    for batch in source.batches():
        for c in columns:
            values = batch.column(batch.schema.get_field_index(c))
            empty = values.null_count > 0 or "" in to_texts(values)[1]
            need(not empty, f"{source.name}: column {c} has missing values, and the run's columns are raw.")


def _numbers(source: Source, column: str, values: Any) -> np.ndarray:
    """A column of numbers."""
    import pyarrow

    try:
        return to_numbers(values)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as e:
        raise SartorError(
            f"{source.name}: column {column} must be numbers; got {str(e).split(': ')[-1]}.{see('new-rows')}"
        ) from None


def _plain(source: Source, column: str, values: Any, like: Inputs) -> np.ndarray:
    """Targets as text for classes, else as numbers."""
    if like.classes is None or like.ends is not None:
        return _numbers(source, column, values)
    where, texts = to_texts(values)
    words: np.ndarray = np.array(texts)[where]
    return words


def _labels(file: str, y: np.ndarray, like: Inputs) -> np.ndarray:
    """Targets as the data set has them: class numbers by their names, or numbers."""
    need(y.ndim == 1, f"{file}: y must be one value per sample; got shape {y.shape}.")
    if like.classes is None or like.ends is not None:
        need(y.dtype.kind in "fiub", f"{file}: targets must be numbers; got {y.dtype}.")
        need(bool(np.isfinite(y.astype(np.float64)).all()), f"{file}: some targets are missing; drop those rows.")
        wrong = y[:0] if like.ends is None else y[~np.isin(y, like.ends)]
        need(len(wrong) == 0, f"{file}: targets are {', '.join(f'{e:g}' for e in like.ends or ())}; got {wrong[:1]}.")
        return y.astype(np.float64)
    names = {name: i for i, name in enumerate(like.labels())}
    words = [_word(v, names) for v in y.tolist()]
    if y.dtype.kind in "iu" and not names.keys() >= set(words):  # already numbers of classes
        names = {str(i): i for i in range(like.classes)}
    if "" in words:
        raise SartorError(f"{file}: the target is missing in {words.count('')} rows; drop those rows first.")
    for word in words:
        if word not in names:
            raise unknown(f"class in {file}", word, names)
    return np.array([names[word] for word in words], dtype=np.int64)


def _word(value: object, names: dict[str, int]) -> str:
    """A class by its name, however the file writes it: 1, 1.0, true."""
    text = str(value)
    if text in names:
        return text
    try:
        number = float(text)
    except ValueError:
        return text.capitalize() if text.capitalize() in names else text
    return str(int(number)) if number.is_integer() else text
