"""Which cases of a table are played every time; the others are `long` and wait for `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first(values: Iterable[Any], *names: Any) -> list[Any]:
    """These values every time."""
    return [v if v in names else pytest.param(v, marks=pytest.mark.long) for v in values]


def one_in(n: int, values: Iterable[Any]) -> list[Any]:
    """Every n-th value every time."""
    return [pytest.param(v, marks=pytest.mark.long) if i % n else v for i, v in enumerate(values)]


def diagonal(rows: Iterable[Any], columns: Iterable[Any]) -> list[Any]:
    """The product of two tables, of which every row and every column is played every time, but not with every other."""
    a, b = list(rows), list(columns)

    def on_it(i: int, j: int) -> bool:
        return i == j % len(a) if len(a) <= len(b) else j == i % len(b)

    return [
        pytest.param(x, y, marks=() if on_it(i, j) else pytest.mark.long)
        for i, x in enumerate(a)
        for j, y in enumerate(b)
    ]
