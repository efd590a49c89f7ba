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


# What a client may be served with, by the share of its personal model; the rest is the global one, parameter by
# parameter. Of equals the first is taken.
SHARES = {"personal": 1.0, "mix75": 0.75, "mix50": 0.5, "mix25": 0.25, "global": 0.0}


def score_ranges(classes: bool) -> dict[str, tuple[float, float]]:
    """What a score can be: what lies outside is no score, or one of a model that has lost its mind. By the last word of
    its name; accuracy is R² where there are no classes."""
    share = (0.0, 1.0) if classes else (-1e6, 1.0)
    return {"accuracy": share, "merit": share, "loss": (0.0, 1e9), "steps": (0.0, 1e9), "samples": (0.0, 2.0**31)}


def expected_gains(scores: Scores) -> dict[str, np.ndarray]:
    """By model what each client [m] may expect to gain by it over its personal model: empirical Bayes on validation
    data. A client with few samples is thought to be like the others, one with many is taken at its word.

        g_i   mean over client i's n_i validation samples of (merit of a model − merit of the personal one), by model
        Σ     covariance between models of one sample's differences, pooled over clients: g_i is off by Σ/n_i by chance
        μ     mean of g_i over clients
        T     covariance of g_i over clients − Σ · mean of 1/n_i, without its negative eigenvalues: how clients differ
        expected gains = μ + T (T + Σ/n_i)⁻¹ (g_i − μ), and μ for a client without validation samples

    The merit of a model on a sample is 1 where the class is right and else 0, or what the user's own metric says; for
    regression 1 − squared error / variance of the client's training targets. Why it is not the loss: see
    docs/comparing.md. Empty where nobody has validation samples.
    """
    n = np.nan_to_num(scores.get("validation/samples", np.zeros(1)))
    there = (n > 0) & ~np.isnan(scores.get("personal/validation/merit", np.full(len(n), np.nan)))  # a site may keep it
    if not there.any():
        return {}
    models = [m for m in list(SHARES)[1:] if f"{m}/validation/merit" in scores]
    own = scores["personal/validation/merit"][there]
    g = np.stack([scores[f"{m}/validation/merit"][there] - own for m in models], axis=1)
    expected = np.tile(g.mean(0), (len(n), 1))
    expected[there] += _true_part(g - g.mean(0), _chance(scores, models, n, there), n[there])
    return {"personal": np.zeros(len(n)), **dict(zip(models, expected.T, strict=True))}


def _chance(scores: Scores, models: list[str], n: np.ndarray, there: np.ndarray) -> np.ndarray | None:
    """Σ; None where everyone has one sample, which says nothing of chance."""
    if (spare := (n[there] - 1).sum()) == 0:
        return None
    sums = [[float((n * scores[covariance(a, b)])[there].sum()) for b in models] for a in models]
    return np.array(sums) / float(spare)


def covariance(a: str, b: str) -> str:
    """What the covariance [m] of two models' differences from the personal one over validation samples is called."""
    first, second = sorted((a, b), key=list(SHARES).index)
    return f"{first}&{second}/validation/covariance"


def _true_part(off: np.ndarray, chance: np.ndarray | None, n: np.ndarray) -> np.ndarray:
    """[m, k] what of g_i − μ is not chance: T (T + Σ/n_i)⁻¹ (g_i − μ)."""
    if chance is None or len(off) < 2:
        return np.zeros_like(off)
    size, vectors = np.linalg.eigh(off.T @ off / (len(off) - 1) - chance * (1 / n).mean())
    differ = (vectors * np.maximum(size, 0.0)) @ vectors.T
    sizes, at = np.unique(n, return_inverse=True)
    factor = differ @ np.linalg.pinv(differ + chance / sizes[:, None, None], rcond=1e-10, hermitian=True)
    found: np.ndarray = np.einsum("mij,mj->mi", factor[at], off)
    return found


def choose(scores: Scores) -> np.ndarray:
    """[m] which model each client takes, by its name in SHARES: the one with the highest expected gain.

    With one model there is no choice. Where nobody has validation data everyone takes its personal model, which was
    made for it. Test scores are not looked at.
    """
    some = next(iter(scores.values()))
    for model, other in (("personal", "global"), ("global", "personal")):
        if f"{other}/test/loss" not in scores:
            return np.full(len(some), model)
    gains = expected_gains(scores) or {"personal": np.zeros(len(some))}
    picked: np.ndarray = np.array(list(gains))[np.argmax(list(gains.values()), axis=0)]
    return picked


def unguided(scores: Scores) -> list[str]:
    """A warning where there is a choice to make and nothing to make it by."""
    two = all(f"{model}/test/loss" in scores for model in ("personal", "global"))
    if not two or expected_gains(scores):
        return []
    return [
        "no client has validation data, so that nothing says which of its models is better: every client takes its "
        "personal one. Set samples aside with --parts."
    ]


def better_of_two(scores: Scores, part: str) -> np.ndarray:
    """[m] personal or global, whichever has the better accuracy (then loss) on a part of each client's data: as papers
    define a hybrid model, on test data the oracle's choice. A client without such samples takes its personal model."""
    some = next(iter(scores.values()))
    for model, other in (("personal", "global"), ("global", "personal")):
        if f"{other}/{part}/accuracy" not in scores:
            return np.full(len(some), model)
    own, common = (scores[f"{m}/{part}/accuracy"] for m in ("personal", "global"))
    lower = scores[f"personal/{part}/loss"] <= scores[f"global/{part}/loss"]
    return np.where(np.isnan(own) | (own > common) | ((own == common) & lower), "personal", "global")


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
    """What the chosen models are expected to be worth (see `expected_gains`), in the mean over benign clients with
    validation data: what a round is chosen by, and what a trial is scored by.

    Mean validation accuracy where there is one model. Where there are several, that of the chosen ones would be too
    high, as they were chosen by it; the expected gain is not, as chance has been taken off it.
    """
    base = "personal" if "personal/validation/merit" in scores else "global"
    merit = scores[f"{base}/validation/merit"]
    if gains := expected_gains(scores):
        merit = merit + np.max(list(gains.values()), axis=0)
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
