"""FLAME's linear problem without attackers: Appendix B-A and B-B of the paper, with its equation numbers."""

from __future__ import annotations

import numpy as np

from .regression import Regression, away


def solution(A: np.ndarray, local: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """(135): w* [d] and θ* [m, d] for A_i = X_iᵀX_i/N [m, d, d] and the local optima θ̂ [m, d], with α_i = 1/m.

    w* = (I − mean_i λ(A_i + λI)⁻¹)⁻¹ mean_i (A_i + λI)⁻¹A_iθ̂_i; the paper prints a λ too many in the second mean.
    """
    return _solution(A, local, lam, 1.0)


def solution_as_printed(A: np.ndarray, local: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """(135) as it stands in the paper, with λ(A_i + λI)⁻¹A_iθ̂_i; it disagrees with (136) unless λ = 1."""
    return _solution(A, local, lam, lam)


def _solution(A: np.ndarray, local: np.ndarray, lam: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    eye = np.eye(A.shape[1])
    inverse = np.linalg.inv(A + lam * eye)
    b = np.einsum("ijk,ik->ij", A, local)
    w = scale * np.linalg.solve(eye - lam * inverse.mean(0), np.einsum("ijk,ik->j", inverse, b) / len(A))
    return w, np.einsum("ijk,ik->ij", inverse, b + lam * w)


def solution_scaled(b: np.ndarray, local: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """(136): the same where A_i = b_i I; with equal b_i it is (137), w* = mean θ̂_i."""
    pull = (b / (b + lam))[:, None]
    w = (pull * local).sum(0) / pull.sum()
    return w, pull * local + (1 - pull) * w


def mean_global(p: Regression) -> np.ndarray:
    """(138): E w* = θ̄ [d]."""
    centre: np.ndarray = p.theta.mean(0)
    return centre


def variance_global(p: Regression) -> float:
    """(138): each coordinate of w* has variance σ²/(bmN)."""
    return p.s / p.m


def mean_personal(p: Regression, lam: float) -> np.ndarray:
    """(138): E θ_i* = (bθ_i + λθ̄)/(b + λ) [m, d]."""
    mean: np.ndarray = (p.b * p.theta + lam * mean_global(p)) / (p.b + lam)
    return mean


def variance_personal(p: Regression, lam: float) -> float:
    """(138): each coordinate of θ_i* has variance ((b² + 2bλ/m) σ²/(bN) + λ²σ²/(bmN)) / (b + λ)²."""
    return (p.b**2 + 2 * p.b * lam / p.m + lam**2 / p.m) * p.s / (p.b + lam) ** 2


def loss_global(p: Regression) -> float:
    """(143): the mean test loss of w*."""
    return p.sigma**2 / 2 + p.sigma**2 * p.d / (2 * p.m * p.N) + p.b / 2 * away(mean_global(p), p.theta)


def loss_personal(p: Regression, lam: float) -> float:
    """(144) with (b + λ)² in its last denominator, where the paper prints b + λ²."""
    return _noise_of_144(p, lam) + p.b * lam**2 / (2 * (p.b + lam) ** 2) * away(mean_global(p), p.theta)


def loss_personal_as_printed(p: Regression, lam: float) -> float:
    """(144) as it stands in the paper, with b + λ²."""
    return _noise_of_144(p, lam) + p.b * lam**2 / (2 * (p.b + lam**2)) * away(mean_global(p), p.theta)


def _noise_of_144(p: Regression, lam: float) -> float:
    share = (p.m * p.b**2 + 2 * p.b * lam + lam**2) / (p.m * (p.b + lam) ** 2)
    return p.sigma**2 / 2 + share * p.sigma**2 * p.d / (2 * p.N)
