"""Attacks on the hostile clients' training data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from ...data.clients import Clients
from ...errors import SartorError, need
from ...seeds import stream
from .attack import Attack


def _labels(name: str, clients: Clients) -> int:
    """The number of classes; 2 for targets −1/+1."""
    if clients.classes is None:
        raise SartorError(f"{name} needs labels; the targets here are numbers. Take an attack on messages instead.")
    need(clients.y.dim() == 1, f"{name} needs one label per sample; got sequences. Take an attack on messages instead.")
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
    """All training labels are uniformly random; flipped where there are two.

    For example:

        >>> some = st.Attacked(st.attacks.LabelPoison(), 0.2)
        >>> result = st.fit(st.FedAvg(aggregate=st.aggregators.Median()), model, clients, rounds=2, attack=some)
    """

    paper: ClassVar[str] = "Ditto A1, FLAME"
    site: ClassVar[str] = "data"

    def data(self, clients: Clients, hostile: frozenset[int], seed: int) -> Clients:
        return relabelled(clients, hostile, seed, 1.0, wrong=_labels("label-poison", clients) == 2)


@dataclass(frozen=True)
class DirtyLabels(Attack):
    """A share of the training labels is wrong, each uniformly among the other classes.

    For example:

        >>> some = st.Attacked(st.attacks.DirtyLabels(share=0.4), 0.2)
        >>> result = st.fit(st.FedAvg(aggregate=st.aggregators.Median()), model, clients, rounds=2, attack=some)
    """

    share: float = 0.2  # FedAMP: 0.2, 0.4, 0.6, at two of five clients
    paper: ClassVar[str] = "FedAMP 4.3"
    site: ClassVar[str] = "data"

    def __post_init__(self) -> None:
        need(0 < self.share <= 1, f"dirty-labels needs share in (0, 1]; got {self.share}.")

    def data(self, clients: Clients, hostile: frozenset[int], seed: int) -> Clients:
        _labels("dirty-labels", clients)
        return relabelled(clients, hostile, seed, self.share, wrong=True)
