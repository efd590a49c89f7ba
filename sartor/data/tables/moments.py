"""Mean and standard deviation of all clients' values from three numbers of each: how many, their mean, their squares.

A simulation and a real federation compute the same bits: a client's numbers depend on its own values alone, and they
are added up in the order of clients. The squares are about the client's own mean, so that a column far from zero (a
year, a date) loses no digits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Spreads that a client's mean may be away from the mean of all. By the loss on training rows (benchmarks/columns.py
# far): with 4, steps of the default length diverge on one of five tables; with 1/2, all learn more slowly.
FAR = 2.0


class Moments(NamedTuple):
    """Of c columns: a row for each client."""

    counts: np.ndarray  # [m, c] values that are there
    means: np.ndarray  # [m, c] their mean; 0 where there are none
    squares: np.ndarray  # [m, c] Σ (x − mean)²

    @classmethod
    def joined(cls, each: list[Moments]) -> Moments:
        """Those of several clients below each other."""
        return cls(*(np.concatenate(values) for values in zip(*each, strict=True)))


def moments(values: np.ndarray) -> Moments:
    """Of one client's values [n, c], NaN where one is missing."""
    # Columns as rows: each is then summed alone, to the same bits whatever stands beside it.
    columns = np.ascontiguousarray(values.T, dtype=np.float64)
    there = ~np.isnan(columns)
    count = there.sum(axis=1).astype(np.float64)
    mean = np.where(there, columns, 0.0).sum(axis=1) / np.maximum(count, 1.0)
    with np.errstate(over="ignore"):
        apart = np.where(there, columns - mean[:, None], 0.0)
        return Moments(count[None], mean[None], (apart * apart).sum(axis=1)[None])


def pooled(each: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation [c] of all clients' values together; 0 and 1 where there are none.

    With n = Σ n_i: mean = Σ n_i mean_i / n, variance = Σ (squares_i + n_i (mean_i − mean)²) / n.
    """
    total = np.maximum(_in_order(each.counts), 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = _in_order(each.counts * each.means) / total
        mean = np.where(np.isfinite(mean), mean, 0.0)
        variance = _in_order(each.squares + each.counts * (each.means - mean) ** 2) / total
    return mean, spread_of(mean, np.sqrt(variance))


def columns_scale(each: Moments, scaled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What columns are centred and divided by [c], of which those that are `scaled` count.

    Where clients lie far apart their columns are, at their place, one large constant: a gradient step that is right for
    the others is then too long, and training diverges. So all spreads grow by one factor until no client's mean is
    farther than FAR of them from that of all, over all columns together: Σ_j ((mean_ij − mean_j) / spread_j)² ≤ FAR².
    """
    mean, spread = pooled(each)
    apart = np.where(scaled & (each.counts > 0), (each.means - mean) / spread, 0.0)
    farthest = float(np.sqrt((apart * apart).sum(axis=1).max(initial=0.0)))
    return mean, spread * max(1.0, farthest / FAR)


def spread_of(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """What values are divided by: their standard deviation, or 1 where they are all the same but for rounding, or too
    large for squares."""
    return np.where((std > 1e-9 * np.abs(mean) + 1e-300) & np.isfinite(std), std, 1.0)


def _in_order(rows: np.ndarray) -> np.ndarray:
    """Rows [m, c] added one after the other: the order of sums does not depend on how many columns there are."""
    total = np.zeros(rows.shape[1])
    for row in rows:
        total += row
    return total
