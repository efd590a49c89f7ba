"""Curves of predictions at fixed places, small for any number of samples: ROC, calibration, fit and residuals.

They are looked at, not computed with: AUROC and the like are metric_intervals.py's, of all samples. A group of samples
has at least LEAST of them: a curve holds no sample's own numbers.

    ROC           share of the second class that is found at each false-positive rate of RATES, where there are two
                  classes; else the mean over the classes that occur, each against the rest: its area is AUROC's
    calibration   of two classes the second one's probability against how often it is true; of more the probability of
                  the most probable class against how often that is right
    fit           numbers: the mean prediction of a group against the mean of what is true, and the residuals' spread
    residuals     numbers: how many of true − predicted lie between given edges
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .metric_intervals import LEVEL, drawn
from .prediction_metrics import NUMBERS, PROBABILITIES, Predicted, missing

RATES = np.linspace(0, 1, 41)  # false-positive rates of a ROC curve
STEPS = np.arange(-3, 3.25, 0.5)  # edges between residuals, times their root mean square
GROUPS, LEAST = 10, 5  # groups of a calibration, and the samples that one has at least
NUMBERS_OF_ONE = len(RATES) + 3 * GROUPS  # in the curves of one model, at most (a fit has 4 a group, and no ROC)
_RESAMPLES = 200  # of the band around a ROC curve, which is looked at


def curves(p: Predicted, edges: np.ndarray = STEPS) -> dict[str, Any]:
    """The curves of some predictions, by name; None where one is not defined. `edges`: between residuals."""
    whole = len(p.y) > 0 and bool(np.isfinite(p.said).all())
    if p.kind == NUMBERS:
        return {"fit": fit(p) if whole else None, "residuals": residuals(p, edges) if whole else None}
    found = None if missing("auroc", p) else _short(roc(p, np.ones((len(p.y), 1)))[:, 0])
    return {"roc": found} | ({"calibration": calibration(p) if whole else None} if p.kind == PROBABILITIES else {})


def roc(p: Predicted, w: np.ndarray) -> np.ndarray:
    """[rates, b] the share of a class that is found at each of RATES under each column of weights [n, b]; between two
    scores on the straight line, and where the curve jumps, the upper end. NaN where there is one class only."""
    k = p.said.shape[1]
    classes = [1] if k == 2 else np.unique(p.y)
    found: np.ndarray = np.mean([_of_class(p.y == c, p.said[:, c], w) for c in classes], axis=0)
    return found


def _of_class(positive: np.ndarray, score: np.ndarray, w: np.ndarray) -> np.ndarray:
    order = np.argsort(-score, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(score[order]) != 0, True))  # the last sample of each score
    hits, alarms = (np.cumsum(w[order] * part[order, None], 0)[ends] for part in (positive, ~positive))
    with np.errstate(invalid="ignore"):
        true, false = (np.vstack([np.zeros((1, w.shape[1])), part / part[-1]]) for part in (hits, alarms))
    return np.stack([np.interp(RATES, x, y) for x, y in zip(false.T, true.T, strict=True)], 1)


def roc_band(p: Predicted, counts: np.ndarray, seed: int) -> tuple[list[float], list[float]] | None:
    """The lower and upper end of a ROC curve at each of RATES, over resamples of each client's samples; for two classes
    only, and None where most resamples have one class."""
    if p.said.shape[1] != 2 or missing("auroc", p):
        return None
    found = np.concatenate([roc(p, w) for w in drawn(counts, _RESAMPLES, seed)], axis=1)
    found = found[:, np.isfinite(found).all(0)]
    if found.shape[1] <= _RESAMPLES / 2:
        return None
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
    return _short(low), _short(high)


def calibration(p: Predicted) -> list[list[float]]:
    """By group of samples of like probability: its mean, how often it comes true, how many samples."""
    two = p.said.shape[1] == 2
    probability, true = (p.said[:, 1], p.y == 1) if two else (p.confidence, p.first == p.y)
    return [[*_short(np.array([probability[g].mean(), true[g].mean()])), len(g)] for g in _groups(probability)]


def fit(p: Predicted) -> list[list[float]]:
    """By group of samples of like prediction: its mean, the mean of what is true, the standard deviation of what is
    true around the predictions, how many samples."""
    off = p.y - p.said
    return [[float(v) for v in (p.said[g].mean(), p.y[g].mean(), off[g].std(), len(g))] for g in _groups(p.said)]


def residuals(p: Predicted, edges: np.ndarray) -> list[int]:
    """How many of true − predicted lie below the first edge, between each two, and above the last."""
    at = np.searchsorted(edges, p.y - p.said, side="right")
    found: list[int] = np.bincount(at, minlength=len(edges) + 1).tolist()
    return found


def _groups(score: np.ndarray) -> Iterator[np.ndarray]:
    """Samples by rising score, in at most GROUPS groups of about the same size; those of equal score stay together."""
    n, order, start = len(score), np.argsort(score, kind="stable"), 0
    ranked, size = score[order], max(LEAST, -(-n // GROUPS))
    while n - start >= LEAST:
        end = int(np.searchsorted(ranked, ranked[min(start + size, n) - 1], side="right"))
        end = end if n - end >= LEAST else n  # too few for a group of their own
        yield order[start:end]
        start = end


def _short(values: np.ndarray) -> list[float]:
    """Four digits: more than a drawing shows."""
    return [round(float(v), 4) for v in values]
