"""When FLAME's Lagrangian decreases, how fast it converges on quadratics, and how empty Theorem 1's conditions are.

Throughout x = λα. The derivations are in docs/derivations.md.
"""

from __future__ import annotations

import math

import numpy as np

from ...errors import need

RATIO = (1 + math.sqrt(17)) / 2  # 2.5616


def enough_rho(x: float, L: float = 0.0, lam: float = 1.0) -> float:
    """The ρ from which on L cannot increase with exact steps: 2.5616 λα for convex f_i.

    For f_i that are only L-smooth it needs λ > L; with c = 1 − L/λ it is λα (2 − c + √(9c² + 4c + 4))/(2c).
    """
    need(lam > L >= 0, f"exact steps on L-smooth functions need λ > L; got λ = {lam}, L = {L}.")
    c = 1 - L / lam
    return x * (2 - c + math.sqrt(9 * c**2 + 4 * c + 4)) / (2 * c)


def increase(x: float, rho: float, a: float, b: float, c: float = 1.0) -> float:
    """The most by which one client's step can raise L: x²/ρ (a − b)² − cx/2 a² − (x + ρ)/2 b² for Δθ = a, Δw_i = b.

    It is attained (c = 1) by a linear f_i where the other clients keep w in its place.
    """
    return x**2 / rho * (a - b) ** 2 - c * x / 2 * a**2 - (x + rho) / 2 * b**2


def worst_direction(x: float, rho: float) -> float:
    """b/a at which `increase` is largest for given a."""
    return -(x**2 / rho) / ((x + rho) / 2 - x**2 / rho)


def rate(b: float, lam: float, alpha: float, rho: float) -> float:
    """The factor by which FLAME's error shrinks per round on f_i = b/2 ‖θ − c_i‖², with exact steps.

    The larger of the two modes' spectral radii: all clients alike, and differences between clients (w stays).
    """
    x, kappa = lam * alpha, lam / (b + lam)
    w_i = np.array([-x, x * kappa + x, rho]) / (x + rho)  # (12) with π = x(θ − w_i), on (θ, w_i, w)
    theta = np.array([0.0, kappa, 0.0])
    u = (1 - x / rho) * w_i + x / rho * theta  # (13)
    alike = np.stack([theta, w_i, u])
    return float(max(np.abs(np.linalg.eigvals(alike)).max(), np.abs(np.linalg.eigvals(alike[:2, :2])).max()))


def largest_L_alpha(t: float | np.ndarray) -> float | np.ndarray:
    """The largest Lα that Theorem 1's conditions allow where λα = tρ: 2(1 − ρ²)t² − ρ at its best ρ, (C1)'s smallest.

    (C1) λ²α²(1 + ρ)/ρ² < (λα + ρ)/2,   (C2) ρ ≥ λα,   (C3) (1 − ρ²)λ²α²/ρ² > (Lα + ρ)/2.
    """
    rho = smallest_rho(t)
    return 2 * (1 - rho**2) * t**2 - rho


def smallest_rho(t: float | np.ndarray) -> float | np.ndarray:
    """(C1) solved for ρ where λα = tρ."""
    return 2 * t**2 / (1 + t - 2 * t**2)


def kl_exponent(p: float) -> float:
    """The Kurdyka–Łojasiewicz exponent τ = 1 − 1/p of |t|^p."""
    return 1 - 1 / p


def power_of_theorem4(p: float) -> float:
    """Theorem 4 c): L − L∞ = O(t^{−1/(2τ−1)}); for |t|^p this is t^{−p/(p−2)}."""
    tau = kl_exponent(p)
    need(tau > 0.5, f"Theorem 4 c) is for τ > 1/2, that is p > 2; got p = {p}.")
    return 1 / (2 * tau - 1)
