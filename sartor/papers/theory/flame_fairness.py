"""FLAME's fairness after one round without attackers (Appendix B-D), corrected."""

from __future__ import annotations

import numpy as np

from .regression import Regression


def loss_global_of_each(p: Regression, q: float) -> np.ndarray:
    """(170): every client's expected test loss of w [m]."""
    noise = p.sigma**2 / 2 + q**2 * p.sigma**2 * p.d / (2 * p.m * p.N)
    return noise + p.b / 2 * _away(p, q)


def loss_personal_of_each(p: Regression, lam: float, q: float) -> np.ndarray:
    """(171): every client's expected test loss of its own model [m]."""
    share = (p.b**2 + 2 * p.b * q * lam / p.m + q**2 * lam**2 / p.m) / (p.b + lam) ** 2
    noise = p.sigma**2 / 2 + share * p.sigma**2 * p.d / (2 * p.N)
    return noise + p.b * lam**2 / (2 * (p.b + lam) ** 2) * _away(p, q)


def variance_global(p: Regression, q: float) -> float:
    """(172): var_i f_i(w) = b²/4 · var_i ‖qθ̄ − θ_i‖²."""
    return p.b**2 / 4 * spread(p.theta, q)


def variance_personal(p: Regression, lam: float, q: float) -> float:
    """(173) with the square inside, b²λ⁴/(4(b + λ)⁴) · var_i ‖qθ̄ − θ_i‖²; the paper prints ‖qθ̄ − θ_i‖⁴."""
    return p.b**2 * lam**4 / (4 * (p.b + lam) ** 4) * spread(p.theta, q)


def variance_personal_as_printed(p: Regression, lam: float, q: float) -> float:
    """(173) as it stands in the paper, with ‖·‖⁴."""
    return p.b**2 * lam**4 / (4 * (p.b + lam) ** 4) * float((_away(p, q) ** 2).var())


def spread(theta: np.ndarray, q: float) -> float:
    """var_i ‖qθ̄ − θ_i‖² = 4q² var(θ̄ᵀθ_i) − 4q cov(θ̄ᵀθ_i, ‖θ_i‖²) + var ‖θ_i‖².

    Convex in q, where (177) says concave.
    """
    along, square = theta @ theta.mean(0), (theta**2).sum(1)
    cov = float(((along - along.mean()) * (square - square.mean())).mean())
    return 4 * q**2 * float(along.var()) - 4 * q * cov + float(square.var())


def fairest_q(theta: np.ndarray) -> float:
    """q* = cov(θ̄ᵀθ_i, ‖θ_i‖²)/(2 var θ̄ᵀθ_i), where `spread` is smallest; 0 where all norms are equal."""
    along, square = theta @ theta.mean(0), (theta**2).sum(1)
    return float(((along - along.mean()) * (square - square.mean())).mean() / (2 * along.var()))


def least_q_that_is_fairer(theta: np.ndarray) -> float:
    """For q < 1: spread(q) < spread(1) exactly where q > 2q* − 1."""
    return 2 * fairest_q(theta) - 1


def second_derivative_as_printed(theta: np.ndarray) -> float:
    """(177) as printed: −(4/m²) Σ_{i≠j} (θ̄ᵀ(θ_i − θ_j))² = −8 var(θ̄ᵀθ_i); the sign must be +."""
    return -8 * float((theta @ theta.mean(0)).var())


def _away(p: Regression, q: float) -> np.ndarray:
    found: np.ndarray = ((q * p.theta.mean(0) - p.theta) ** 2).sum(1)
    return found
