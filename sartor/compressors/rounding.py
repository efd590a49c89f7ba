"""Numbers in fewer bits: float16, and uniform grids of 8 and 4 bits.

    intb:  s = max_j |x_j| / (2^{b−1} − 1),   q_j = round(x_j / s) in −(2^{b−1} − 1) .. 2^{b−1} − 1,   value s q_j

The symmetric per-tensor grid of Jacob et al., "Quantization and training of neural networks for efficient
integer-arithmetic-only inference", CVPR 2018 (and of QSGD with the largest number as its norm), rounded to the nearest:
|value − x_j| <= s/2. float16 is IEEE 754 binary16 (Micikevicius et al., "Mixed precision training", ICLR 2018); numbers
beyond ±65504, its largest, become ±65504.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core import State
from .base import Code, Compressor, Draws
from .wire import Frame, numbers, packed, packed_length, read_numbers, sound, unpacked

_LARGEST = 65504.0


@dataclass
class Halves(Code):
    """float16 numbers."""

    x: Tensor  # [c, size] float16
    dtype: torch.dtype  # what they become again
    kind: ClassVar[int] = 1

    def value(self) -> Tensor:
        return self.x.to(self.dtype)

    def lengths(self) -> Tensor:
        return torch.full((len(self.x),), 2 * self.x.shape[1])

    def frame(self, row: int) -> Frame:
        return Frame(self.kind, self.x.shape[1], self.dtype, numbers(self.x[row]))

    @classmethod
    def read(cls, frame: Frame, last: Tensor | None) -> Halves:
        x = read_numbers(frame.payload, torch.float16)
        sound(len(x) == frame.size, f"it holds {len(x)} numbers in place of {frame.size}")
        return cls(x[None], frame.dtype)


@dataclass
class Grid(Code):
    """Whole numbers −levels..levels and the length of a step."""

    q: Tensor  # [c, size], whole numbers in the run's precision
    s: Tensor  # [c, 1]
    bits: ClassVar[int]

    def value(self) -> Tensor:
        return self.q * self.s

    def lengths(self) -> Tensor:
        return torch.full((len(self.q),), self.s.element_size() + packed_length(self.q.shape[1], self.bits))

    def frame(self, row: int) -> Frame:
        q = (self.q[row] + levels(self.bits)).cpu().numpy()
        payload = numbers(self.s[row]) + packed(q, self.bits)
        return Frame(self.kind, self.q.shape[1], self.q.dtype, payload)

    @classmethod
    def read(cls, frame: Frame, last: Tensor | None) -> Grid:
        at = frame.dtype.itemsize
        sound(len(frame.payload) >= at, "it has no step length")
        s = read_numbers(frame.payload[:at], frame.dtype)
        q = unpacked(frame.payload[at:], frame.size, cls.bits) - levels(cls.bits)
        sound(int(q.max(initial=0)) <= levels(cls.bits), "a level is not on the grid")
        return cls(torch.from_numpy(q)[None].to(frame.dtype), s[None])


class Grid8(Grid):
    """8 bits a number."""

    kind = 2
    bits = 8


class Grid4(Grid):
    """4 bits a number."""

    kind = 3
    bits = 4


def levels(bits: int) -> int:
    """2^{b−1} − 1."""
    return int(2 ** (bits - 1) - 1)


def nearest(x: Tensor, code: type[Grid]) -> Grid:
    """x on its grid, rounded to the nearest."""
    s = x.abs().amax(1, keepdim=True) / levels(code.bits)
    return code(torch.where(s > 0, (x / s).round_(), 0), s)


@dataclass(frozen=True)
class Int8(Compressor):
    """Uniform 8-bit numbers: 255 levels up to the largest one, the nearest is taken.

    For example:

        >>> less = st.Traffic(compress=st.compressors.Int8())
        >>> result = st.fit(st.FedAvg(), model, clients, rounds=2, traffic=less)
        >>> result.summary["bytes_up"] < 2 * 6 * 4 * 650  # 650 numbers of 4 bytes from 6 clients in 2 rounds
        True
    """

    feedback: bool = False
    paper: ClassVar[str] = "Jacob et al. 2018"

    def encode(self, x: Tensor, memory: State, draws: Draws) -> tuple[Code, State]:
        return nearest(x, Grid8), memory

    def most(self, size: int, element: int, round: int) -> int:
        return element + packed_length(size, 8)


@dataclass(frozen=True)
class Int4(Compressor):
    """Uniform 4-bit numbers: 15 levels up to the largest one, the nearest is taken.

    For example:

        >>> less = st.Traffic(compress=st.compressors.Int4(feedback=True))
        >>> result = st.fit(st.FedAvg(), model, clients, rounds=2, traffic=less)
        >>> result.summary["bytes_up"] < 2 * 6 * 4 * 650  # 650 numbers of 4 bytes from 6 clients in 2 rounds
        True
    """

    feedback: bool = False
    paper: ClassVar[str] = "Jacob et al. 2018"

    def encode(self, x: Tensor, memory: State, draws: Draws) -> tuple[Code, State]:
        return nearest(x, Grid4), memory

    def most(self, size: int, element: int, round: int) -> int:
        return element + packed_length(size, 4)


@dataclass(frozen=True)
class Float16(Compressor):
    """Half precision: 11 significant bits, numbers up to 65504.

    For example:

        >>> less = st.Traffic(compress=st.compressors.Float16())
        >>> result = st.fit(st.FedAvg(), model, clients, rounds=2, traffic=less)
        >>> result.summary["bytes_up"] < 2 * 6 * 4 * 650  # 650 numbers of 4 bytes from 6 clients in 2 rounds
        True
    """

    feedback: bool = False
    paper: ClassVar[str] = "Micikevicius et al. 2018"

    def encode(self, x: Tensor, memory: State, draws: Draws) -> tuple[Code, State]:
        return Halves(x.clamp(-_LARGEST, _LARGEST).half(), x.dtype), memory

    def most(self, size: int, element: int, round: int) -> int:
        return 2 * size
