"""QSGD (Alistarh, Grubic, Li, Tomioka, Vojnovic, "Communication-efficient SGD via gradient quantization and encoding",
NIPS 2017).

    Q_s(x)_j = ‖x‖₂ · sgn(x_j) · ξ_j(x, s),   ξ_j = l/s or (l+1)/s by chance, E ξ_j = |x_j| / ‖x‖₂           (3)
    E Q_s(x) = x,   E‖Q_s(x) − x‖² <= min(n/s², √n/s) ‖x‖²                                                    Lemma 3.1

Vectors are cut into buckets of n numbers, each with its own norm (Section 4). On the wire: the norms, and the shorter
of the paper's code (for each number that is not 0 how far from the last one and its level in Elias' omega code, and its
sign) and all levels in ⌈log₂(2s + 1)⌉ bits each; so the length depends on the data.
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
from . import elias
from .base import Code, Compressor, Draws
from .wire import Frame, bits_for, numbers, packed, packed_length, read_numbers, sound, unpacked

_HEAD = struct.Struct("<IIBI")  # s, n, which code, how many numbers are not 0
_FLAT, _ELIAS = 0, 1
_MOST_LEVELS = 2**20


@dataclass
class Levels(Code):
    """Signed levels −s..s, and the norm of each bucket."""

    q: Tensor  # [c, size] whole numbers in the run's precision
    norms: Tensor  # [c, buckets]
    s: int
    bucket: int
    kind: ClassVar[int] = 5

    def value(self) -> Tensor:
        size = self.q.shape[1]
        return self.q * (self.norms / self.s).repeat_interleave(self.bucket, dim=1)[:, :size]

    def lengths(self) -> Tensor:
        each = self._elias_bits()
        flat = packed_length(self.q.shape[1], bits_for(2 * self.s + 1))
        head = _HEAD.size + self.norms.shape[1] * self.norms.element_size()
        return head + torch.from_numpy(np.minimum(-(-each // 8), flat))

    def _elias_bits(self) -> np.ndarray:
        """[c] bits of the paper's code."""
        q = self.q.cpu().numpy()
        row, at = np.nonzero(q)
        gap = np.diff(at, prepend=-1)
        first = np.diff(row, prepend=-1) > 0
        gap[first] = at[first] + 1
        table = elias.lengths(max(q.shape[1], self.s))
        bits = table[gap] + table[np.abs(q[row, at]).astype(np.int64)] + 1
        return np.bincount(row, bits, minlength=len(q)).astype(np.int64)

    def frame(self, row: int) -> Frame:
        q = self.q[row].cpu().numpy().astype(np.int64)
        at = np.flatnonzero(q)
        flat = bits_for(2 * self.s + 1)
        bits = "".join(
            elias.word(int(gap)) + "01"[int(level < 0)] + elias.word(abs(int(level)))
            for gap, level in zip(np.diff(at, prepend=-1), q[at], strict=True)
        )
        shorter = packed_length(len(bits), 1) < packed_length(len(q), flat)
        body = packed(np.frombuffer(bits.encode(), np.uint8) - ord("0"), 1) if shorter else packed(q + self.s, flat)
        head = _HEAD.pack(self.s, self.bucket, _ELIAS if shorter else _FLAT, len(at))
        return Frame(self.kind, len(q), self.q.dtype, head + numbers(self.norms[row]) + body)

    @classmethod
    def read(cls, frame: Frame, last: Tensor | None) -> Levels:
        sound(len(frame.payload) >= _HEAD.size, "it has no levels")
        s, bucket, code, filled = _HEAD.unpack_from(frame.payload)
        sane = 1 <= s < _MOST_LEVELS and 1 <= bucket <= frame.size and code in (_FLAT, _ELIAS)
        sound(sane, f"{s} levels in buckets of {bucket} make no sense for {frame.size} numbers")
        sound(filled <= frame.size, f"it has {filled} numbers that are not 0 of {frame.size}")
        end = _HEAD.size + -(-frame.size // bucket) * frame.dtype.itemsize
        sound(len(frame.payload) >= end, "norms are missing")
        norms = read_numbers(frame.payload[_HEAD.size : end], frame.dtype)
        body = frame.payload[end:]
        if code == _FLAT:
            q = unpacked(body, frame.size, bits_for(2 * s + 1)) - s
        else:
            q = _from_elias(body, frame.size, filled, s)
        sound(int(np.count_nonzero(q)) == filled and int(q.max(initial=0)) <= s, "its levels are not those declared")
        return cls(torch.from_numpy(q)[None].to(frame.dtype), norms[None], s, bucket)


def _from_elias(body: bytes, size: int, filled: int, s: int) -> np.ndarray:
    planes = np.unpackbits(np.frombuffer(body, dtype=np.uint8), bitorder="little")
    bits = (planes + ord("0")).tobytes().decode("ascii")
    q, place, at = np.zeros(size, dtype=np.int64), -1, 0
    for _ in range(filled):
        gap, at = elias.read(bits, at)
        place += gap
        sound(place < size and at < len(bits), "it goes beyond the vector")
        sign = -1 if bits[at] == "1" else 1
        level, at = elias.read(bits, at + 1)
        sound(level <= s, f"a level is {level} of {s}")
        q[place] = sign * level
    sound(len(bits) - at < 8 and "1" not in bits[at:], "bits beyond its end are set")
    return q


@dataclass(frozen=True)
class QSGD(Compressor):
    """Random rounding to a few levels of the norm, unbiased, in Elias' code.

    For example:

        >>> less = st.Traffic(compress=st.compressors.QSGD(s=8))
        >>> result = st.fit(st.FedAvg(), model, clients, rounds=2, traffic=less)
        >>> result.summary["bytes_up"] < 2 * 6 * 4 * 650  # 650 numbers of 4 bytes from 6 clients in 2 rounds
        True
    """

    s: int = 4  # levels beside 0
    bucket: int = 512  # numbers that share a norm
    feedback: bool = False
    paper: ClassVar[str] = "Alistarh et al. 2017"

    def __post_init__(self) -> None:
        need(1 <= self.s < _MOST_LEVELS, f"qsgd needs 1 <= s < {_MOST_LEVELS} levels; got {self.s}.")
        need(1 <= self.bucket < 2**31, f"qsgd needs bucket >= 1; got {self.bucket}.")

    def omega(self, size: int) -> float:
        n = min(size, self.bucket)
        return min(n / self.s**2, math.sqrt(n) / self.s)

    def encode(self, x: Tensor, memory: State, draws: Draws) -> tuple[Code, State]:
        size, n = x.shape[1], min(self.bucket, x.shape[1])
        padded = torch.nn.functional.pad(x, (0, -size % n)).view(len(x), -1, n)
        norms = torch.linalg.vector_norm(padded, dim=2)
        scaled = (padded.abs() * (self.s / norms[..., None])).view(len(x), -1)[:, :size]
        level = (scaled + draws.uniform(size).to(x)).floor_().clamp_(max=self.s)
        there = ((norms > 0) & norms.isfinite()).repeat_interleave(n, dim=1)[:, :size]
        return Levels(torch.where(there, level * x.sign(), 0), norms, self.s, n), memory

    def most(self, size: int, element: int, round: int) -> int:
        buckets = -(-size // min(self.bucket, size))
        return _HEAD.size + buckets * element + packed_length(size, bits_for(2 * self.s + 1))
