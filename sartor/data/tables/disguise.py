"""Columns that are the target in disguise: with one of them a prediction is easy, and worth nothing later.

A discharge code that says the outcome, the target in another unit, a date that is only filled for those who fell ill.
They are pointed out and never dropped: it may be right.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .columns import NUMBERS, Column, places

LIKE = 0.999  # a correlation, either way
_FEW = 20  # rows that prove nothing
_FIRST = 1000  # what does not hold of these does not hold of all


def disguised(
    x: np.ndarray, y: np.ndarray, rows: np.ndarray, classes: int | None, columns: tuple[Column, ...]
) -> Iterator[str]:
    """A line for each column of the table's features x [n, k] that gives the targets y [n] away in these rows."""
    if len(rows) < _FEW:
        return
    first, y_first, y = rows[:_FIRST], y[rows[:_FIRST]], y[rows]
    where = places(columns)
    for column in columns:
        if not column.features:
            continue
        at = slice(where[column.name], where[column.name] + len(column.features))
        if classes is not None and _determines(x[first, at], y_first) and _determines(x[rows, at], y):
            yield f"column {column.name} tells the class of every training row; is it known before the outcome is?"
        elif classes is None and column.kind in NUMBERS and abs(r := _correlation(x[rows, at.start], y)) > LIKE:
            yield f"column {column.name} is the target in other units (correlation {r:.4f}); is it known beforehand?"


def _determines(values: np.ndarray, y: np.ndarray) -> bool:
    """Whether rows that are alike have one class. Where nearly every row is another, as with identifiers and
    measurements, that says nothing."""
    _, kind = np.unique(np.nan_to_num(values, nan=-1.2345e30), axis=0, return_inverse=True)
    kinds, classes = int(kind.max()) + 1, len(np.unique(y))
    pairs = len(np.unique(np.column_stack([kind, y]), axis=0))
    return 2 <= classes <= kinds <= len(y) // 2 and pairs == kinds


def _correlation(values: np.ndarray, y: np.ndarray) -> float:
    there = ~np.isnan(values)
    a, b = values[there].astype(np.float64), y[there].astype(np.float64)
    if len(a) < _FEW:
        return 0.0
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / size if size > 0 else 0.0
