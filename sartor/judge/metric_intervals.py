"""Metrics of weighted samples, many weightings at once: of every client, and of a thousand resamples of all samples.

A resample draws each client's samples anew with replacement, as many as it has; how often a sample was drawn is its
weight. A metric of weights [n, b] is a few matrix products. The values are scikit-learn's to the last digits
(tests/judge/test_prediction_metrics.py); that would take 40 ms for a client with ten classes, and this takes less than
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..seeds import stream
from .prediction_metrics import BINS, NUMBERS, PROBABILITIES, Predicted, bins_of, brier_of_each, missing

LEVEL = 0.95
MOST, LEAST = 1000, 100  # resamples
_WORK = 1 << 25  # samples times classes times resamples
_AT_ONCE = 1 << 21  # numbers that are held at once
_OF_CLIENTS = 20_000  # resamples of all clients together, where each has intervals of its own


def resamples(samples: int, classes: int | None) -> int:
    """How many resamples are drawn: as many as take a second or so."""
    return int(np.clip(_WORK // max(1, samples * (classes or 1)), LEAST, MOST))


def client_resamples(clients: int) -> int:
    """The same for each client's own interval."""
    return int(np.clip(_OF_CLIENTS // max(1, clients), LEAST, MOST))


def drawn(counts: np.ndarray, times: int, seed: int) -> Iterator[np.ndarray]:
    """Weights [n, b] of all samples, client after client, some resamples at a time; `times` in all."""
    n = int(counts.sum())
    if not n:
        return
    first, size = (np.repeat(v, counts)[:, None] for v in (np.cumsum(counts) - counts, counts))
    draw, each = stream(seed, "metrics"), max(1, _AT_ONCE // n)
    for at in range(0, times, each):
        b = min(each, times - at)
        picked = (first + (draw.random((n, b)) * size).astype(np.int64)) * b + np.arange(b)
        yield np.bincount(picked.ravel(), minlength=n * b).reshape(n, b).astype(np.float64)


def intervals(
    names: Sequence[str], models: Mapping[str, Predicted], counts: np.ndarray, seed: int, times: int | None = None
) -> dict[str, dict[str, tuple[float, float]]]:
    """By model and metric the percentile interval of its value over all clients' samples, which lie one client after
    the other and are the same for all models; a metric that most resamples do not define has none. `times`: how many
    resamples, in place of what `resamples` says."""
    found: dict[str, list[dict[str, np.ndarray]]] = {model: [] for model in models}
    some = next(iter(models.values()))
    times = times or resamples(len(some.y), None if some.kind == NUMBERS else some.said.shape[1])
    known = {model: [name for name in names if not missing(name, p)] for model, p in models.items()}
    for w in drawn(counts, times, seed):
        for model, p in models.items():
            found[model].append(weighted(known[model], p, w))
    return {model: _ranges(known[model], each, times) for model, each in found.items()}


def _ranges(names: Sequence[str], found: Sequence[dict[str, np.ndarray]], times: int) -> dict[str, tuple[float, float]]:
    out = {}
    for name in names if found else ():
        each = np.concatenate([f[name] for f in found])
        each = each[np.isfinite(each)]
        if len(each) > times / 2:
            low, high = np.quantile(each, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
            out[name] = float(low), float(high)
    return out


def values(names: Sequence[str], p: Predicted) -> dict[str, float | None]:
    """By metric its value; None where it is not defined (`missing` says why)."""
    known = [name for name in names if not missing(name, p)]
    found = weighted(known, p, np.ones((len(p.y), 1))) if known else {}
    return {name: float(found[name][0]) if name in found else None for name in names}


def weighted(names: Sequence[str], p: Predicted, w: np.ndarray) -> dict[str, np.ndarray]:
    """By metric its value [b] under each column of weights [n, b]; NaN where it is not defined."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = _numbers(p, w) if p.kind == NUMBERS else _classes(names, p, w)
    return {name: found[name] for name in names}


def _numbers(p: Predicted, w: np.ndarray) -> dict[str, np.ndarray]:
    off, total = p.said - p.y, w.sum(0)
    around = p.y - p.y.mean()  # the variance of what is far from zero would be lost in rounding
    square = off**2 @ w
    spread = around**2 @ w - (around @ w) ** 2 / total
    return {"mae": np.abs(off) @ w / total, "rmse": np.sqrt(square / total), "r2": 1 - square / spread}


def _classes(names: Sequence[str], p: Predicted, w: np.ndarray) -> dict[str, np.ndarray]:
    k, total, predicted = p.said.shape[1], w.sum(0), p.classes
    right, each = predicted == p.y, np.arange(k)[:, None]
    true, said, hits = ((rows.astype(float) @ w) for rows in (p.y == each, predicted == each, (p.y == each) & right))
    out = {
        "accuracy": right @ w / total,
        "balanced-accuracy": _mean(hits / true),
        "f1": _mean(2 * hits / (true + said)),
    }
    if k == 2:
        out |= {"specificity": hits[0] / true[0], "sensitivity": hits[1] / true[1]}
    if "auroc" in names or "auprc" in names:
        found = [_ranked(p.y == c, p.said[:, c], w, total) for c in ([1] if k == 2 else np.unique(p.y))]
        out |= {name: _mean(np.stack([one[i] for one in found])) for i, name in enumerate(("auroc", "auprc"))}
    if p.kind == PROBABILITIES:
        own = np.clip(p.said[np.arange(len(p.y)), p.y], np.finfo(p.said.dtype).eps, 1)
        over = (p.confidence - (p.first == p.y)) * (bins_of(p) == np.arange(BINS)[:, None])
        out |= {"log-loss": -np.log(own) @ w / total, "brier": brier_of_each(p) @ w / total}
        out |= {"ece": np.abs(over @ w).sum(0) / total}
    return out


def _mean(by_class: np.ndarray) -> np.ndarray:
    """[b] the mean over the classes [k, b] that have a value; NaN where none has."""
    there = np.isfinite(by_class)
    found: np.ndarray = np.where(there, by_class, 0.0).sum(0) / there.sum(0)
    return found


def _ranked(positive: np.ndarray, score: np.ndarray, w: np.ndarray, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """AUROC and AUPRC (average precision) [b] of one class against the rest, by falling score; samples of the same
    score are one step, and only steps with samples of the class are looked at. NaN where there is one class only."""
    order = np.argsort(-score, kind="stable")
    ranked, mine = score[order], positive[order]
    step = np.concatenate([[0], np.cumsum(ranked[1:] != ranked[:-1])])
    steps = np.unique(step[mine])
    first, last = np.searchsorted(step, steps), np.searchsorted(step, steps, side="right")
    before, reached = _sums_up_to(w[order], first, last)
    ours = np.add.reduceat(w[order[mine]], np.searchsorted(step[mine], steps), axis=0)
    above = np.cumsum(ours, 0)
    true = above[-1]
    wrong = (before - (above - ours)) + (reached - before - ours) / 2  # others that are ranked above, ties by half
    auroc = 1 - (ours * wrong).sum(0) / (true * (total - true))
    auprc = (ours * (above / np.where(reached > 0, reached, 1.0))).sum(0) / true
    return auroc, np.where(true < total, auprc, np.nan)


def _sums_up_to(rows: np.ndarray, *places: np.ndarray) -> list[np.ndarray]:
    """The sums [p, b] of all rows before each of these places. What lies between two of them is added up first, as few
    of many rows are asked for."""
    cuts = np.unique(np.concatenate([[0, len(rows)], *places]))
    sums = np.zeros((len(cuts), rows.shape[1]))
    np.cumsum(np.add.reduceat(rows, cuts[:-1], axis=0), 0, out=sums[1:])
    return [sums[np.searchsorted(cuts, at)] for at in places]
