"""Lp-Proj's linear problem (Section 4.2): one round, P with orthonormal rows, and pFedMe and Ditto beside it.

The formal statements are in an appendix that the paper at hand does not have, so the losses are derived in
docs/derivations.md; λ₁* and the threshold come out as Proposition 1 says. Inside the subspace Lp-Proj is Ditto with
d_sub coordinates; outside it is local training.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...errors import need
from . import flame_attacks
from .regression import Regression, away


def loss_ditto(p: Regression, attack: str, lam: float, tau: float) -> float:
    """L^{Me} = L^{Di}: the benign clients' mean test loss of pFedMe and Ditto (FLAME's (152) and its like)."""
    return flame_attacks.loss_personal(p, attack, lam, 1.0, tau)


def loss(p: Regression, P: np.ndarray, attack: str, lam: float, tau: float) -> float:
    """L^{L2}: the same of Lp-Proj-2 with the orthonormal rows P [d_sub, d]."""
    inside = replace(p, theta=p.theta @ P.T)
    return loss_ditto(inside, attack, lam, tau) + p.b / 2 * (p.d - len(P)) * p.s


def heterogeneity(p: Regression) -> float:
    """Σ₁: the mean over benign clients of ‖(1/N) Σ_b w_j − w_k‖², in a single dimension."""
    return away(p.benign.sum(0) / p.m, p.benign) / p.d


def best_lam(p: Regression, tau: float) -> float:
    """λ₁* = (1 − 1/N)(σ²/n) / (Σ₁ + N_a/N² (τ² − σ²/(bn))) under same-value (and Gaussian) attacks."""
    return _best(p, heterogeneity(p) + p.m_a / p.m**2 * (tau**2 - p.s))


def best_lam_sign_flip(p: Regression, tau: float) -> float:
    """λ₂*: the same under sign-flipping attacks."""
    centre = flame_attacks.theta_m(p, tau)
    attacked = flame_attacks.sum_of_traces(p, tau) / p.m**2
    return _best(p, (away(centre, p.benign) + attacked) / p.d - p.m_a / p.m**2 * p.s)


def threshold(lam_star: float, b: float) -> float:
    """2λ*/(1 − λ*/b): for λ* < b, Lp-Proj's loss is at most pFedMe's and Ditto's exactly where λ is at least this."""
    need(lam_star < b, f"Proposition 1 needs λ* < b; got λ* = {lam_star:g}, b = {b:g}.")
    return 2 * lam_star / (1 - lam_star / b)


def expected_variance(covariance: np.ndarray, clients: int, b: float, lam: float) -> float:
    """E var_k of the clients' expected test losses for w_k ~ N(μ, Σ): b²λ⁴/(4(b + λ)⁴) · 2 tr(Σ²)(1 − 1/N)(1 − 2/N).

    Σ is [d, d] for pFedMe and Ditto, P Σ Pᵀ for Lp-Proj. tr(Σ²) ≤ (tr Σ)², so it is O(d²) against O(d_sub²) as
    Proposition 2 says; for Σ = τ²I it is 2dτ⁴ against 2d_subτ⁴, linear in the dimension.
    """
    N = clients
    return b**2 * lam**4 / (4 * (b + lam) ** 4) * 2 * float((covariance**2).sum()) * (1 - 1 / N) * (1 - 2 / N)


def _best(p: Regression, below: float) -> float:
    return (1 - 1 / p.m) * p.sigma**2 / p.N / below
