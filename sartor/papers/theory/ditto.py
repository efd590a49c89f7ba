"""Ditto's point estimation and linear regression (Appendix A): error, spread and the best λ, also with attackers.

w_k ~ N(θ, τ² I_d) for benign devices and N(θ, τ_a² I_d) for attackers; ŵ_k = w_k + noise of variance σ²/(βn) a
coordinate, where β = 1 for point estimation and X_kᵀX_k = βn I for regression. Ditto's model is
ŵ_k(λ) = (βŵ_k + λ mean_j ŵ_j)/(β + λ)  (74), (31).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...errors import need, not_negative, positive


@dataclass(frozen=True)
class Devices:
    """K devices with n samples each, K_a of which are drawn from the attackers' prior."""

    K: int
    n: int
    sigma: float
    tau: float
    K_a: int = 0
    tau_a: float = 0.0
    d: int = 1
    beta: float = 1.0

    def __post_init__(self) -> None:
        need(self.K >= 2 and self.n >= 1, f"Ditto's analysis needs K >= 2 devices and n >= 1; got {self.K}, {self.n}.")
        need(0 <= self.K_a < self.K, f"attackers are 0 to K − 1 = {self.K - 1} of the devices; got K_a = {self.K_a}.")
        positive("Ditto's analysis", sigma=self.sigma, tau=self.tau, beta=self.beta, d=self.d)
        not_negative("Ditto's analysis", tau_a=self.tau_a)
        need(self.K_a == 0 or self.tau_a > 0, "attackers need tau_a > 0.")

    @property
    def K_b(self) -> int:
        return self.K - self.K_a

    @property
    def noise(self) -> float:
        """σ_n²  (76), the variance of ŵ_k around w_k in a coordinate."""
        return self.sigma**2 / (self.beta * self.n)

    @property
    def excess(self) -> float:
        """τ_a² − τ² where there are attackers."""
        return self.tau_a**2 - self.tau**2 if self.K_a else 0.0


def best_lam(p: Devices) -> float:
    """λ* = (σ²/n) K/(Kτ² + K_a/(K − 1) (τ_a² − τ²)), without attackers σ²/(nτ²)  (26), (63), (82), (87)."""
    return p.sigma**2 / p.n * p.K / (p.K * p.tau**2 + p.K_a / (p.K - 1) * p.excess)


def posterior(p: Devices) -> float:
    """σ²_{w,a}: 1/σ²_{w,a} = 1/σ_n² + (K − 1)/(Kτ² + σ_n² + K_a/(K − 1)(τ_a² − τ²))  (79), (84)."""
    others = (p.K - 1) / (p.K * p.tau**2 + p.noise + p.K_a / (p.K - 1) * p.excess)
    return 1 / (1 / p.noise + others)


def error(p: Devices, lam: float) -> float:
    """E‖w_k − ŵ_k(λ)‖² of a benign device; at λ* it is dσ²_{w,a}  (Lemmas 8, 12)."""
    return p.d * _variance(p, _mix(p, lam))


def error_global(p: Devices) -> float:
    """The same of the global model, λ → ∞."""
    return p.d * _variance(p, 1.0)


def error_local(p: Devices) -> float:
    """The same of local training, λ = 0."""
    return p.d * p.noise


def variance_of_one(p: Devices, lam: float) -> float:
    """The variance of one device's ‖w_k − ŵ_k(λ)‖² over all that is drawn, 2dV²: smallest at λ*  (Lemmas 8, 12)."""
    return 2 * p.d * _variance(p, _mix(p, lam)) ** 2


def spread(p: Devices, lam: float) -> float:
    """E var_k ‖w_k − ŵ_k(λ)‖² over the benign devices of one federation: (1 − 1/K_b) 2d (V² − C²).

    V is a coordinate's error variance and C the covariance of two devices' errors, which share the global model.
    Theorems 3, 5, 7, 9 leave C out; without attackers λ* still minimises this, with attackers a slightly larger λ does.
    """
    return _spread(p, _mix(p, lam))


def spread_global(p: Devices) -> float:
    """The same of the global model."""
    return _spread(p, 1.0)


def _mix(p: Devices, lam: float) -> float:
    """How much of the global model is in ŵ_k(λ)."""
    return lam / (p.beta + lam)


def _variance(p: Devices, c: float) -> float:
    """V: the variance of w_k − ŵ_k(λ) in a coordinate; c is the share of the global model."""
    own = c * (p.K - 1) / p.K
    rest = (p.K - 1) * p.noise + (p.K_b - 1) * p.tau**2 + p.K_a * p.tau_a**2
    return own**2 * p.tau**2 + (1 - own) ** 2 * p.noise + (c / p.K) ** 2 * rest


def _spread(p: Devices, c: float) -> float:
    V = _variance(p, c)
    apart = c**2 * p.tau**2 + (1 - c) ** 2 * p.noise  # V − C: what two devices do not share
    C = V - apart
    return (1 - 1 / p.K_b) * 2 * p.d * (V**2 - C**2)


def fairest_lam(p: Devices) -> float:
    """The λ at which `spread` is smallest: λ* without attackers, a little above λ* with them."""
    centre = math.log(best_lam(p))
    from scipy.optimize import minimize_scalar  # a second that only this check should take

    found = minimize_scalar(lambda x: spread(p, math.exp(x)), bounds=(centre - 5, centre + 5), method="bounded")
    return math.exp(float(found.x))
