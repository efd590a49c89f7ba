"""The metrics of a run, as metrics.json has them: of each client, averaged over clients, pooled over all samples.

Averaged: every client counts alike, and the interval is over clients (who else might have taken part?). Pooled: every
sample counts alike, and the interval is over each client's samples. A client for which a metric is not defined is left
out of its mean and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .metric_intervals import LEVEL, MOST, intervals, resamples, values
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

ROOM = 100_000  # numbers of all clients' confusion matrices; with more of them only the pooled one is kept
NO_PROBABILITIES = "outputs are scores, no probabilities: there is no log loss, Brier score or calibration"


def metric_table(
    models: Mapping[str, Sequence[Predicted]], names: Sequence[str], class_names: Sequence[str], seed: int
) -> dict[str, Any]:
    """What metrics.json holds of predictions by model and client; `names` are the clients', `class_names` in the order
    of the classes (none for numbers)."""
    some = next(each for each in models.values())
    kind, classes = some[0].kind, (len(class_names) or None)
    shown, samples = fitting(kind, classes), sum(len(p.y) for p in some)
    wide = max((p.said.shape[1] for p in some), default=0) if kind != NUMBERS else 0
    small = kind != NUMBERS and len(some) * wide**2 <= ROOM
    like = {model: next(other for other in models if models[other] is models[model]) for model in models}
    pooled = {model: together(models[model]) for model in dict.fromkeys(like.values())}
    whole = {model: p for model, p in pooled.items() if _whole(p)}
    ranges = intervals(shown, whole, np.array([len(p.y) for p in some]), seed) if whole else {}
    found = {model: _one(models[model], p, ranges.get(model, {}), names, shown, small) for model, p in pooled.items()}
    return {
        "kind": kind,
        "metrics": {name: {"title": METRICS[name].title, "higher": METRICS[name].higher} for name in shown},
        "class_names": list(class_names),
        "positive": class_names[1] if classes == 2 else None,
        "clients": len(some),
        "samples": samples,
        "level": LEVEL,
        "resamples": {"averaged": MOST, "pooled": resamples(samples, wide or None)},
        "notes": _notes(some, shown, kind),
        "models": {model: found[other] for model, other in like.items()},
    }


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
    small: bool,
) -> Any:
    """The metrics of one model."""
    found = [values(shown, p) for p in each]
    rows: list[dict[str, Any]] = []
    for name, p, own in zip(names, each, found, strict=True):
        rows.append({"name": name, "samples": len(p.y), **own})
        if small:
            rows[-1]["confusion"] = confusion(p) if len(p.y) and _whole(p) else None
    return {
        "averaged": {name: _averaged([own[name] for own in found]) for name in shown},
        "pooled": {name: _pooled(one, ranges.get(name)) for name, one in values(shown, pooled).items()},
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
