"""FLAME after one round under attack (Appendix B-C), and with q = 1 pFedMe and Ditto.

From w⁰ = w_i⁰ = π_i⁰ = 0 and exact steps a client sends u_i = q θ̂_i. The server's w is the mean of all messages, and
the personal model is (bθ̂_i + λw)/(b + λ): it is tied to the *received* w, in the library `anchor="global"`.
"""

from __future__ import annotations

import math

import numpy as np

from ...errors import one_of
from .regression import Regression, away

ATTACKS = ("same-value", "gaussian", "sign-flip")
_FOLD = math.sqrt(2 / math.pi)  # E|p| for p ~ N(0, 1)


def q(lam: float, alpha: float, rho: float, b: float) -> float:
    """q = 2λα/(λα + ρ) · b/(b + λ): how much of θ̂_i a client's first message holds  (Proposition 2)."""
    return 2 * lam * alpha / (lam * alpha + rho) * b / (b + lam)


def global_same_value(p: Regression, q: float, gamma: float) -> float:
    """(148): the benign clients' mean test loss of w; a Gaussian attack has the same trace and so the same loss."""
    variance = p.d / p.m**2 * (p.m_a * gamma**2 + p.m_b * q**2 * p.s)
    return p.loss(variance, away(q * p.benign.sum(0) / p.m, p.benign))


def personal_same_value(p: Regression, lam: float, q: float, gamma: float) -> float:
    """(151): the same of the personal models."""
    return _personal(p, lam, q, p.d * p.m_a * gamma**2, q * p.benign.sum(0) / p.m)


def global_sign_flip(p: Regression, q: float, gamma: float) -> float:
    """(161), summed over benign clients (the paper has S_a) and with V_i's σ²/(bN) (the paper has σ²/(bm))."""
    variance = (p.m_b * q**2 * p.s * p.d + q**2 * sum_of_traces(p, gamma)) / p.m**2
    return p.loss(variance, away(q * theta_m(p, gamma), p.benign))


def personal_sign_flip(p: Regression, lam: float, q: float, gamma: float) -> float:
    """(165), with V_i's σ²/(bN)."""
    return _personal(p, lam, q, q**2 * sum_of_traces(p, gamma), q * theta_m(p, gamma))


def theta_m(p: Regression, gamma: float) -> np.ndarray:
    """θ_m = (Σ_b θ_i − √(2/π) γ Σ_a θ_i)/m: E w = qθ_m under sign-flipping  (158)."""
    mean: np.ndarray = (p.benign.sum(0) - _FOLD * gamma * p.theta[p.attacks].sum(0)) / p.m
    return mean


def loss_global(p: Regression, attack: str, q: float, gamma: float) -> float:
    """The loss of w under the named attack."""
    one_of("the one-round analysis", "attack", attack, ATTACKS)
    return global_sign_flip(p, q, gamma) if attack == "sign-flip" else global_same_value(p, q, gamma)


def loss_personal(p: Regression, attack: str, lam: float, q: float, gamma: float) -> float:
    """The loss of the personal models under the named attack."""
    one_of("the one-round analysis", "attack", attack, ATTACKS)
    return personal_sign_flip(p, lam, q, gamma) if attack == "sign-flip" else personal_same_value(p, lam, q, gamma)


def sum_of_traces(p: Regression, gamma: float) -> float:
    """Σ_a tr V_i with V_i = (π − 2)/π γ²θ_iθ_iᵀ + γ² σ²/(bN) I  (157)."""
    squares = float((p.theta[p.attacks] ** 2).sum())
    return gamma**2 * ((1 - _FOLD**2) * squares + p.m_a * p.d * p.s)


def _personal(p: Regression, lam: float, q: float, attacked: float, centre: np.ndarray) -> float:
    """(149), (163): `attacked` is the trace of the attackers' summed covariance, `centre` is E w."""
    own = p.b**2 + 2 * p.b * q * lam / p.m + p.m_b * q**2 * lam**2 / p.m**2
    variance = (own * p.s * p.d + lam**2 / p.m**2 * attacked) / (p.b + lam) ** 2
    return p.loss(variance, lam**2 / (p.b + lam) ** 2 * away(centre, p.benign))


# --- Proposition 2: which q makes FLAME's loss at most that of q = 1 ------------------------------------------------


def best_q(p: Regression, attack: str, gamma: float, lam: float | None = None) -> float:
    """The q at which the loss of w (lam=None) or of the personal models is smallest: a parabola's lowest point.

    Where the loss rises from here to q = 1, Proposition 2's condition q ≥ best_q holds. Corrected: the paper's
    thresholds lack ‖θ̄_b‖² in one denominator and, under sign-flipping, sum over S_a for S_b.
    """
    ahead = [-1.0, 0.0, 1.0]
    loss = [loss_global(p, attack, x, gamma) if lam is None else loss_personal(p, attack, lam, x, gamma) for x in ahead]
    curvature = loss[0] - 2 * loss[1] + loss[2]
    return -(loss[2] - loss[0]) / (2 * curvature)


def best_q_global_same_value(p: Regression) -> float:
    """Proposition 2's first threshold, mNb‖θ̄_b‖²/(dσ² + m_bNb‖θ̄_b‖²); the paper prints dσ² + m_bNb below."""
    mean = float((p.benign.mean(0) ** 2).sum())
    return p.m * p.N * p.b * mean / (p.d * p.sigma**2 + p.m_b * p.N * p.b * mean)


def best_q_global_as_printed(p: Regression) -> float:
    """The same as it stands in the paper."""
    mean = float((p.benign.mean(0) ** 2).sum())
    return p.m * p.N * p.b * mean / (p.d * p.sigma**2 + p.m_b * p.N * p.b)


def best_q_personal_same_value(p: Regression, lam: float) -> float:
    """Proposition 2's second threshold, mb(m_bNλ‖θ̄_b‖² − dσ²)/(dσ²m_bλ + m_b²Nbλ‖θ̄_b‖²)."""
    mean = float((p.benign.mean(0) ** 2).sum())
    above = p.m * p.b * (p.m_b * p.N * lam * mean - p.d * p.sigma**2)
    return above / (p.d * p.sigma**2 * p.m_b * lam + p.m_b**2 * p.N * p.b * lam * mean)
