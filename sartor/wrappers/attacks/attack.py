"""What an attack is: four sites, each left as it is until an attack changes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ...data.clients import Clients


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
