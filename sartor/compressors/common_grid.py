"""Multiples of one step that all clients share, in words of 16 or 32 bits: codes that can be added.

    q_j = round(x_j / s) in −L .. L,   L = 2^{b−1} − 1,   value s q_j

As in Bonawitz, Salehi, Konečný, McMahan, Gruteser, "Federated learning with autotuned communication-efficient secure
aggregation", 2019: since s is no client's own, the sum of codes is the code of the sum, also under masks modulo 2^b
(wrappers/secure_sum.py). They rotate at random, round at random and set s by what the sum of a round looks like; here s
is a setting, numbers go to the nearest multiple, and what is lost, numbers beyond ±sL among it, is fed back.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..core import State
from ..errors import need
from .base import Code, Compressor, Draws
from .wire import Frame, sound

WORDS = {16: torch.int16, 32: torch.int32}
_HEAD = struct.Struct("<dB")  # step, bits of a word


@dataclass
class Multiples(Code):
    """Whole numbers and the step that they count."""

    q: Tensor  # [c, size] float64
    step: float
    bits: int
    dtype: torch.dtype  # of the numbers that they stand for
    kind: ClassVar[int] = 9

    def value(self) -> Tensor:
        return (self.q * self.step).to(self.dtype)

    def lengths(self) -> Tensor:
        return torch.full((len(self.q),), _HEAD.size + self.q.shape[1] * self.bits // 8)

    def frame(self, row: int) -> Frame:
        q = self.q[row].cpu().numpy()
        whole = bool(np.isfinite(q).all())
        head = _HEAD.pack(self.step if whole else math.nan, self.bits)  # a broken vector stays broken
        words = (q if whole else np.zeros_like(q)).astype(f"<i{self.bits // 8}")
        return Frame(self.kind, len(q), self.dtype, head + words.tobytes())

    @classmethod
    def read(cls, frame: Frame, last: Tensor | None) -> Multiples:
        sound(len(frame.payload) >= _HEAD.size, "it has no step length")
        step, bits = _HEAD.unpack_from(frame.payload)
        good = bits in WORDS and math.isfinite(step) and step > 0
        sound(good, f"there is no grid with a step of {step} in words of {bits} bits")
        there, wanted = len(frame.payload) - _HEAD.size, frame.size * bits // 8
        sound(there == wanted, f"{frame.size} words of {bits} bits take {wanted} bytes, and {there} came")
        words = np.frombuffer(frame.payload, f"<i{bits // 8}", offset=_HEAD.size)
        return cls(torch.from_numpy(words.astype(np.float64))[None], step, bits, frame.dtype)


@dataclass(frozen=True)
class CommonGrid(Compressor):
    """Multiples of a step that all clients share, in 16 or 32 bits.

    For example:

        >>> less = st.Traffic(compress=st.compressors.CommonGrid())
        >>> result = st.fit(st.FedAvg(), model, clients, rounds=2, traffic=less)
        >>> result.summary["bytes_up"] < 2 * 6 * 4 * 650  # 650 numbers of 4 bytes from 6 clients in 2 rounds
        True
    """

    step: float = 2.0**-12
    bits: int = 16
    feedback: bool = True
    paper: ClassVar[str] = "Bonawitz et al. 2019"

    def __post_init__(self) -> None:
        good = isinstance(self.step, (int, float)) and 0 < self.step < math.inf
        need(good, f"grid needs a step above 0; got {self.step}.")
        need(self.bits in WORDS, f"grid needs words of {' or '.join(map(str, WORDS))} bits; got {self.bits}.")

    def levels(self, added: int = 1) -> int:
        """The largest multiple of which `added` can be added up in one word."""
        return int((2 ** (self.bits - 1) - 1) // added)

    def nearest(self, x: Tensor, added: int = 1) -> Tensor:
        """[c, size] float64: the multiples nearest to x; what is not finite stays so."""
        q, most = (x.double() / self.step).round_(), self.levels(added)
        return torch.where(q.isinf(), q, q.clamp(-most, most))

    def encode(self, x: Tensor, memory: State, draws: Draws) -> tuple[Code, State]:
        return Multiples(self.nearest(x), self.step, self.bits, x.dtype), memory

    def most(self, size: int, element: int, round: int) -> int:
        return _HEAD.size + size * self.bits // 8
