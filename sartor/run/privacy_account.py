"""How much privacy a run has spent, by Opacus' accountants (the extra `privacy`).

Neighbouring: two federations are neighbours if one client's messages are there in one and nothing in their place in the
other ("add or remove one client"); its whole data are protected, not single samples. A message moves a sum by at most
C, the noise on the sum is zC.

What is composed depends on who may know the cohorts:
    noise at the server, --sampling poisson: every client takes part by a coin of its own, q = cohort/clients, and
        nobody learns who did: `rounds` times the Poisson-subsampled Gaussian mechanism, what the accountants are for
    anything else (cohorts of fixed size; a server that sees who sends): no gain from sampling is claimed. A client
        spends in the rounds in which it takes part, each a Gaussian mechanism; the one asked most often counts. (For
        fixed cohorts a gain is proved for replacing a client, with twice the sensitivity, and where clients remember
        nothing; Poisson's numbers would flatter them.)
A Poisson round to which nobody comes adds no noise. That may give it away, so its probability is counted into δ.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from ..core import Problem
from ..errors import SartorError, need, see
from ..wrappers.privacy import Privacy
from .rounds import draw_cohort

NEIGHBOURING = "add or remove one client"
ORDERS = [1 + x / 10 for x in range(1, 100)] + [*range(11, 64), 80, 96, 128, 192, 256, 384, 512]
_EMPTY = 0.01  # the share of δ that empty rounds may take
_LEAST = 0.05  # noise below which an accountant has nothing to say
_COARSE = 12  # orders from one that is tried first to the next
_FAR = 100.0  # an ε above this is no protection, and not worth the PRV accountant's memory


class CohortDraws(NamedTuple):
    """Who is asked: what the accounting needs to know of a run."""

    clients: int
    cohort: int
    sampling: str
    seed: int


def composed(where: str, draws: CohortDraws, rounds: int) -> tuple[float, int]:
    """(sampling rate, how often): the mechanisms that the client asked most often goes through in so many rounds."""
    m, cohort, sampling, seed = draws
    if cohort == m:
        return 1.0, rounds
    if where == "server" and sampling == "poisson":
        return cohort / m, rounds
    problem, asked = Problem(torch.zeros(0), torch.full((m,), 1 / m), seed), np.zeros(m, dtype=np.int64)
    for t in range(rounds):
        asked[draw_cohort(problem, cohort, sampling, t).numpy()] += 1
    return 1.0, int(asked.max())


def _accountants() -> tuple[Any, Any]:
    try:
        from opacus.accountants import PRVAccountant
        from opacus.accountants.analysis import rdp
    except ImportError as e:
        raise SartorError("differential privacy needs Opacus: pip install 'sartor[privacy]'." + see("extras")) from e
    return PRVAccountant, rdp


def composed_epsilon(history: Sequence[tuple[float, float, int]], delta: float) -> float:
    """ε at δ of Gaussian mechanisms one after the other: (noise, rate of the Poisson sample, how often)."""
    played = [event for event in history if event[2] > 0]
    if not played or any(noise == 0 for noise, _, _ in played):
        return math.inf if played else 0.0
    _, rdp = _accountants()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of orders at the end of the range, and of q = 1, where log(1 − q) is −∞
        total = sum(_of_one(noise, rate) * count for noise, rate, count in played)
        return max(0.0, float(rdp.get_privacy_spent(orders=ORDERS, rdp=total, delta=delta)[0]))


@lru_cache(maxsize=4096)
def _of_one(noise: float, rate: float) -> np.ndarray:
    """The Rényi divergences of one mechanism, by ORDERS; they add up. They take a quarter of a second, and a site asks
    in every round."""
    found: np.ndarray = _accountants()[1].compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=ORDERS)
    return found


@lru_cache(maxsize=1024)
def epsilon(noise: float, rate: float, count: int, delta: float, accountant: str) -> float:
    """ε at δ of `count` Gaussian mechanisms, each on a Poisson sample of this rate."""
    if noise == 0 or count == 0:
        return math.inf if count else 0.0
    PRVAccountant, _ = _accountants()
    found = composed_epsilon([(noise, rate, count)], delta)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if accountant == "prv" and found < _FAR:
            prv = PRVAccountant()
            prv.history = [(noise, rate, count)]
            try:
                found = float(prv.get_epsilon(delta))
            except (ValueError, RuntimeError) as e:
                raise SartorError(f"the PRV accountant gives up ({e}); use --dp-accountant rdp.") from e
    return max(0.0, found)


def spent(privacy: Privacy, draws: CohortDraws, rounds: int) -> float:
    """ε after so many rounds; infinite without noise. Refuses cohorts by chance that are empty too often."""
    assert privacy.noise is not None
    rate, count = composed(privacy.where, draws, rounds)
    found = _raw(privacy, privacy.noise, rate, count)
    if rate < 1 and math.isfinite(found):
        # With probability p per round nobody comes: δ grows by at most count·p·(1 + e^ε).
        p = _EMPTY * privacy.delta / (count * (1 + math.exp(min(found, 500.0))))
        needed = math.ceil(draws.clients * (1 - p ** (1 / (draws.clients - 1))))
        need(
            draws.cohort >= needed,
            f"Poisson cohorts of {draws.cohort} clients on average are empty too often for delta = "
            f"{privacy.delta:g}, as an empty round has no noise; take --cohort {needed} or more.",
        )
    return found


def _raw(privacy: Privacy, noise: float, rate: float, count: int) -> float:
    delta = privacy.delta * (1 if rate == 1 else 1 - _EMPTY)
    return epsilon(noise, rate, count, delta, privacy.accountant)


def with_noise(privacy: Privacy, draws: CohortDraws, rounds: int) -> Privacy:
    """The same with the noise that its ε needs, found by bisection and rounded up; what has noise is only checked."""
    if privacy.epsilon is not None:
        privacy = replace(privacy, epsilon=None, noise=_noise_for(privacy, *composed(privacy.where, draws, rounds)))
    spent(privacy, draws, rounds)
    return privacy


def _noise_for(privacy: Privacy, rate: float, count: int) -> float:
    return _noise_of(privacy, rate, count, privacy.delta * (1 if rate == 1 else 1 - _EMPTY))


@lru_cache(maxsize=64)
def _noise_of(privacy: Privacy, rate: float, count: int, delta: float) -> float:
    """The least noise, up to a thousandth, with which ε is as asked for."""
    target = privacy.epsilon
    assert target is not None

    def found(noise: float) -> float:
        return epsilon(noise, rate, count, delta, privacy.accountant)

    low, high = _LEAST, 1.0
    while found(high) > target:
        low, high = high, 2 * high
        need(high < 1e6, f"no noise below 1e6 gives epsilon = {target:g} at delta = {privacy.delta:g}; ask for more.")
    while high / low > 1.001:
        middle = math.sqrt(high * low)
        low, high = (low, middle) if found(middle) <= target else (middle, high)
    digits = 3 - math.floor(math.log10(high))
    return float(math.ceil(high * 10.0**digits) / 10.0**digits)


class Samples(NamedTuple):
    """What the accounting of samples needs to know of the clients."""

    rates: np.ndarray  # [m] the share of each client's samples in a batch
    steps: int  # gradients of each client in a round
    noise: np.ndarray  # [m] on each of those gradients, as a multiple of the clip


def sample_epsilons(privacy: Privacy, draws: CohortDraws, samples: Samples, rounds: int) -> list[float]:
    """ε of the samples of each client after so many rounds, as if it were asked as often as the one asked most."""
    count = composed("client", draws, rounds)[1] * samples.steps
    each = zip(samples.noise.tolist(), samples.rates.tolist(), strict=True)
    return [epsilon(noise, q, count, privacy.delta, privacy.accountant) for noise, q in each]


def samples_with_noise(privacy: Privacy, draws: CohortDraws, rates: np.ndarray, steps: int, rounds: int) -> Samples:
    """The clients' samples with the noise of each client's gradients: the same for all, or what each client's own rate
    needs, so that all spend the ε that was asked for, and none of them the noise of the smallest."""
    if privacy.noise is not None:
        return Samples(rates, steps, np.full(len(rates), privacy.noise))
    assert privacy.epsilon is not None
    count = composed("client", draws, privacy.planned or rounds)[1] * steps
    asked = (count, privacy.epsilon, privacy.delta, privacy.accountant)
    return Samples(rates, steps, np.array([_noise_spending(q, *asked) for q in rates.tolist()]))


@lru_cache(maxsize=4096)
def _noise_spending(rate: float, count: int, target: float, delta: float, accountant: str) -> float:
    """The noise with which so many gradients spend ε = target: to a ten-thousandth, and never more."""
    from scipy.optimize import brentq  # a third of a second that only private runs should take

    def off(log_noise: float) -> float:
        noise = math.exp(log_noise)
        if accountant == "rdp":
            return math.log(_fast_epsilon(noise, rate, count, delta) / target)
        return math.log(epsilon(noise, rate, count, delta, accountant) / target)

    low, high = 0.0, 0.0
    while off(high) > 0:
        low, high = high, high + 0.5
        text = f"no noise below 1e6 gives epsilon = {target:g} at delta = {delta:g} for {count} gradients"
        need(high < math.log(1e6), f"{text}; ask for more.")
    while low == high or off(low) <= 0:
        low, high = low - 0.5, low
        if low < math.log(_LEAST):
            return _LEAST
    noise = math.exp(brentq(off, low, high, xtol=2e-5))
    while epsilon(noise, rate, count, delta, accountant) > target:
        noise *= 1.00005
    return noise


def _fast_epsilon(noise: float, rate: float, count: int, delta: float) -> float:
    """`epsilon` by rdp from the orders around the best one: as ε has one valley over the orders, it is the same."""
    _, rdp = _accountants()

    def found(orders: list[float]) -> tuple[float, float]:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            each = rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=count, orders=orders)
            return rdp.get_privacy_spent(orders=orders, rdp=each, delta=delta)  # type: ignore[no-any-return]

    coarse = ORDERS[::_COARSE]
    best = coarse.index(found(coarse)[1])
    return float(found(ORDERS[max(0, (best - 1) * _COARSE) : (best + 1) * _COARSE + 1])[0])


def sample_statement(privacy: Privacy, draws: CohortDraws, samples: Samples, rounds: int) -> dict[str, Any]:
    """The `privacy` block of summary.json where samples are protected: ε of each client's, and the largest."""
    each = sample_epsilons(privacy, draws, samples, rounds)
    finite = all(map(math.isfinite, each))
    return {
        "epsilon": max(each) if finite else None,
        "epsilon_of_each": each if finite else None,
        "delta": privacy.delta,
        "noise": float(samples.noise.max()),
        "noise_of_each": samples.noise.tolist(),
        "clip": privacy.clip if math.isfinite(privacy.clip) else None,
        "where": "client",
        "unit": "sample",
        "accountant": privacy.accountant,
        "sampling": "poisson",
        "sampling_rate": float(samples.rates.max()),
        "rounds": rounds,
        "compositions": composed("client", draws, rounds)[1] * samples.steps,
        "neighbouring": "one sample, or nothing in its place",
        "weights": "any",
    }


def statement(privacy: Privacy, draws: CohortDraws, rounds: int) -> dict[str, Any]:
    """The `privacy` block of summary.json. An ε of null is infinite: without noise nothing is promised."""
    assert privacy.noise is not None
    rate, count = composed(privacy.where, draws, rounds)
    found = spent(privacy, draws, rounds)
    return {
        "epsilon": found if math.isfinite(found) else None,
        "delta": privacy.delta,
        "noise": privacy.noise,
        "clip": privacy.clip if math.isfinite(privacy.clip) else None,
        "where": privacy.where,
        "accountant": privacy.accountant,
        "sampling": draws.sampling,
        "sampling_rate": rate,
        "rounds": rounds,
        "compositions": count,
        "neighbouring": NEIGHBOURING,
        "weights": "uniform",
    }


def nothing_sent(privacy: Privacy, rounds: int) -> dict[str, Any]:
    """The same of a method that sends nothing (local training): nobody can learn anything."""
    empty: dict[str, Any] = dict.fromkeys(("noise", "clip", "accountant", "sampling", "sampling_rate", "weights"))
    known = {"epsilon": 0.0, "delta": privacy.delta, "where": privacy.where, "rounds": rounds, "compositions": 0}
    return {**empty, **known, "neighbouring": NEIGHBOURING}
