"""Rates from curves: by which factor a quantity shrinks per round, or with which power of the round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import need


def factor(values: Sequence[float] | np.ndarray, floor: float = 1e-24) -> float:
    """The factor per round of a curve that decreases linearly, fitted over the later half of what is above
    `floor`."""
    y = np.asarray(values, dtype=float)
    last = int(np.argmax(y <= floor)) if (y <= floor).any() else len(y)
    need(last >= 8, f"a rate needs at least 8 rounds above the rounding; got {last}.")
    half = y[last // 2 : last]
    return float(np.exp(np.polyfit(np.arange(len(half)), np.log(half), 1)[0]))


def power(
    values: Sequence[float] | np.ndarray, at: Sequence[float] | np.ndarray | None = None, floor: float = 0.0
) -> float:
    """The exponent e of a curve that decreases as t^{−e}, fitted to the later half of what is above `floor`; t counts
    from 1."""
    y = np.asarray(values, dtype=float)
    t = np.arange(1, len(y) + 1, dtype=float) if at is None else np.asarray(at, dtype=float)
    last = int(np.argmax(y <= floor)) if (y <= floor).any() else len(y)
    y, t = y[:last], t[:last]
    late = np.arange(len(y)) >= len(y) // 2
    return float(-np.polyfit(np.log(t[late]), np.log(y[late]), 1)[0])
