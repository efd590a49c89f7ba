"""The metrics of a run, as metrics.json has them: of each client, averaged over clients, pooled over all samples.

Averaged: every client counts alike, and the interval is over clients (who else might have taken part?). Pooled: every
sample counts alike, and the interval is over each client's samples. A client for which a metric is not defined is left
out of its mean and counted.

Beside the numbers are curves at fixed places (prediction_curves.py), pooled and of each client, and of each client's
chosen model an interval over its own samples. What is kept of every client is bounded: of very many clients there are
numbers only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .metric_intervals import LEVEL, MOST, client_resamples, intervals, resamples, values
from .prediction_curves import NUMBERS_OF_ONE, RATES, STEPS, curves, roc_band
from .prediction_metrics import (
    METRICS,
    NUMBERS,
    PROBABILITIES,
    SCORES,
    Predicted,
    confusion,
    fitting,
    missing,
    reliability,
    together,
)
from .significance import interval

ROOM = 100_000  # numbers of all clients' confusion matrices, or of their curves; of more only the pooled ones are kept
NO_PROBABILITIES = "outputs are scores, no probabilities: there is no log loss, Brier score or calibration"


def metric_table(
    models: Mapping[str, Sequence[Predicted]], names: Sequence[str], class_names: Sequence[str], seed: int
) -> dict[str, Any]:
    """What metrics.json holds of predictions by model and client; `names` are the clients', `class_names` in the order
    of the classes (none for numbers)."""
    some = next(each for each in models.values())
    kind, classes, counts = some[0].kind, (len(class_names) or None), np.array([len(p.y) for p in some])
    shown, samples = fitting(kind, classes), int(counts.sum())
    wide = max((p.said.shape[1] for p in some), default=0) if kind != NUMBERS else 0
    keep = _Keep(kind != NUMBERS and len(some) * wide**2 <= ROOM, len(some) * NUMBERS_OF_ONE <= ROOM)
    like = {model: next(other for other in models if models[other] is models[model]) for model in models}
    pooled = {model: together(models[model]) for model in dict.fromkeys(like.values())}
    whole = {model: p for model, p in pooled.items() if _whole(p)}
    ranges = intervals(shown, whole, counts, seed) if whole else {}
    sizes = [values(["rmse"], p)["rmse"] or 0.0 for p in whole.values()] if kind == NUMBERS else []
    edges = STEPS * (max(sizes, default=0.0) or 1.0)  # the same for all models: as wide as the worst of them needs
    found = {
        model: _one(models[model], p, ranges.get(model, {}), names, shown, keep, edges) for model, p in pooled.items()
    }
    for model, p in whole.items():
        if kind != NUMBERS and (band := roc_band(p, counts, seed)) is not None:
            found[model]["curves"] |= dict(zip(("roc_low", "roc_high"), band, strict=True))
    each_model = {model: found[other] for model, other in like.items()}
    if keep.curves and "chosen" in models:
        own = _with_intervals(each_model["chosen"]["clients"], models["chosen"], shown, seed)
        each_model["chosen"] = each_model["chosen"] | {"clients": own}
    draws = {"averaged": MOST, "pooled": resamples(samples, wide or None), "client": client_resamples(len(some))}
    return {
        "kind": kind,
        "metrics": {name: {"title": METRICS[name].title, "higher": METRICS[name].higher} for name in shown},
        "class_names": list(class_names),
        "positive": class_names[1] if classes == 2 else None,
        "clients": len(some),
        "samples": samples,
        "level": LEVEL,
        "resamples": draws,
        "places": {"residuals": edges.tolist()} if kind == NUMBERS else {"roc": RATES.round(6).tolist()},
        "notes": _notes(some, shown, kind),
        "models": each_model,
    }


class _Keep(NamedTuple):
    """What is kept of every client."""

    confusions: bool
    curves: bool


def _with_intervals(
    rows: Sequence[dict[str, Any]], each: Sequence[Predicted], shown: Sequence[str], seed: int
) -> list[dict[str, Any]]:
    """The clients' rows with their own intervals, over each client's samples."""
    times = client_resamples(len(each))
    return [
        row
        | ({"intervals": intervals(shown, {"own": p}, np.array([len(p.y)]), seed, times)["own"]} if _whole(p) else {})
        for row, p in zip(rows, each, strict=True)
    ]


def _notes(each: Sequence[Predicted], shown: Sequence[str], kind: str) -> list[str]:
    """Which metrics are not there, for how many clients and why: "AUROC, AUPRC: 3 of 57 clients have one class only".
    It depends on what is true, so it is the same for all models."""
    why: dict[str, list[str]] = {}
    empty = sum(len(p.y) == 0 for p in each)
    for name in shown:
        for reason, count in Counter(missing(name, p) for p in each if len(p.y)).items():
            if reason:
                why.setdefault(f"{count} of {len(each)} clients have {reason}", []).append(METRICS[name].title)
    said = [f"{', '.join(titles)}: {reason}" for reason, titles in why.items()]
    said += [f"{empty} of {len(each)} clients have no test samples"] if empty else []
    return said + ([NO_PROBABILITIES] if kind == SCORES else [])


def _one(
    each: Sequence[Predicted],
    pooled: Predicted,
    ranges: Mapping[str, tuple[float, float]],
    names: Sequence[str],
    shown: Sequence[str],
    keep: _Keep,
    edges: np.ndarray,
) -> Any:
    """The metrics of one model."""
    found, whole = [values(shown, p) for p in each], values(shown, pooled)
    rows: list[dict[str, Any]] = []
    for name, p, own in zip(names, each, found, strict=True):
        rows.append({"name": name, "samples": len(p.y), **own})
        if keep.confusions:
            rows[-1]["confusion"] = confusion(p) if _whole(p) else None
        if keep.curves:
            rows[-1]["curves"] = curves(p, edges)
            rows[-1]["missing"] = {name: why for name in shown if (why := missing(name, p))}
    return {
        "averaged": {name: _averaged([own[name] for own in found]) for name in shown},
        "pooled": {name: _pooled(one, ranges.get(name)) for name, one in whole.items()},
        "curves": curves(pooled, edges),
        "confusion": confusion(pooled) if pooled.kind != NUMBERS and _whole(pooled) else None,
        "reliability": reliability(pooled) if pooled.kind == PROBABILITIES and _whole(pooled) else None,
        "clients": rows,
    }


def _whole(p: Predicted) -> bool:
    return len(p.y) > 0 and bool(np.isfinite(p.said).all())


def _averaged(found: Sequence[float | None]) -> dict[str, Any]:
    known = [v for v in found if v is not None]
    low, high = interval(known, LEVEL, MOST) or (None, None)
    return {"value": float(np.mean(known)) if known else None, "low": low, "high": high, "clients": len(known)}


def _pooled(value: float | None, between: tuple[float, float] | None) -> dict[str, Any]:
    low, high = between or (None, None)
    return {"value": value, "low": low, "high": high}
