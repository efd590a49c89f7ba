"""What a table has too little of for a model of each client's own: said before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .columns import Column, places

_MOST = 5  # classes that are named


def too_little(
    x: np.ndarray,
    y: np.ndarray,
    rows: Sequence[np.ndarray],
    classes: Sequence[str] | None,
    columns: tuple[Column, ...],
    names: Sequence[str],
) -> Iterator[str]:
    """Lines about the training rows of each client, of features x [n, k] and targets y [n]; `classes`: their names."""
    yield from _constant(x, np.concatenate(rows) if len(rows) else np.zeros(0, dtype=np.int64), columns)
    wide = sum(len(column.features) for column in columns)
    if narrow := sum(0 < len(mine) <= wide for mine in rows):
        yield (
            f"{narrow} of {len(rows)} clients have no more training rows than features ({wide}): a linear model of "
            "their own fits whatever they are, and the penalty (--ridge) decides."
        )
    if classes is None:
        return
    there = np.array([np.bincount(y[mine], minlength=len(classes)) > 0 for mine in rows])
    if one := int((there.sum(1) == 1).sum()):
        yield f"{one} of {len(rows)} clients have training rows of one class only: alone they learn to say that class."
    if len(rows) > 1:
        for k in np.flatnonzero(there.sum(0) == 1)[:_MOST]:
            owner = names[int(there[:, k].argmax())]
            yield f"class {classes[int(k)]!r} is in the training rows of {owner} only: nobody else can learn it alone."


def _constant(x: np.ndarray, rows: np.ndarray, columns: tuple[Column, ...]) -> Iterator[str]:
    where = places(columns)
    for column in (c for c in columns if c.features):
        at = slice(where[column.name], where[column.name] + len(column.features))
        values = x[rows, at]
        if len(rows) > 1 and bool(((values == values[0]) | np.isnan(values)).all()):
            yield f"column {column.name} has the same value in every training row: it says nothing."
