"""Own data that are already in Python: arrays, data frames, Hugging Face and Flower data sets. None is imported here:
an object is known by what it can do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import SartorError, need, unknown
from ..dataset import Dataset
from ..file_formats import first_line
from .own_data import from_arrays, from_sources
from .scan import ROWS, Source


def read_object(
    thing: Any,
    target: str | None = None,
    client_key: str | None = None,
    task: str = "auto",
    drop: Sequence[str] = (),
    spellings: str = "refuse",
    split: str | None = None,
    text: Sequence[str] = (),
) -> Dataset:
    """A data set from (X, y), (X, y, groups), a dict of arrays, a pandas or pyarrow table, a Hugging Face data set or a
    Flower FederatedDataset or Partitioner, of which each partition is a client.

    `split` is which of a Flower data set's splits is meant, where it partitions several.
    """
    if hasattr(thing, "load_partition"):
        parts = list(_partitions(thing, split))
        if client_key is None and (image := _image(parts[0])) is not None:
            return _images(parts, image, target, task)
        owners = None if client_key else [str(i) for i in range(len(parts))]
        sources = [as_source(f"partition {i}", part) for i, part in enumerate(parts)]
        return from_sources("partitions", sources, owners, target, client_key, task, drop, spellings, text)
    if isinstance(thing, tuple):
        need(len(thing) in (2, 3), f"arrays are given as (X, y) or (X, y, groups); got a tuple of {len(thing)}.")
        if hasattr(thing[0], "columns"):
            return _joined(*thing, task=task, drop=drop, spellings=spellings, text=text)
        x, y, groups = thing if len(thing) == 3 else (*thing, None)
        return from_arrays(x, y, groups, task=task)
    if isinstance(thing, Mapping) and hasattr(next(iter(thing.values()), None), "column_names"):
        raise SartorError(f"this holds several splits ({', '.join(thing)}); pass one of them, as in data['train'].")
    if isinstance(thing, Mapping) and "x" in thing and np.ndim(thing["x"]) >= 2:
        for wanted in (target or "y", *([client_key] if client_key else [])):
            if wanted not in thing:
                raise unknown("array", wanted, thing)
        return from_arrays(thing["x"], thing[target or "y"], thing[client_key] if client_key else None, task=task)
    if (image := _image(thing)) is not None:
        return _images([thing], image, target, task, client_key)
    return from_sources("table", [as_source("table", thing)], None, target, client_key, task, drop, spellings, text)


def _joined(x: Any, y: Any, groups: Any = None, **options: Any) -> Dataset:
    """(a data frame, targets, groups), as scikit-learn has them."""
    table = x.copy()
    for name, values in (("y", y), ("groups", groups)):
        need(
            name not in table.columns, f"the data frame has a column {name!r} already; give it as target or client_key."
        )
        if values is not None:
            table[name] = np.asarray(values)
    return from_sources(
        "table", [as_source("table", table)], None, "y", None if groups is None else "groups", **options
    )


def _partitions(thing: Any, split: str | None) -> Iterator[Any]:
    makers = getattr(thing, "partitioners", None)
    if makers is None:
        need(hasattr(thing, "num_partitions"), "a partitioner says how many partitions it has (num_partitions).")
        yield from (thing.load_partition(i) for i in range(thing.num_partitions))
        return
    if split is None:
        need(len(makers) == 1, f"this data set partitions {', '.join(makers)}; say which with split=...")
        split = next(iter(makers))
    if split not in makers:
        raise unknown("partitioned split", split, makers)
    thing.load_partition(0, split)  # a partitioner knows how many there are when its data are there
    yield from (thing.load_partition(i, split) for i in range(makers[split].num_partitions))


def as_source(name: str, thing: Any) -> Source:
    """A table in pieces, from anything that is one."""
    table = _arrow(name, thing)
    return Source(name, list(table.column_names), lambda: iter(table.to_batches(ROWS)))


def _arrow(name: str, thing: Any) -> Any:
    """Anything that is a table, as one of pyarrow's."""
    import pyarrow

    try:
        if isinstance(thing, pyarrow.Table):
            return thing
        if hasattr(thing, "with_format") and hasattr(thing, "column_names"):  # Hugging Face
            return thing.with_format("arrow")[:]
        if hasattr(thing, "columns") and hasattr(thing, "dtypes"):  # pandas
            columns = {str(c): _column(str(c), thing[c]) for c in thing.columns}
            need(len(columns) == len(thing.columns), "a data frame's columns must have different names.")
            return pyarrow.table(columns)
        if isinstance(thing, Mapping):
            return pyarrow.table({str(c): _column(str(c), values) for c, values in thing.items()})
    except pyarrow.ArrowException as e:
        raise SartorError(f"{name} cannot be read as a table: {first_line(e)}.") from e
    raise SartorError(
        f"data are given by name, by path, or as (X, y, groups), a dict of columns, a data frame, a Hugging Face or a "
        f"Flower data set; got {type(thing).__name__}."
    )


def _column(name: str, values: Any) -> Any:
    import pyarrow

    try:
        return pyarrow.array(values, from_pandas=True)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as e:
        kinds = sorted({type(v).__name__ for v in values if v is not None})
        raise SartorError(f"column {name} mixes {' and '.join(kinds)}; bring it to one type ({first_line(e)}).") from e


def _image(thing: Any) -> str | None:
    """The column of a Hugging Face data set that holds images."""
    features = getattr(thing, "features", None)
    found = [k for k, v in features.items() if type(v).__name__ == "Image"] if isinstance(features, Mapping) else []
    need(len(found) < 2, f"there are several columns with images: {', '.join(found)}; keep one.")
    return found[0] if found else None


def _images(parts: Sequence[Any], image: str, target: str | None, task: str, key: str | None = None) -> Dataset:
    """Images [n, channels, height, width] of uint8, from one data set or one for each client."""
    names = [c for c in parts[0].column_names if c != image]
    if target is None and len(names) != 1:
        raise SartorError(f"say which column is the target; there are {', '.join(names)}.")
    target = target or names[0]
    for wanted in (target, *([key] if key else [])):
        if wanted not in names:
            raise unknown("column", wanted, names)
    x, y, keys = [], [], []
    for i, part in enumerate(parts):
        for row in part:
            pixels = np.asarray(row[image], dtype=np.uint8)
            x.append(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))
            y.append(row[target])
            keys.append(str(row[key]) if key else str(i))
    shapes = {pixels.shape for pixels in x}
    need(len(shapes) == 1, f"images must have one size; got {len(shapes)} of them. Resize them first.")
    return from_arrays(np.stack(x), y, keys if key or len(parts) > 1 else None, "images", task)
