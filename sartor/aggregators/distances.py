"""Aggregators that look at the distances between messages: Krum, multi-Krum, the geometric median.

All distances come from one matrix of inner products (`gram`); messages are not touched again until the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..core import Aggregator
from ..errors import need, positive
from .base import at_most, gram, rank


def squares(G: np.ndarray) -> np.ndarray:
    """[n, n] ‖m_i − m_j‖² from inner products; 0 where messages are equal but for rounding."""
    own = np.diagonal(G)
    away: np.ndarray = own[:, None] + own[None, :] - 2 * G
    return np.where(away <= 1e-14 * (own[:, None] + own[None, :]), 0.0, away)


def krum_scores(G: np.ndarray, f: int) -> np.ndarray:
    """[n] Σ ‖m_i − m_j‖² over the n − f − 2 messages j that are nearest to i."""
    n = len(G)
    away = squares(G)
    np.fill_diagonal(away, np.inf)  # nobody is his own neighbour
    scores: np.ndarray = np.sort(away, axis=1)[:, : max(1, n - f - 2)].sum(1) if n > 1 else np.zeros(1)
    return scores


def _tolerated(f: int | None, n: int) -> int:
    """f, or the most that n messages allow: n >= 2f + 3."""
    most = max(0, (n - 3) // 2)
    return most if f is None else min(f, most)


def _check_krum(owner: str, f: int | None, n: int) -> None:
    need(n >= 3, f"{owner} needs at least 3 messages a round; got {n}.")
    need(
        f is None or n >= 2 * f + 3,
        f"{owner} with f = {f} needs n >= 2f + 3 = {2 * (f or 0) + 3} messages a round; got {n}. "
        f"Take f <= {(n - 3) // 2} or a larger cohort.",
    )


@dataclass(frozen=True)
class Krum(Aggregator):
    """The one message that is nearest to its n − f − 2 nearest others; holds for f hostile of n >= 2f + 3.

    Weights are ignored: a message is taken or not.

        >>> import torch
        >>> messages, weights = torch.tensor([[1.0], [2.0], [3.0], [4.0], [90.0]]), torch.ones(5)
        >>> st.aggregators.Krum(f=1)(messages, weights)
        tensor([2.])
    """

    f: int | None = None  # hostile messages to be expected; none: the most that n allow, (n − 3) / 2
    paper: ClassVar[str] = "Blanchard et al. 2017"
    by_products: ClassVar[bool] = True

    def __post_init__(self) -> None:
        need(self.f is None or self.f >= 0, f"Krum needs f >= 0; got {self.f}.")

    def check(self, n: int) -> None:
        _check_krum("Krum", self.f, n)

    def __call__(
        self, messages: Tensor, weights: Tensor, reference: Tensor | None = None, losses: Tensor | None = None
    ) -> Tensor:
        return self.of_products(gram(messages, reference), messages, weights)

    def of_products(self, G: Tensor, messages: Tensor, weights: Tensor) -> Tensor:
        scores = krum_scores(G.cpu().numpy(), _tolerated(self.f, len(messages)))
        return messages[rank(scores, messages)[0]]


@dataclass(frozen=True)
class MultiKrum(Aggregator):
    """The weighted mean of the `keep` messages with the best Krum scores; holds for f hostile of n >= 2f + 3.

    For example:

        >>> import torch
        >>> messages, weights = torch.tensor([[1.0], [2.0], [3.0], [4.0], [90.0]]), torch.ones(5)
        >>> st.aggregators.MultiKrum(f=1)(messages, weights)
        tensor([2.5000])
    """

    f: int | None = None  # hostile messages to be expected; none: the most that n allow, (n − 3) / 2
    keep: int | None = None  # none: n − f − 2; the code of Ditto keeps n − f
    paper: ClassVar[str] = "Blanchard et al. 2017"
    by_products: ClassVar[bool] = True

    def __post_init__(self) -> None:
        need(self.f is None or self.f >= 0, f"multi-Krum needs f >= 0; got {self.f}.")
        need(self.keep is None or self.keep >= 1, f"multi-Krum needs keep >= 1; got {self.keep}.")

    def check(self, n: int) -> None:
        _check_krum("multi-Krum", self.f, n)
        at_most("multi-Krum", "keep", self.keep, n - _tolerated(self.f, n), n)

    def __call__(
        self, messages: Tensor, weights: Tensor, reference: Tensor | None = None, losses: Tensor | None = None
    ) -> Tensor:
        return self.of_products(gram(messages, reference), messages, weights)

    def of_products(self, G: Tensor, messages: Tensor, weights: Tensor) -> Tensor:
        n = len(messages)
        f = _tolerated(self.f, n)
        best = rank(krum_scores(G.cpu().numpy(), f), messages)[: self.keep or max(1, n - f - 2)]
        w = weights[best]
        return (w / w.sum()) @ messages[best]


@dataclass(frozen=True)
class GeometricMedian(Aggregator):
    """The point with the least weighted sum of distances to the messages; holds while less than half is hostile.

    A message that is that point is known by its slope: those of the others' distances do not outweigh it. Else
    smoothed Weiszfeld steps to convergence: m ← Σ β_i m_i / Σ β_i with β_i = w_i / max(ν, ‖m − m_i‖), where ν is
    `smooth` times the median distance. The point is a mixture of messages, so a step needs inner products only.

        >>> import torch
        >>> messages, weights = torch.tensor([[1.0], [2.0], [3.0], [4.0], [90.0]]), torch.ones(5)
        >>> st.aggregators.GeometricMedian()(messages, weights)
        tensor([3.])
    """

    smooth: float = 1e-6
    steps: int = 1000
    paper: ClassVar[str] = "Pillutla et al. 2022"
    by_products: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive("the geometric median", smooth=self.smooth, steps=self.steps)

    def __call__(
        self, messages: Tensor, weights: Tensor, reference: Tensor | None = None, losses: Tensor | None = None
    ) -> Tensor:
        return self.of_products(gram(messages, reference), messages, weights)

    def of_products(self, G: Tensor, messages: Tensor, weights: Tensor) -> Tensor:
        w = weights.double().cpu().numpy()
        mixture = self._mixture(G.cpu().numpy(), w / w.sum())
        return torch.from_numpy(mixture).to(messages) @ messages

    def _mixture(self, G: np.ndarray, w: np.ndarray) -> np.ndarray:
        best = _optimal(G, w)
        if best.any():
            alone: np.ndarray = best / best.sum()
            return alone
        mixture, own = w, np.diagonal(G)
        for _ in range(self.steps):
            away = np.sqrt(np.maximum(mixture @ G @ mixture - 2 * G @ mixture + own, 0.0))
            beta = w / np.maximum(away, self.smooth * float(np.median(away)))
            beta /= beta.sum()
            if float(np.abs(beta - mixture).max()) <= 1e-12:
                break
            mixture = beta
        return mixture


def _optimal(G: np.ndarray, w: np.ndarray) -> np.ndarray:
    """[n] the weight of each message that is a geometric median itself, else 0 (Vardi and Zhang's condition).

    It is where ‖Σ_i w_i (m_i − m_k)/‖m_i − m_k‖‖ <= the weight of all messages that equal m_k.
    """
    away = squares(G)
    apart = away > 0
    pull = np.where(apart, w[:, None] / np.sqrt(np.where(apart, away, 1.0)), 0.0)  # [i, k]
    total, toward = pull.sum(0), G @ pull
    slope = (pull * toward).sum(0) - 2 * total * np.diagonal(toward) + total**2 * np.diagonal(G)
    here = (~apart * w[:, None]).sum(0)
    found: np.ndarray = np.where(np.sqrt(np.maximum(slope, 0.0)) <= here * (1 + 1e-9), w, 0.0)
    return found
