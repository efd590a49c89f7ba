"""From per-client scores to numbers a person can compare, over benign clients. Clients without test data are left out
and counted."""

from __future__ import annotations

import numpy as np

from .choice import SHARES, Scores, better_of_two, choose, expected_gains
from .fairness import entropy, gini, highest, jain, lowest

MODELS = ("personal", "global", "chosen")
SHOWN = ("global", "personal", "chosen")  # from left to right in tables and charts
BEST_FIRST = SHOWN[::-1]
ORACLE = "oracle"  # chosen on test data, as some papers do: only where it is asked for, and never under another name
Numbers = dict[str, float | None]  # None: not defined for these scores


def score_ranges(classes: bool) -> dict[str, tuple[float, float]]:
    """What a score can be: what lies outside is no score, or one of a model that has lost its mind. By the last word of
    its name; accuracy is R² where there are no classes."""
    share = (0.0, 1.0) if classes else (-1e6, 1.0)
    return {"accuracy": share, "merit": share, "loss": (0.0, 1e9), "steps": (0.0, 1e9), "samples": (0.0, 2.0**31)}


def with_chosen(scores: Scores, oracle: bool = False) -> dict[str, np.ndarray]:
    """The scores with those of the chosen model beside them, and those of the oracle's choice where it is asked for."""
    out = {**scores, **_of_picked(scores, "chosen", choose(scores))}
    return out | (_of_picked(scores, ORACLE, better_of_two(scores, "test")) if oracle else {})


def with_hybrid(scores: Scores) -> dict[str, np.ndarray]:
    """As `with_chosen` and its oracle, with the choice that papers make: the better of the two models."""
    found = {name: better_of_two(scores, part) for name, part in (("chosen", "validation"), (ORACLE, "test"))}
    return {**scores, **{k: v for name, picked in found.items() for k, v in _of_picked(scores, name, picked).items()}}


def _of_picked(scores: Scores, name: str, picked: np.ndarray) -> dict[str, np.ndarray]:
    """The scores of the models that were picked [m], under one name."""
    out = {}
    for rest in (f"{part}/{what}" for part in ("validation", "test") for what in ("loss", "accuracy")):
        kinds = [m for m in SHARES if f"{m}/{rest}" in scores]
        if kinds:
            out[f"{name}/{rest}"] = np.select([picked == m for m in kinds], [scores[f"{m}/{rest}"] for m in kinds])
    return out


def validated(scores: Scores, benign: np.ndarray | None = None) -> float | None:
    """What the chosen models are expected to be worth (see `belief`), in the mean over benign clients with
    validation data: what a round is chosen by, and what a trial is scored by.

    Mean validation accuracy where there is one model. Where there are several, that of the chosen ones would be too
    high, as they were chosen by it; the expected gain is not, as chance has been taken off it.
    """
    base = "personal" if "personal/validation/merit" in scores else "global"
    merit = scores[f"{base}/validation/merit"]
    if gains := expected_gains(scores):
        picked = choose(scores)
        merit = merit + np.select([picked == m for m in gains], list(gains.values()))
    merit = merit[~np.isnan(merit) & (True if benign is None else benign)]
    return float(merit.mean()) if len(merit) else None


def summarise(scores: Scores, benign: np.ndarray | None = None) -> dict[str, Numbers | None]:
    """For each model: accuracy mean, std, worst 10%, loss mean and variance over benign clients; None if there is none.

    `scores` may hold the chosen model's already; what a line of the history needs, no more.
    """
    out: dict[str, Numbers | None] = {}
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


def means_alone(block: Numbers | None) -> Numbers | None:
    """A model's numbers where only means over clients are known, and nobody's own: nothing says how they are spread."""
    known = ("accuracy_mean", "loss_mean", "clients_scored")
    return None if block is None else {k: v if k in known else None for k, v in block.items()}


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
