"""Attacks by one client on its own: on its gradients and on its message."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...data.clients import Clients
from ...errors import one_of, positive
from .attack import Attack
from .data import LabelPoison


@dataclass(frozen=True)
class GradientFlip(Attack):
    """Every gradient is multiplied by −1: hostile clients climb their loss.

    For example:

        >>> some = st.Attacked(st.attacks.GradientFlip(), 0.2)
        >>> result = st.fit(st.FedAvg(aggregate=st.aggregators.Median()), model, clients, rounds=2, attack=some)
    """

    paper: ClassVar[str] = "Li et al. 2019"
    site: ClassVar[str] = "gradient"
    gradient: ClassVar[float | None] = -1.0


_FLAME = math.sqrt(0.1)  # "the noise variance is set to 0.1"


def _normal(draw: np.random.Generator, std: float, like: Tensor) -> Tensor:
    return torch.from_numpy(draw.normal(0.0, std, like.shape)).to(like)


@dataclass(frozen=True)
class _Drawn(Attack):
    """An attack that FLAME and Lp-Proj share and draw from N(0, std²) of their own: `like` says whose."""

    std: float | None = None  # none: as in `like`
    like: str = "flame"
    paper: ClassVar[str] = "FLAME, Lp-Proj"
    site: ClassVar[str] = "message"
    known: ClassVar[dict[str, float]] = {}

    def __post_init__(self) -> None:
        one_of(type(self).__name__, "like", self.like, self.known)
        if self.std is not None:
            positive(type(self).__name__, std=self.std)

    def deviation(self) -> float:
        return self.known[self.like] if self.std is None else self.std


@dataclass(frozen=True)
class SameValue(_Drawn):
    """The message is p·1 with p ~ N(0, std²), drawn anew in every round.

    For example:

        >>> some = st.Attacked(st.attacks.SameValue(std=1.0), 0.2)
        >>> result = st.fit(st.FedAvg(aggregate=st.aggregators.Median()), model, clients, rounds=2, attack=some)
    """

    known: ClassVar[dict[str, float]] = {"flame": _FLAME, "lp-proj": 100.0}

    def message(self, honest: Tensor, base: Tensor, draw: np.random.Generator, cohort: int) -> Tensor:
        return torch.full_like(honest, draw.normal(0.0, self.deviation()))


@dataclass(frozen=True)
class SignFlip(_Drawn):
    """The message is −|p| times the honest one with p ~ N(0, std²), drawn anew in every round.

    For example:

        >>> some = st.Attacked(st.attacks.SignFlip(like="lp-proj"), 0.2)
        >>> result = st.fit(st.FedAvg(aggregate=st.aggregators.Median()), model, clients, rounds=2, attack=some)
    """

    known: ClassVar[dict[str, float]] = {"flame": _FLAME, "lp-proj": 10.0}

    def message(self, honest: Tensor, base: Tensor, draw: np.random.Generator, cohort: int) -> Tensor:
        return -abs(draw.normal(0.0, self.deviation())) * honest


@dataclass(frozen=True)
class Gaussian(_Drawn):
    """The message is N(0, std² I).

    For example:

        >>> some = st.Attacked(st.attacks.Gaussian(std=1.0), 0.2)
        >>> result = st.fit(st.FedAvg(aggregate=st.aggregators.Median()), model, clients, rounds=2, attack=some)
    """

    known: ClassVar[dict[str, float]] = {"flame": _FLAME, "lp-proj": 100.0}

    def message(self, honest: Tensor, base: Tensor, draw: np.random.Generator, cohort: int) -> Tensor:
        return _normal(draw, self.deviation(), honest)


@dataclass(frozen=True)
class RandomUpdate(Attack):
    """The update is N(0, s² I) with s the standard deviation of the honest update's own numbers.

    For example:

        >>> some = st.Attacked(st.attacks.RandomUpdate(), 0.2)
        >>> result = st.fit(st.FedAvg(aggregate=st.aggregators.Median()), model, clients, rounds=2, attack=some)
    """

    paper: ClassVar[str] = "Ditto A2"
    site: ClassVar[str] = "message"

    def message(self, honest: Tensor, base: Tensor, draw: np.random.Generator, cohort: int) -> Tensor:
        s = float((honest - base).double().std(correction=0))
        return base + _normal(draw, s if math.isfinite(s) else 0.0, honest)


@dataclass(frozen=True)
class ModelReplacement(Attack):
    """The update of poisoned training is scaled by the number of clients asked, so that it replaces the average.

    For example:

        >>> some = st.Attacked(st.attacks.ModelReplacement(scale=2.0), 0.2)
        >>> result = st.fit(st.FedAvg(aggregate=st.aggregators.Median()), model, clients, rounds=2, attack=some)
    """

    scale: float | None = None  # none: the number of clients asked per round
    poison: bool = True  # random labels, as in the authors' code; false: an honest update, scaled
    paper: ClassVar[str] = "Ditto A3"
    site: ClassVar[str] = "data, message"

    def __post_init__(self) -> None:
        if self.scale is not None:
            positive("model-replacement", scale=self.scale)

    def data(self, clients: Clients, hostile: frozenset[int], seed: int) -> Clients:
        return LabelPoison().data(clients, hostile, seed) if self.poison else clients

    def message(self, honest: Tensor, base: Tensor, draw: np.random.Generator, cohort: int) -> Tensor:
        return base + (cohort if self.scale is None else self.scale) * (honest - base)


@dataclass(frozen=True)
class ScaledPoison(Attack):
    """Training labels are random, and the message is multiplied by N(0, std²), drawn anew in every round.

    For example:

        >>> some = st.Attacked(st.attacks.ScaledPoison(std=5.0), 0.2)
        >>> result = st.fit(st.FedAvg(aggregate=st.aggregators.Median()), model, clients, rounds=2, attack=some)
    """

    std: float = 20.0
    paper: ClassVar[str] = "Lp-Proj"
    site: ClassVar[str] = "data, message"

    def __post_init__(self) -> None:
        positive("scaled-poison", std=self.std)

    def data(self, clients: Clients, hostile: frozenset[int], seed: int) -> Clients:
        return LabelPoison().data(clients, hostile, seed)

    def message(self, honest: Tensor, base: Tensor, draw: np.random.Generator, cohort: int) -> Tensor:
        return draw.normal(0.0, self.std) * honest
