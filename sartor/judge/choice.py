"""Which model a client takes: its personal one, the global one or a mixture of the two, by its validation data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

Scores = Mapping[str, np.ndarray]  # "personal/test/accuracy" and so on → [m]; NaN where a client has no such samples

# What a client may be served with, by the share of its personal model; the rest is the global one, parameter by
# parameter. Of equals the first is taken.
SHARES = {"personal": 1.0, "mix75": 0.75, "mix50": 0.5, "mix25": 0.25, "global": 0.0}


@dataclass(frozen=True)
class Belief:
    """What clients may believe of their models' gains over the personal one: a normal distribution each."""

    models: list[str]  # [k], without the personal one
    gains: np.ndarray  # [m, k] their means
    spreads: np.ndarray  # [s, k, k] square roots of their covariances, one for each number of samples
    at: np.ndarray  # [m] which of them is a client's


def belief(scores: Scores) -> Belief | None:
    """What validation data say of each client's models, by empirical Bayes: a client with few samples is thought to be
    like the others, one with many is taken at its word.

        g_i   mean over client i's n_i validation samples of (merit of a model − merit of the personal one), by model
        Σ     covariance between models of one sample's differences, pooled over clients: g_i is off by Σ/n_i by chance
        T     covariance of g_i over clients, weighted by n_i, without what chance explains and without its negative
              eigenvalues: how clients differ
        μ     mean of g_i, weighted by 1/(tr T + tr Σ/n_i), and V its own covariance
        B_i   T (T + Σ/n_i)⁻¹; 0 for a client without validation samples
        gains of client i ~ N( μ + B_i (g_i − μ),  T − B_i T + (I − B_i) V (I − B_i)ᵀ )

    The merit of a model on a sample is 1 where the class is right and else 0, or what the user's own metric says; for
    regression 1 − squared error / variance of the client's training targets. Why it is not the loss: see
    docs/comparing.md. None where nobody has validation samples.
    """
    n = np.nan_to_num(scores.get("validation/samples", np.zeros(1)))
    there = (n > 0) & ~np.isnan(scores.get("personal/validation/merit", np.full(len(n), np.nan)))  # a site may keep it
    if not there.any():
        return None
    models = [m for m in list(SHARES)[1:] if f"{m}/validation/merit" in scores]
    own = scores["personal/validation/merit"][there]
    g = np.stack([scores[f"{m}/validation/merit"][there] - own for m in models], axis=1)
    differ, chance = _truth_and_chance(g, n[there], scores, models, there)
    weight = 1 / np.maximum(np.trace(differ) + np.trace(chance) / n[there], 1e-300)
    weight = weight / weight.sum()
    mu = weight @ g
    of_mu = differ * (weight**2).sum() + chance * (weight**2 / n[there]).sum()
    sizes, at = np.unique(np.where(there, n, 0.0), return_inverse=True)
    heard = differ + chance / np.maximum(sizes, 1.0)[:, None, None]
    share = differ @ np.linalg.pinv(heard, rcond=1e-10, hermitian=True) * (sizes > 0)[:, None, None]  # B
    rest = np.eye(len(models)) - share
    gains = np.tile(mu, (len(n), 1))
    gains[there] += np.einsum("mij,mj->mi", share[at[there]], g - mu)
    return Belief(models, gains, _root(rest @ differ + rest @ of_mu @ rest.transpose(0, 2, 1)), at)


def _truth_and_chance(
    g: np.ndarray, n: np.ndarray, scores: Scores, models: list[str], there: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """T and Σ. One sample each says nothing of chance: then all that clients differ by is taken for it."""
    total = n.sum()
    if (spare := (n - 1).sum()) == 0:
        return np.zeros((g.shape[1],) * 2), np.cov(g.T, ddof=min(len(g) - 1, 1)).reshape((g.shape[1],) * 2)
    sums = [[float((n * scores[covariance(a, b)][there]).sum()) for b in models] for a in models]
    chance = np.array(sums) / float(spare)
    if len(g) < 2:
        return np.zeros_like(chance), chance
    off = g - (n / total) @ g
    over = (off.T * (n / total)) @ off - chance * (len(g) - 1) / total
    size, vectors = np.linalg.eigh(over / (1 - ((n / total) ** 2).sum()))
    return (vectors * np.maximum(size, 0.0)) @ vectors.T, chance


def _root(square: np.ndarray) -> np.ndarray:
    """The symmetric square roots of matrices [s, k, k] that rounding may have made a little less than semidefinite."""
    size, vectors = np.linalg.eigh((square + square.transpose(0, 2, 1)) / 2)
    found: np.ndarray = (vectors * np.sqrt(np.maximum(size, 0.0))[:, None, :]) @ vectors.transpose(0, 2, 1)
    return found


def expected_gains(scores: Scores) -> dict[str, np.ndarray]:
    """By model what each client [m] may expect to gain by it over its personal model (see `belief`). Empty where nobody
    has validation samples."""
    if (found := belief(scores)) is None:
        return {}
    return {"personal": np.zeros(len(found.gains)), **dict(zip(found.models, found.gains.T, strict=True))}


def covariance(a: str, b: str) -> str:
    """What the covariance [m] of two models' differences from the personal one over validation samples is called."""
    first, second = sorted((a, b), key=list(SHARES).index)
    return f"{first}&{second}/validation/covariance"


def choose(scores: Scores) -> np.ndarray:
    """[m] which model each client takes, by its name in SHARES.

    Which share of the personal model is best is uncertain. A client takes the share that is nearest to the mean of what
    it may be (`belief`), but none that is beyond doubt (three standard deviations) behind the one with the highest
    expected gain: mixtures of networks can be worse than both. So a client that cannot know takes a mixture, which is
    seldom far off, and one that knows its best model takes that. Of two as near it takes the one that promises more.

    With one model there is no choice. Where nobody has validation data everyone takes its personal model, which was
    made for it. Test scores are not looked at.
    """
    some = next(iter(scores.values()))
    for model, other in (("personal", "global"), ("global", "personal")):
        if f"{other}/test/loss" not in scores:
            return np.full(len(some), model)
    if (found := belief(scores)) is None:
        return np.full(len(some), "personal")
    few = max(1, _AT_ONCE // _DRAWS)
    picked = [_nearest(found, slice(i, i + few)) for i in range(0, len(some), few)]
    out: np.ndarray = np.array(["personal", *found.models])[np.concatenate(picked)]
    return out


_DRAWS, _AT_ONCE = 128, 1_000_000
_BEYOND_DOUBT = 3.0


def _nearest(found: Belief, clients: slice) -> np.ndarray:
    """[c] for some clients the place of the model taken, 0 being the personal one."""
    half = np.random.default_rng(0).standard_normal((_DRAWS // 2, len(found.models)))  # the same for all clients
    mean, spread = found.gains[clients], found.spreads[found.at[clients]]
    by_chance = np.einsum("cij,zj->czi", spread, np.concatenate([half, -half]))
    drawn = np.pad(mean[:, None] + by_chance, ((0, 0), (0, 0), (1, 0)))  # [c, draws, k + 1]: the personal model gains 0
    shares = np.array([1.0, *(SHARES[m] for m in found.models)])
    away = np.abs(shares - shares[drawn.argmax(2)].mean(1)[:, None])
    expected = np.pad(mean, ((0, 0), (1, 0)))
    best = expected.argmax(1)
    root = np.pad(spread, ((0, 0), (1, 0), (0, 0)))
    apart = root - np.take_along_axis(root, best[:, None, None], 1)
    behind = expected.max(1, keepdims=True) - expected
    away[behind > _BEYOND_DOUBT * np.sqrt((apart**2).sum(2))] = np.inf
    near = away <= away.min(1, keepdims=True) + 1e-9
    place: np.ndarray = np.where(near, expected, -np.inf).argmax(1)
    return place


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
