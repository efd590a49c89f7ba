"""From per-client scores to numbers a person can compare, over benign clients. Clients without test data are left out
and counted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .fairness import entropy, gini, highest, jain, lowest

Scores = Mapping[str, np.ndarray]  # "personal/test/accuracy" and so on → [m]; NaN where a client has no such samples
MODELS = ("personal", "global", "chosen")
SHOWN = ("global", "personal", "chosen")  # from left to right in tables and charts
BEST_FIRST = SHOWN[::-1]
ORACLE = "oracle"  # chosen on test data, as some papers do: only where it is asked for, and never under another name
Numbers = dict[str, float | None]  # None: not defined for these scores


def score_ranges(classes: bool) -> dict[str, tuple[float, float]]:
    """What a score can be: what lies outside is no score, or one of a model that has lost its mind. By the last word of
    its name; accuracy is R² where there are no classes."""
    return {"accuracy": (0.0, 1.0) if classes else (-1e6, 1.0), "loss": (0.0, 1e9), "steps": (0.0, 1e9)}


def choose(scores: Scores, part: str = "validation") -> np.ndarray:
    """[m] True where the client takes its personal model, False where the global one: the better on validation data.

    Accuracy first, then loss; a client without validation samples takes its personal model. With one model there is
    no choice. On part="test" this is the oracle's choice.
    """
    some = next(iter(scores.values()))
    if f"global/{part}/accuracy" not in scores:
        return np.ones(len(some), dtype=bool)
    if f"personal/{part}/accuracy" not in scores:
        return np.zeros(len(some), dtype=bool)
    own, common = (scores[f"{m}/{part}/accuracy"] for m in ("personal", "global"))
    coupling = scores[f"personal/{part}/loss"] <= scores[f"global/{part}/loss"]
    picked: np.ndarray = np.isnan(own) | (own > common) | ((own == common) & coupling)
    return picked


def with_chosen(scores: Scores, oracle: bool = False) -> dict[str, np.ndarray]:
    """The scores with those of the chosen model beside them, and those of the oracle's choice where it is asked for."""
    out = dict(scores)
    for name, part in [("chosen", "validation"), *([(ORACLE, "test")] if oracle else [])]:
        pick = choose(scores, part)
        for key in [k for m in ("personal", "global") for k in scores if k.startswith(f"{m}/")]:
            rest = key.split("/", 1)[1]
            own = scores.get(f"personal/{rest}", scores.get(f"global/{rest}"))
            common = scores.get(f"global/{rest}", own)
            assert own is not None and common is not None
            out[f"{name}/{rest}"] = np.where(pick, own, common)
    return out


def validated(scores: Scores, benign: np.ndarray | None = None) -> float | None:
    """The mean validation accuracy of the chosen models over benign clients: what a round is chosen by."""
    accuracy = with_chosen(scores)["chosen/validation/accuracy"]
    accuracy = accuracy[~np.isnan(accuracy) & (True if benign is None else benign)]
    return float(accuracy.mean()) if len(accuracy) else None


def summarise(scores: Scores, benign: np.ndarray | None = None) -> dict[str, dict[str, float] | None]:
    """For each model: accuracy mean, std, worst 10%, loss mean and variance over benign clients; None if there is none.

    `scores` may hold the chosen model's already; what a line of the history needs, no more.
    """
    out: dict[str, dict[str, float] | None] = {}
    for model, (accuracy, loss, _) in _test_scores(scores, benign, None).items():
        out[model] = (
            {
                "accuracy_mean": float(accuracy.mean()),
                "accuracy_std": float(accuracy.std()),
                "accuracy_worst10": lowest(accuracy),
                "loss_mean": float(loss.mean()),
                "loss_var": float(loss.var()),
                "clients_scored": len(accuracy),
            }
            if len(accuracy)
            else None
        )
    return out


def judge(scores: Scores, counts: np.ndarray, benign: np.ndarray | None = None) -> dict[str, Numbers | None]:
    """`summarise`, and how the scores are spread over benign clients; pooled means are over test samples, `counts` [m].

    Worst is the low end of accuracy and the high end of loss.
    """
    out: dict[str, Numbers | None] = {}
    for model, brief in summarise(scores, benign).items():
        accuracy, loss, n = _test_scores(scores, benign, counts)[model]
        out[model] = (
            None
            if brief is None
            else {
                **brief,
                **_spread("accuracy", accuracy, n),
                "accuracy_best10": highest(accuracy),
                **_spread("loss", loss, n),
                "loss_best10": lowest(loss),
                "loss_worst10": highest(loss),
            }
        )
    return out


def _spread(name: str, values: np.ndarray, counts: np.ndarray) -> Numbers:
    found: Numbers = {
        "pooled": float((counts * values).sum() / counts.sum()),
        "std": float(values.std()),
        "var": float(values.var()),
        "min": float(values.min()),
        "max": float(values.max()),
        "jain": jain(values),
        "gini": gini(values),
        "entropy": entropy(values),
    }
    return {f"{name}_{k}": v for k, v in found.items()}


def _test_scores(
    scores: Scores, benign: np.ndarray | None, counts: np.ndarray | None
) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Accuracy, loss and weight of the benign clients with test data, by model; none where a method has no such model.

    Every model that there can be has a key, the oracle only where it was asked for.
    """
    full = scores if "chosen/test/accuracy" in scores else with_chosen(scores)
    none = np.zeros(0)
    out = {}
    for model in (*MODELS, *([ORACLE] if f"{ORACLE}/test/accuracy" in full else [])):
        accuracy, loss = full.get(f"{model}/test/accuracy", none), full.get(f"{model}/test/loss", none)
        there = ~np.isnan(accuracy) & (True if benign is None or not len(accuracy) else benign)
        out[model] = accuracy[there], loss[there], (none if counts is None else counts[: len(there)][there])
    return out


def gains(ours: np.ndarray, theirs: np.ndarray) -> tuple[int, int]:
    """How many clients are better and how many worse off than with another model, by test accuracy."""
    there = ~(np.isnan(ours) | np.isnan(theirs))
    return int((ours[there] > theirs[there]).sum()), int((ours[there] < theirs[there]).sum())
