"""Attacks: what hostile clients do to the federation, at one of four sites: their data, their gradients, their own
message, or all messages at once.

An attack acts on the message as it is sent: a model for FedAvg, u for FLAME, a point of the subspace for Lp-Proj. Where
a paper attacks updates, the update is the message minus what the client was sent. Who is hostile: see hostile.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..data.clients import Clients
from ..errors import SartorError, need, one_of, positive
from ..seeds import stream


@dataclass(frozen=True)
class Attack:
    """No attack: every site is left as it is. An attack changes one or two of them."""

    paper: ClassVar[str] = "-"
    site: ClassVar[str] = "none"
    gradient: ClassVar[float | None] = None  # the gradient's factor at hostile clients
    sees_all: ClassVar[bool] = False

    def data(self, clients: Clients, hostile: frozenset[int], seed: int) -> Clients:
        """The clients, with other training data at the hostile ones."""
        return clients

    def message(self, honest: Tensor, base: Tensor, draw: np.random.Generator, cohort: int) -> Tensor:
        """What a hostile client sends in place of its honest message [k]; `base` [k] is what it was sent."""
        return honest

    def together(self, honest: Tensor, base: Tensor, hostile: Tensor) -> Tensor:
        """What the hostile clients send, knowing all messages [n, k]; one row for each True of `hostile` [n]."""
        return honest[hostile]


# --- data -------------------------------------------------------------------------------------------------------------


def _labels(name: str, clients: Clients) -> int:
    """The number of classes; 2 for targets −1/+1."""
    if clients.classes is None:
        raise SartorError(f"{name} needs labels; the targets here are numbers. Take an attack on messages instead.")
    need(clients.classes >= 2, f"{name} needs at least 2 classes; got {clients.classes}.")
    return clients.classes


def relabelled(clients: Clients, hostile: frozenset[int], seed: int, share: float, wrong: bool) -> Clients:
    """A share of the hostile clients' training labels drawn anew, uniformly; `wrong`: never the true one."""
    y, k = clients.y.clone(), _labels("label poisoning", clients)
    for i in sorted(hostile):
        draw = stream(seed, "labels", client=i)
        rows = clients.rows(i, "train")
        count = rows.stop - rows.start
        at = rows.start + draw.permutation(count)[: math.floor(share * count + 0.5)]
        if clients.y.is_floating_point():  # −1/+1
            y[at] = -y[at]
        else:
            new = draw.integers(k - wrong, size=len(at))
            y[at] = (y[at] + 1 + torch.from_numpy(new)) % k if wrong else torch.from_numpy(new)
    return replace(clients, y=y)


@dataclass(frozen=True)
class LabelPoison(Attack):
    """All training labels are uniformly random; flipped where there are two."""

    paper: ClassVar[str] = "Ditto A1, FLAME"
    site: ClassVar[str] = "data"

    def data(self, clients: Clients, hostile: frozenset[int], seed: int) -> Clients:
        return relabelled(clients, hostile, seed, 1.0, wrong=_labels("label-poison", clients) == 2)


@dataclass(frozen=True)
class DirtyLabels(Attack):
    """A share of the training labels is wrong, each uniformly among the other classes."""

    share: float = 0.2  # FedAMP: 0.2, 0.4, 0.6, at two of five clients
    paper: ClassVar[str] = "FedAMP 4.3"
    site: ClassVar[str] = "data"

    def __post_init__(self) -> None:
        need(0 < self.share <= 1, f"dirty-labels needs share in (0, 1]; got {self.share}.")

    def data(self, clients: Clients, hostile: frozenset[int], seed: int) -> Clients:
        _labels("dirty-labels", clients)
        return relabelled(clients, hostile, seed, self.share, wrong=True)


# --- gradient ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradientFlip(Attack):
    """Every gradient is multiplied by −1: hostile clients climb their loss."""

    paper: ClassVar[str] = "Li et al. 2019"
    site: ClassVar[str] = "gradient"
    gradient: ClassVar[float | None] = -1.0


# --- own message ------------------------------------------------------------------------------------------------------

_FLAME = math.sqrt(0.1)  # "the noise variance is set to 0.1"


def _std(owner: str, std: float | None, like: str, known: dict[str, float]) -> float:
    one_of(owner, "like", like, known)
    if std is not None:
        positive(owner, std=std)
    return known[like] if std is None else std


def _normal(draw: np.random.Generator, std: float, like: Tensor) -> Tensor:
    return torch.from_numpy(draw.normal(0.0, std, like.shape)).to(like)


@dataclass(frozen=True)
class SameValue(Attack):
    """The message is p·1 with p ~ N(0, std²), drawn anew in every round."""

    std: float | None = None  # none: as in `like`
    like: str = "flame"  # √0.1 as printed; "flame-code" 0.01; "lp-proj" 100
    paper: ClassVar[str] = "FLAME, Lp-Proj"
    site: ClassVar[str] = "message"

    def __post_init__(self) -> None:
        self.deviation()

    def deviation(self) -> float:
        return _std("same-value", self.std, self.like, {"flame": _FLAME, "flame-code": 0.01, "lp-proj": 100.0})

    def message(self, honest: Tensor, base: Tensor, draw: np.random.Generator, cohort: int) -> Tensor:
        return torch.full_like(honest, draw.normal(0.0, self.deviation()))


@dataclass(frozen=True)
class SignFlip(Attack):
    """The message is −|p| times the honest one with p ~ N(0, std²), drawn anew in every round."""

    std: float | None = None  # none: as in `like`
    like: str = "flame"  # √0.1 as printed; "flame-code" 1; "lp-proj" 10
    paper: ClassVar[str] = "FLAME, Lp-Proj"
    site: ClassVar[str] = "message"

    def __post_init__(self) -> None:
        self.deviation()

    def deviation(self) -> float:
        return _std("sign-flip", self.std, self.like, {"flame": _FLAME, "flame-code": 1.0, "lp-proj": 10.0})

    def message(self, honest: Tensor, base: Tensor, draw: np.random.Generator, cohort: int) -> Tensor:
        return -abs(draw.normal(0.0, self.deviation())) * honest


@dataclass(frozen=True)
class Gaussian(Attack):
    """The message is N(0, std² I)."""

    std: float | None = None  # none: as in `like`
    like: str = "flame"  # √0.1 as printed; "flame-code" 1; "lp-proj" 100
    paper: ClassVar[str] = "FLAME, Lp-Proj"
    site: ClassVar[str] = "message"

    def __post_init__(self) -> None:
        self.deviation()

    def deviation(self) -> float:
        return _std("gaussian", self.std, self.like, {"flame": _FLAME, "flame-code": 1.0, "lp-proj": 100.0})

    def message(self, honest: Tensor, base: Tensor, draw: np.random.Generator, cohort: int) -> Tensor:
        return _normal(draw, self.deviation(), honest)


@dataclass(frozen=True)
class RandomUpdate(Attack):
    """The update is N(0, s² I) with s the standard deviation of the honest update's own numbers."""

    paper: ClassVar[str] = "Ditto A2"
    site: ClassVar[str] = "message"

    def message(self, honest: Tensor, base: Tensor, draw: np.random.Generator, cohort: int) -> Tensor:
        s = float((honest - base).double().std(correction=0))
        return base + _normal(draw, s if math.isfinite(s) else 0.0, honest)


@dataclass(frozen=True)
class ModelReplacement(Attack):
    """The update of poisoned training is scaled by the number of clients asked, so that it replaces the average."""

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
    """Training labels are random, and the message is multiplied by N(0, std²), drawn anew in every round."""

    std: float = 20.0
    paper: ClassVar[str] = "Lp-Proj"
    site: ClassVar[str] = "data, message"

    def __post_init__(self) -> None:
        positive("scaled-poison", std=self.std)

    def data(self, clients: Clients, hostile: frozenset[int], seed: int) -> Clients:
        return LabelPoison().data(clients, hostile, seed)

    def message(self, honest: Tensor, base: Tensor, draw: np.random.Generator, cohort: int) -> Tensor:
        return draw.normal(0.0, self.std) * honest


# --- all messages -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ALIE(Attack):
    """A little is enough: all send μ − zσ of the benign messages, coordinate by coordinate, just inside the crowd."""

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
    """Inner-product manipulation: all send −ε times the mean of the benign updates."""

    epsilon: float = 0.5  # a plain mean turns round where ε > (n − h)/h; a small ε is hard to tell from benign
    paper: ClassVar[str] = "Xie et al. 2019"
    site: ClassVar[str] = "all messages"
    sees_all: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive("ipm", epsilon=self.epsilon)

    def together(self, honest: Tensor, base: Tensor, hostile: Tensor) -> Tensor:
        mean = (honest - base)[~hostile].double().mean(0)
        return base[hostile] - (self.epsilon * mean).to(honest.dtype)


NAMES: dict[str, type[Attack]] = {
    "label-poison": LabelPoison,
    "dirty-labels": DirtyLabels,
    "gradient-flip": GradientFlip,
    "same-value": SameValue,
    "sign-flip": SignFlip,
    "gaussian": Gaussian,
    "random-update": RandomUpdate,
    "model-replacement": ModelReplacement,
    "scaled-poison": ScaledPoison,
    "alie": ALIE,
    "ipm": IPM,
}
