"""Aggregators that look at each update's norm or loss: clipping, k-norm, k-loss (Ditto, Appendix D), FedMGDA+."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..core import Aggregator
from ..errors import SartorError, need, positive
from .base import at_most, mean, rank, updates
from .min_norm import fair_direction


def _norms(messages: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(messages, dim=1, dtype=torch.float64)
    return norms


@dataclass(frozen=True)
class Clipping(Aggregator):
    """The weighted mean of updates, none longer than the median one; holds while less than half is hostile.

    For example:

        >>> import torch
        >>> messages, weights = torch.tensor([[1.0], [2.0], [3.0], [4.0], [90.0]]), torch.ones(5)
        >>> st.aggregators.Clipping(norm=2.0)(messages, weights)
        tensor([1.8000])
    """

    norm: float | None = None  # none: the median norm of the round's updates, as Ditto has it
    paper: ClassVar[str] = "Sun et al. 2019"

    def __post_init__(self) -> None:
        if self.norm is not None:
            positive("clipping", norm=self.norm)

    def __call__(
        self, messages: Tensor, weights: Tensor, reference: Tensor | None = None, losses: Tensor | None = None
    ) -> Tensor:
        u, start = updates(messages, reference)
        norms = _norms(u)
        most = float(np.median(norms.cpu().numpy())) if self.norm is None else self.norm
        scale = (most / norms.clamp(min=1e-300)).clamp(max=1.0).to(u.dtype)
        return start + mean(u * scale[:, None], weights)


@dataclass(frozen=True)
class KNorm(Aggregator):
    """The weighted mean without the k updates of the largest norm; holds for k hostile updates that are long.

    For example:

        >>> import torch
        >>> messages, weights = torch.tensor([[1.0], [2.0], [3.0], [4.0], [90.0]]), torch.ones(5)
        >>> st.aggregators.KNorm(k=1)(messages, weights)
        tensor([2.5000])
    """

    k: int | None = None  # none: the most that leave a majority, (n − 1) / 2
    paper: ClassVar[str] = "Ditto, Appendix D"

    def __post_init__(self) -> None:
        need(self.k is None or self.k >= 0, f"k-norm needs k >= 0; got {self.k}.")

    def check(self, n: int) -> None:
        at_most("k-norm", "k", self.k, n - 1, n)

    def __call__(
        self, messages: Tensor, weights: Tensor, reference: Tensor | None = None, losses: Tensor | None = None
    ) -> Tensor:
        n = len(messages)
        u, _ = updates(messages, reference)
        kept = rank(_norms(u).cpu().numpy(), messages)[: n - _left_out(self.k, n)]
        return mean(messages[kept], weights[kept])


@dataclass(frozen=True)
class KLoss(Aggregator):
    """The one message whose client has the (k + 1)-th largest training loss; holds for k hostile with large losses.

    The loss is that of the received model at the client's own data, as the client reports it. Weights are ignored.

        >>> import torch
        >>> messages, weights = torch.tensor([[1.0], [2.0], [3.0], [4.0], [90.0]]), torch.ones(5)
        >>> st.aggregators.KLoss(k=1)(messages, weights, losses=torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
        tensor([4.])
    """

    k: int | None = None  # none: the most that leave a majority, (n − 1) / 2
    paper: ClassVar[str] = "Ditto, Appendix D"
    needs_losses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        need(self.k is None or self.k >= 0, f"k-loss needs k >= 0; got {self.k}.")

    def check(self, n: int) -> None:
        at_most("k-loss", "k", self.k, n - 1, n)

    def __call__(
        self, messages: Tensor, weights: Tensor, reference: Tensor | None = None, losses: Tensor | None = None
    ) -> Tensor:
        if losses is None:
            raise SartorError("k-loss needs the clients' losses; run it with sartor.fit, which asks for them.")
        order = rank(-losses.double().cpu().numpy(), messages)
        return messages[order[_left_out(self.k, len(messages))]]


def _left_out(k: int | None, n: int) -> int:
    return (n - 1) // 2 if k is None else min(k, n - 1)


@dataclass(frozen=True)
class FairDirection(Aggregator):
    """FedMGDA+: a step along the least-norm mixture of normalised updates, so that no client's loss should rise.

    g_i = u_i/‖u_i‖;   λ* = argmin ‖Σ λ_i g_i‖² over the simplex with |λ_i − λ⁰_i| <= ε, λ⁰ the weights;
    w + η Σ λ*_i g_i.   ε = 0 is the mean of normalised updates, ε = 1 leaves λ free.

        >>> import torch
        >>> messages, weights = torch.tensor([[1.0], [2.0], [3.0], [4.0], [90.0]]), torch.ones(5)
        >>> st.aggregators.FairDirection(epsilon=0.1)(messages, weights)
        tensor([3.])
    """

    epsilon: float = 0.1
    eta: float | None = None  # none: the median norm of the round's updates, so that the step has their size
    paper: ClassVar[str] = "Hu et al. 2022"

    def __post_init__(self) -> None:
        need(0 <= self.epsilon <= 1, f"FedMGDA+ needs epsilon in [0, 1]; got {self.epsilon}.")
        if self.eta is not None:
            positive("FedMGDA+", eta=self.eta)

    def __call__(
        self, messages: Tensor, weights: Tensor, reference: Tensor | None = None, losses: Tensor | None = None
    ) -> Tensor:
        u, start = updates(messages, reference)
        norms = _norms(u)
        g = u / norms.to(u.dtype).clamp(min=torch.finfo(u.dtype).tiny)[:, None]
        eta = float(np.median(norms.cpu().numpy())) if self.eta is None else self.eta
        return start + eta * fair_direction(g, weights, self.epsilon)
