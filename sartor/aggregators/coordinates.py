"""Aggregators that treat every coordinate alone (Yin et al., "Byzantine-robust distributed learning", ICML 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core import Aggregator
from ..errors import need
from .base import by_columns


@dataclass(frozen=True)
class Median(Aggregator):
    """The median of each coordinate, weighted; holds while less than half of the weight is hostile.

    Of an even number of messages of equal weight: the mean of the two in the middle.

        >>> import torch
        >>> messages, weights = torch.tensor([[1.0], [2.0], [3.0], [4.0], [90.0]]), torch.ones(5)
        >>> st.aggregators.Median()(messages, weights)
        tensor([3.])
    """

    paper: ClassVar[str] = "Yin et al. 2018"

    def __call__(
        self, messages: Tensor, weights: Tensor, reference: Tensor | None = None, losses: Tensor | None = None
    ) -> Tensor:
        half = float(weights.double().sum()) / 2

        def median(x: Tensor) -> Tensor:
            x, order = x.sort(dim=1)
            below = weights.double()[order].cumsum(1)
            lower = (below < half * (1 - 1e-9)).sum(1, keepdim=True)  # the first that reaches half of the weight
            upper = (below <= half * (1 + 1e-9)).sum(1, keepdim=True)  # the first that exceeds it
            return (x.gather(1, lower)[:, 0] / 2) + (x.gather(1, upper)[:, 0] / 2)  # halved first: no overflow

        return by_columns(messages, median)


@dataclass(frozen=True)
class TrimmedMean(Aggregator):
    """The mean of each coordinate without its `share` smallest and its `share` largest values; holds for such a share.

    ⌊share · n⌋ values go on either side, whatever their weights; the mean of the others is weighted.

        >>> import torch
        >>> messages, weights = torch.tensor([[1.0], [2.0], [3.0], [4.0], [90.0]]), torch.ones(5)
        >>> st.aggregators.TrimmedMean(share=0.2)(messages, weights)
        tensor([3.])
    """

    share: float = 0.2
    paper: ClassVar[str] = "Yin et al. 2018"

    def __post_init__(self) -> None:
        need(
            0 <= self.share < 0.5,
            f"a trimmed mean needs share in [0, 0.5), or it trims everything; got {self.share}.",
        )

    def trimmed(self, n: int) -> int:
        """How many of n values go on either side."""
        return math.floor(self.share * n + 1e-9)

    def check(self, n: int) -> None:
        need(
            self.share == 0 or self.trimmed(n) >= 1,
            f"a trimmed mean with share {self.share:g} trims nobody of {n} messages; take share >= {1 / n:.2g}.",
        )

    def __call__(
        self, messages: Tensor, weights: Tensor, reference: Tensor | None = None, losses: Tensor | None = None
    ) -> Tensor:
        n = len(messages)
        kept = slice(self.trimmed(n), n - self.trimmed(n))

        def inner(x: Tensor) -> Tensor:
            x, order = x.sort(dim=1)
            w = weights[order[:, kept]]
            return torch.einsum("kn,kn->k", x[:, kept], w / w.sum(1, keepdim=True))

        return by_columns(messages, inner)
