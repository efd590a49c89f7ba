"""The papers' simplified setting, run by the library: infinitely many local steps, one round, everybody takes part.

A round of messages gives w; the personal models are those that the clients then solve for the w they were sent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...core import Method, Task
from ...data.clients import Clients
from ...errors import SartorError
from ...methods import FLAME, Ditto, LpProj, PFedMe
from ...seeds import stream
from ...solvers import Exact, Solver
from ...wrappers import Attack, attacks
from .regression import Regression
from .replicas import Play


def flame(lam: float, rho: float, solver: Solver | None = None) -> FLAME:
    """FLAME, whose personal models are tied to the received w as in Appendix B-C."""
    return FLAME(lam=lam, rho=rho, anchor="global", solver=solver or Exact())


def ditto(lam: float, solver: Solver | None = None) -> Ditto:
    """Ditto; exact steps of its FedAvg send θ̂_i."""
    exact = solver or Exact()
    return Ditto(lam=lam, solver=exact)


def pfedme(lam: float, b: float, solver: Solver | None = None) -> PFedMe:
    """pFedMe; with η = (b + λ)/(bλ) one local round lands where infinitely many do, w_i = θ̂_i."""
    return PFedMe(lam=lam, eta=(b + lam) / (b * lam), R=1, solver=solver or Exact())


def lp_proj(lam: float, b: float, d_sub: int, seed: int = 0, solver: Solver | None = None) -> LpProj:
    """Lp-Proj-2 with orthonormal rows; the same η gives w_k = Pθ̂_k."""
    eta = (b + lam) / (b * lam)
    return LpProj(
        lam=lam, eta=eta, d_sub=d_sub, projection="orthogonal", projection_seed=seed, solver=solver or Exact()
    )


def rho_for(q: float, lam: float, alpha: float, b: float) -> float:
    """The ρ with which FLAME's first message is qθ̂_i."""
    rho = lam * alpha * (2 * b / ((b + lam) * q) - 1)
    if rho <= 0:
        raise SartorError(f"FLAME's q is below 2b/(b + λ) = {2 * b / (b + lam):.3g} for every ρ > 0; got q = {q:g}.")
    return rho


def attack_of(name: str, std: float) -> Attack:
    """The library's attack with this deviation."""
    made: Attack = attacks.NAMES[name](std=std)  # type: ignore[call-arg]
    return made


@dataclass(frozen=True)
class Losses:
    """Test losses of benign clients, σ²/2 included, one row for each federation."""

    of_global: np.ndarray | None  # [R, m_b]
    of_personal: np.ndarray  # [R, m_b]


def one_round(
    p: Regression,
    method: Method,
    task: Task,
    data: Clients,
    replicas: int,
    attack: Attack | None = None,
    seed: int = 0,
) -> Losses:
    """Play it: a round of messages, then the personal models at what the server made of them."""
    play = Play(method, task, data, replicas, attack=attack, hostile=p.hostile if attack else (), seed=seed).rounds(1)
    found = None if isinstance(method, LpProj) else play.losses("global")[:, ~p.attacks] + p.sigma**2 / 2
    return Losses(found, play.rounds(1).losses("personal")[:, ~p.attacks] + p.sigma**2 / 2)


def variance_over_clients(losses: np.ndarray) -> np.ndarray:
    """[R, m] → [R/2] unbiased estimates of the variance over clients of their expected losses: the covariance over
    clients of two independent federations' losses."""
    a, b = losses[0::2], losses[1::2]
    found: np.ndarray = (a * b).mean(1) - a.mean(1) * b.mean(1)
    return found


def random_regression(seed: int, attackers: bool = True) -> tuple[Regression, float, float, float]:
    """A problem drawn from the seed, with λ, ρ ≥ λα and the attack's deviation: what properties are checked on."""
    draw = stream(seed, "random regression")
    m, d = int(draw.integers(3, 9)), int(draw.integers(1, 6))
    N, b, sigma = d + int(draw.integers(0, 8)), draw.uniform(0.3, 2.5), draw.uniform(0.3, 2.0)
    m_a = int(draw.integers(1, max(2, m // 2))) if attackers else 0
    hostile = tuple(sorted(draw.permutation(m)[:m_a].tolist()))
    p = Regression(draw.normal(draw.normal(), 1.0, (m, d)), N, float(b), float(sigma), hostile)
    lam, gamma = float(math.exp(draw.uniform(-1.5, 1.5))), float(draw.uniform(0.2, 1.5))
    return p, lam, lam / m * float(math.exp(draw.uniform(0, 1.5))), gamma
