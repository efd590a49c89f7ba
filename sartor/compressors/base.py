"""What a compressor is: a lossy code of vectors, many clients at once, to be written to the wire and read back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..core import State
from ..errors import need
from ..seeds import hashes, stream
from .wire import Frame, numbers, read_numbers, sound


@dataclass(frozen=True)
class Draws:
    """What is random for a stack of clients in a round: a function of (seed, purpose, round, client) alone."""

    seed: int
    purpose: str
    round: int
    ids: np.ndarray  # [c]

    def uniform(self, size: int) -> Tensor:
        """[c, size] in [0, 1), each client its own."""
        found = hashes(self.seed, self.purpose, self.round, self.ids, np.arange(size))
        return torch.from_numpy((found >> np.uint64(11)).astype(np.float64) * 2.0**-53)

    def key(self) -> int:
        """A number that all clients share in this round."""
        return int(stream(self.seed, self.purpose, self.round).integers(2**63))


class Code(ABC):
    """The messages of c clients as they go on the wire, as tensors with a row for each."""

    kind: ClassVar[int]  # on the wire

    @abstractmethod
    def value(self) -> Tensor:
        """[c, size] what the receiver makes of them."""

    @abstractmethod
    def lengths(self) -> Tensor:
        """[c] bytes of each, its frame's header not counted: what `frame` takes, without writing it."""

    @abstractmethod
    def frame(self, row: int) -> Frame:
        """One client's message, to be written."""

    @classmethod
    @abstractmethod
    def read(cls, frame: Frame, last: Tensor | None) -> Code:
        """The code of one client from its frame, checked. `last` [size] is what it may refer to (LBGM's look-back)."""


class Compressor(ABC):
    """A lossy code of vectors: a frozen dataclass of settings.

    `feedback`: what a message leaves out is added to the client's next one. A field where it can be chosen.
    """

    paper: ClassVar[str] = "-"
    only_updates: ClassVar[bool] = False  # what it sends does not add up to what it was given (momentum)
    feedback: bool = False
    refers: ClassVar[bool] = False  # a message may refer to an earlier one, which the receiver must remember

    def memory(self, like: Tensor) -> State:
        """What a client remembers besides errors, before its first message; `like` [size] is a vector of zeros."""
        return {}

    def omega(self, size: int) -> float:
        """ω with E‖C(x) − x‖² <= ω‖x‖² for an unbiased code; 0 where ‖C(x) − x‖ <= ‖x‖ for every x."""
        return 0.0

    @abstractmethod
    def encode(self, x: Tensor, memory: State, draws: Draws) -> tuple[Code, State]:
        """The code of x [c, size], and what the clients remember now."""

    @abstractmethod
    def most(self, size: int, element: int, round: int) -> int:
        """The most bytes that a message of `size` numbers of `element` bytes can take in this round, without header."""


@dataclass
class Raw(Code):
    """The numbers as they are."""

    x: Tensor
    kind: ClassVar[int] = 0

    def value(self) -> Tensor:
        return self.x

    def lengths(self) -> Tensor:
        return torch.full((len(self.x),), self.x.shape[1] * self.x.element_size())

    def frame(self, row: int) -> Frame:
        return Frame(self.kind, self.x.shape[1], self.x.dtype, numbers(self.x[row]))

    @classmethod
    def read(cls, frame: Frame, last: Tensor | None) -> Raw:
        x = read_numbers(frame.payload, frame.dtype)
        sound(len(x) == frame.size, f"it holds {len(x)} numbers in place of {frame.size}")
        return cls(x[None])


def check_k(owner: str, k: float) -> None:
    """Refuse what is neither a share nor a number of coordinates."""
    good = k > 0 and (k <= 1 or k % 1 == 0)  # infinity and NaN leave a rest, NaN
    need(good, f"{owner} needs k in (0, 1], a share of the numbers, or a whole number above 1, their count; got {k}.")


def count(k: float, size: int) -> int:
    """How many numbers k is of `size`: a share up to 1, else a count; at least one, at most all."""
    return min(size, max(1, round(k * size if k <= 1 else k)))
