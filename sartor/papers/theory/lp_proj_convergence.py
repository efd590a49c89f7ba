"""Lp-Proj with p = 2 under Assumption 4: the constants of Lemma 1 and Theorem 1, and the exact step by NumPy alone.

A loss that knows only z = Px makes Lp-Proj pFedMe in z (docs/derivations.md). The paper bounds the singular values of P
by 1 ± C√(d_sub/d) with a C that it does not give; here `low` and `high` are the true smallest and largest ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import need


def delta2(noise: float, lam: float, L: float, low: float, high: float) -> float:
    """Lemma 1: δ² = 2 high⁶ (γ²/|D| + ν) / (low⁴λ − high²L)², with `noise` = γ²/|D| + ν."""
    margin = low**4 * lam - high**2 * L
    need(margin > 0, f"Lemma 1 needs λ > L·high²/low⁴ = {L * high**2 / low**4:.4g}; got λ = {lam:g}.")
    return 2 * high**6 * noise / margin**2


def delta2_in_z(noise: float, lam: float, L: float, low: float) -> float:
    """Our own: 2 low² (γ²/|D| + ν) / (low²λ − L)², never above Lemma 1's, and the same where low = high = 1."""
    need(low**2 * lam > L, f"the bound in z needs λ > L/low² = {L / low**2:.4g}; got λ = {lam:g}.")
    return 2 * low**2 * noise / (low**2 * lam - L) ** 2


def smoothness(lam: float, L: float, low: float) -> float:
    """F's largest curvature, our own: λL'/(λ − L') with L' = L/low² the loss's in z. It is below the paper's L_F = λ
    where λ ≥ 2L'."""
    in_z = L / low**2
    need(lam > in_z, f"the envelope needs λ > L/low² = {in_z:.4g}; got λ = {lam:g}.")
    return lam * in_z / (lam - in_z)


def largest_eta(lam: float, beta: float = 1.0, R: int = 1) -> float:
    """Theorem 1's largest step, η̂₀/(βR) with η̂₀ = 1/(90 λ² L_F) and L_F = λ."""
    return 1 / (90 * lam**3) / (beta * R)


def diversity_F(sigma2_f: float, lam: float, L: float) -> float:
    """Theorem 1: σ_F² = λ²σ_f²/(λ² − 10L²)."""
    return lam**2 * sigma2_f / (lam**2 - 10 * L**2)


def prox(
    a: np.ndarray, y: np.ndarray, w: np.ndarray, lam: float, slope: Callable[[np.ndarray], np.ndarray], bend: float
) -> np.ndarray:
    """Px̂ = argmin_z of the samples' mean l(aᵀz − y) + λ/2 ‖z − w‖², for a [..., n, k], y [..., n], w [..., k].

    `slope` is l', `bend` bounds |l''|. Gradient descent in z; with λ above the loss's curvature it contracts.
    """
    L = bend * float((a**2).sum(-1).max())
    need(lam > L, f"the exact step needs λ > {L:.4g}, the curvature of the loss in z; got {lam:g}.")
    z = w
    for _ in range(1 + int(np.ceil(np.log(1e-17) / np.log(2 * L / (lam + L))))):
        rest = slope((a * z[..., None, :]).sum(-1) - y)
        z = z - ((a * rest[..., None]).mean(-2) + lam * (z - w)) / (lam + L)
    return z
