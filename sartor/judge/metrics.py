"""From per-client scores to numbers a person can compare. Clients with an empty test part are left out and counted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Scores = Mapping[str, np.ndarray]  # "personal/test/accuracy" and so on → [m]; NaN where a client has no such samples
MODELS = ("personal", "global", "chosen")


def worst(values: np.ndarray, share: float = 0.1) -> float:
    """The mean of the lowest `share` of clients, at least one."""
    count = max(1, int(np.ceil(share * len(values))))
    return float(np.sort(values)[:count].mean())


def choose(scores: Scores) -> np.ndarray:
    """[m] True where the client takes its personal model, False where the global one: the better on validation data.

    Accuracy first, then loss; a client without validation samples takes its personal model. With one model there is
    no choice.
    """
    some = next(iter(scores.values()))
    if "global/validation/accuracy" not in scores:
        return np.ones(len(some), dtype=bool)
    if "personal/validation/accuracy" not in scores:
        return np.zeros(len(some), dtype=bool)
    own, common = (scores[f"{m}/validation/accuracy"] for m in ("personal", "global"))
    tie = scores["personal/validation/loss"] <= scores["global/validation/loss"]
    picked: np.ndarray = np.isnan(own) | (own > common) | ((own == common) & tie)
    return picked


def with_chosen(scores: Scores) -> dict[str, np.ndarray]:
    """The scores with those of the chosen model beside them."""
    pick = choose(scores)
    out = dict(scores)
    for key in [k for m in ("personal", "global") for k in scores if k.startswith(f"{m}/")]:
        rest = key.split("/", 1)[1]
        own = scores.get(f"personal/{rest}", scores.get(f"global/{rest}"))
        common = scores.get(f"global/{rest}", own)
        assert own is not None and common is not None
        out[f"chosen/{rest}"] = np.where(pick, own, common)
    return out


def summarise(scores: Scores) -> dict[str, dict[str, float] | None]:
    """For each model, over clients: accuracy mean, std, worst 10%, loss mean and variance; None if there is none."""
    full = with_chosen(scores)
    out: dict[str, dict[str, float] | None] = {}
    for model in MODELS:
        if f"{model}/test/accuracy" not in full:
            out[model] = None
            continue
        accuracy, loss = full[f"{model}/test/accuracy"], full[f"{model}/test/loss"]
        there = ~np.isnan(accuracy)
        accuracy, loss = accuracy[there], loss[there]
        out[model] = (
            {
                "accuracy_mean": float(accuracy.mean()),
                "accuracy_std": float(accuracy.std()),
                "accuracy_worst10": worst(accuracy),
                "loss_mean": float(loss.mean()),
                "loss_var": float(loss.var()),
                "clients_scored": int(there.sum()),
            }
            if there.any()
            else None
        )
    return out


def gains(ours: np.ndarray, theirs: np.ndarray) -> tuple[int, int]:
    """How many clients are better and how many worse off than with another model, by test accuracy."""
    there = ~(np.isnan(ours) | np.isnan(theirs))
    return int((ours[there] > theirs[there]).sum()), int((ours[there] < theirs[there]).sum())
