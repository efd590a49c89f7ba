"""Attacks by all hostile clients together, who see every message before the server does."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

from torch import Tensor

from ...errors import positive
from .attack import Attack


@dataclass(frozen=True)
class ALIE(Attack):
    """A little is enough: all send μ − zσ of the benign messages, coordinate by coordinate, just inside the crowd.

    For example:

        >>> some = st.Attacked(st.attacks.ALIE(), 0.4)
        >>> result = st.fit(st.FedAvg(aggregate=st.aggregators.Median()), model, clients, rounds=2, attack=some)
    """

    z: float | None = None  # none: the largest that enough benign messages exceed, from the normal distribution
    paper: ClassVar[str] = "Baruch et al. 2019"
    site: ClassVar[str] = "all messages"
    sees_all: ClassVar[bool] = True

    def z_of(self, n: int, hostile: int) -> float:
        """z with Φ(z) = (n − h − s)/(n − h), where s = ⌊n/2⌋ + 1 − h benign ones make a majority with h hostile."""
        if self.z is not None:
            return self.z
        s = max(1, n // 2 + 1 - hostile)  # a hostile majority needs nobody: one is left out all the same
        share = (n - hostile - s) / (n - hostile)
        return max(0.0, NormalDist().inv_cdf(share)) if share > 0 else 0.0

    def together(self, honest: Tensor, base: Tensor, hostile: Tensor) -> Tensor:
        benign = honest[~hostile].double()
        h = int(hostile.sum())
        bad = benign.mean(0) - self.z_of(len(honest), h) * benign.std(0, correction=0)
        return bad.to(honest.dtype).expand(h, -1)


@dataclass(frozen=True)
class IPM(Attack):
    """Inner-product manipulation: all send −ε times the mean of the benign updates.

    For example:

        >>> some = st.Attacked(st.attacks.IPM(epsilon=2.0), 0.4)
        >>> result = st.fit(st.FedAvg(aggregate=st.aggregators.Median()), model, clients, rounds=2, attack=some)
    """

    epsilon: float = 0.5  # a plain mean turns round where ε > (n − h)/h; a small ε is hard to tell from benign
    paper: ClassVar[str] = "Xie et al. 2019"
    site: ClassVar[str] = "all messages"
    sees_all: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive("ipm", epsilon=self.epsilon)

    def together(self, honest: Tensor, base: Tensor, hostile: Tensor) -> Tensor:
        mean = (honest - base)[~hostile].double().mean(0)
        return base[hostile] - (self.epsilon * mean).to(honest.dtype)
