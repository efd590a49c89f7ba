"""The linear problem on which FLAME, Lp-Proj and Ditto are analysed, and small facts that its closed forms share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...errors import need, not_negative, positive


@dataclass(frozen=True)
class Regression:
    """y_i = X_i θ_i + z_i with z_i ~ N(0, σ² I_N) and X_iᵀX_i = N b I_d; the clients `hostile` attack.

    FLAME's letters (Appendix B). Lp-Proj has n, N for N, m; Ditto has n, K, β for N, m, N b.
    """

    theta: np.ndarray  # [m, d] the true models
    N: int
    b: float
    sigma: float
    hostile: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        need(self.theta.ndim == 2 and self.theta.size > 0, f"theta is [m, d]; got the shape {self.theta.shape}.")
        need(self.d <= self.N, f"X_iᵀX_i = N b I needs N >= d samples; got N = {self.N}, d = {self.d}.")
        positive("federated linear regression", b=self.b)
        not_negative("federated linear regression", sigma=self.sigma)
        need(
            self.m_b >= 1 and all(0 <= i < self.m for i in self.hostile),
            f"attackers are some but not all of the {self.m} clients; got {self.hostile}.",
        )

    @property
    def m(self) -> int:
        return len(self.theta)

    @property
    def d(self) -> int:
        return int(self.theta.shape[1])

    @property
    def m_a(self) -> int:
        return len(set(self.hostile))

    @property
    def m_b(self) -> int:
        return self.m - self.m_a

    @property
    def s(self) -> float:
        """σ²/(bN): the local optimum is θ̂_i ~ N(θ_i, s I)  (130)."""
        return self.sigma**2 / (self.b * self.N)

    @cached_property
    def attacks(self) -> np.ndarray:
        """[m] True where a client attacks."""
        mask: np.ndarray = np.isin(np.arange(self.m), self.hostile)
        return mask

    @property
    def benign(self) -> np.ndarray:
        """[m_b, d] the true models of benign clients."""
        chosen: np.ndarray = self.theta[~self.attacks]
        return chosen

    def loss(self, variance: float, bias: float) -> float:
        """σ²/2 + b/2 (tr var + ‖bias‖²): the expected test loss of an estimate of θ_i  (139), (140)."""
        return self.sigma**2 / 2 + self.b / 2 * (variance + bias)


def away(centre: np.ndarray, models: np.ndarray) -> float:
    """The mean over the models of ‖centre − θ_i‖²."""
    return float(((centre - models) ** 2).sum(1).mean())
