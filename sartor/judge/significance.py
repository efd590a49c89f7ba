"""Is a difference more than chance? Paired tests over clients, correction for many tests, intervals over seeds.

Differences are rounded to 12 digits, so that differences of equal accuracies are ties, as they should be, and not
separated by rounding errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..errors import need
from ..seeds import stream

RESAMPLES = 10_000


class Paired(NamedTuple):
    """A Wilcoxon signed-rank test of the differences d = ours − theirs."""

    n: int  # pairs
    zeros: int  # pairs without a difference
    mean: float  # the mean of d
    median: float
    effect: float  # (R⁺ − R⁻) / (R⁺ + R⁻), the matched-pairs rank-biserial correlation: −1 ... 1
    p: float  # two-sided


def signed_rank(ours: np.ndarray, theirs: np.ndarray) -> Paired | None:
    """Wilcoxon's signed-rank test of paired numbers [n]; pairs with a NaN are left out, None where no pair is left.

    Zeros are ranked and then dropped (Pratt): with small test sets they are many, and say that nothing changed. The
    p-value is exact for up to 13 pairs, and up to 50 without ties or zeros; else the normal approximation.
    """
    from scipy import stats  # slow to import, and only comparisons need it

    d = np.round(ours - theirs, 12)
    d = d[~np.isnan(d)]
    if not len(d):
        return None
    ranks = stats.rankdata(np.abs(d))
    up, down = float(ranks[d > 0].sum()), float(ranks[d < 0].sum())
    some = up + down > 0
    p = float(stats.wilcoxon(d, zero_method="pratt", correction=False, method="auto").pvalue) if some else 1.0
    effect = (up - down) / (up + down) if some else 0.0
    return Paired(len(d), int((d == 0).sum()), float(d.mean()), float(np.median(d)), effect, p)


def cut_factor(cuts: np.ndarray | int, scored: float) -> np.ndarray | float:
    """What makes of the variance from cut to cut that of the mean over `cuts` of them, which each score a share of the
    rows and learn from the others: 1/J + scored/learnt from, as cuts share rows (Nadeau and Bengio 2003)."""
    return 1 / cuts + scored / (1 - scored)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the probability of one or more false alarms among all these tests stays below p."""
    order = np.argsort(p, kind="stable")
    scaled = np.asarray(p, dtype=float)[order] * np.arange(len(p), 0, -1)
    out = np.empty(len(p))
    out[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return out.tolist()


def interval(values: Sequence[float], level: float = 0.95, resamples: int = RESAMPLES) -> tuple[float, float] | None:
    """The bootstrap percentile interval of the mean of one number per seed, or per client; None for fewer than two.

    Seeded by us, so it is a function of the values. With few seeds it is too narrow: three of them cover the truth
    about three times in four, not nineteen in twenty.
    """
    need(0 < level < 1, f"an interval's level lies between 0 and 1; got {level}.")
    x = np.asarray(values, dtype=float)
    if len(x) < 2:
        return None
    draws = stream(0, "bootstrap").integers(len(x), size=(resamples, len(x)))
    low, high = np.quantile(x[draws].mean(1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
