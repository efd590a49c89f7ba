"""The common scale of columns from sums alone: all that secure aggregation lets a server see.

    n = Σ n_i,   S = Σ n_i mean_i,   Q = Σ (squares_i + n_i mean_i²)          over clients, in whole numbers: exactly
    mean = S / n,   variance = Q / n − mean²                                  in fractions, so that no digit cancels

Then the clients are counted by how far each lies from that mean, in steps of a 64th of a power of two: the farthest
step that somebody is in takes the place of the largest distance (moments.columns_scale), which no sum tells. So mean
and spread are those of moments.pooled but for rounding, and the factor is at most 2^(1/64) (1.1%) larger. The
simulation of a run with secure aggregation computes the same bits as its sites and its server.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...errors import SartorError
from ...exact_sums import MOST, UNIT, whole
from .moments import FAR, Moments, spread_of

STEPS = 64  # for a factor of two
BINS = 32 * STEPS  # up to 2^32 · FAR, beyond which no client's mean can lie


class MomentSums(NamedTuple):
    """Of c columns; `sums` and `squares` in units of exact_sums."""

    counts: list[int]
    sums: list[int]
    squares: list[int]


def sums_of(each: Moments) -> MomentSums:
    """Of some clients; refused where a number is too large to be summed."""
    with np.errstate(over="ignore"):
        sizes = each.squares + each.counts * each.means**2
    if not bool((sizes < MOST).all()):
        raise SartorError("a column holds numbers above 1e30, too large to be summed; leave it out, or rescale it.")
    found = MomentSums([], [], [])
    for column in range(each.counts.shape[1]):
        n = [int(v) for v in each.counts[:, column]]
        means = [whole(v) for v in each.means[:, column]]
        squares = [whole(v) for v in each.squares[:, column]]
        found.counts.append(sum(n))
        found.sums.append(sum(k * m for k, m in zip(n, means, strict=True)))
        found.squares.append(sum(q + (k * m * m >> UNIT) for k, m, q in zip(n, means, squares, strict=True)))
    return found


def pooled_of(total: MomentSums) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation [c] of all values; 0 and 1 where there are none."""
    mean, std = np.zeros(len(total.counts)), np.zeros(len(total.counts))
    for at, (n, s, q) in enumerate(zip(*total, strict=True)):
        if n > 0:
            mean[at] = s / (n << UNIT)
            std[at] = math.sqrt(max(0, q * n - (s * s >> UNIT)) / (n * n << UNIT))
    return mean, spread_of(mean, std)


def distances(each: Moments, mean: np.ndarray, spread: np.ndarray, scaled: np.ndarray) -> np.ndarray:
    """[BINS] how many clients are how far from the mean: in step k, at most FAR · 2^(k/64) spreads."""
    apart = np.where(scaled & (each.counts > 0), (each.means - mean) / spread, 0.0)
    far = np.sqrt((apart * apart).sum(axis=1)) / FAR
    steps = np.ceil(STEPS * np.log2(np.maximum(far, 1.0)))
    return np.bincount(np.minimum(steps, BINS - 1).astype(np.int64), minlength=BINS)


def factor(counts: np.ndarray) -> float:
    """By how much all spreads grow, so that nobody is farther than FAR."""
    return float(2.0 ** (int(np.flatnonzero(counts)[-1]) / STEPS)) if counts.any() else 1.0


def summed_scale(each: Moments, scaled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What columns are centred and divided by [c], as moments.columns_scale, of sums alone."""
    mean, spread = pooled_of(sums_of(each))
    return mean, spread * factor(distances(each, mean, spread, scaled))
