"""Top-k: only the largest coordinates are sent (Stich, Cordonnier, Jaggi, "Sparsified SGD with memory", NeurIPS 2018).

    send C(e + x): its k coordinates of largest absolute value;   e = e + x − C(e + x)

e is the client's error feedback, kept by the wrapper (compression.py). On the wire: how many, where, and their values.
Where: a bit for each coordinate, or the positions in ⌈log₂ d⌉ bits each, whichever is shorter.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..core import State
from .base import Code, Compressor, Draws, check_k, count
from .wire import Frame, bits_for, numbers, packed, packed_length, read_numbers, sound, unpacked


@dataclass
class Sparse(Code):
    """Some coordinates and their values; the others are 0."""

    size: int
    at: Tensor  # [c, n] rising
    values: Tensor  # [c, n]
    kind: ClassVar[int] = 4

    def value(self) -> Tensor:
        return self.values.new_zeros(len(self.values), self.size).scatter_(1, self.at, self.values)

    def lengths(self) -> Tensor:
        n = self.values.shape[1]
        return torch.full((len(self.values),), sparse_length(n, self.size, self.values.element_size()))

    def frame(self, row: int) -> Frame:
        at, n = self.at[row].cpu().numpy(), self.at.shape[1]
        if _as_map(n, self.size):
            where = packed(np.isin(np.arange(self.size), at), 1)
        else:
            where = packed(at, bits_for(self.size))
        payload = struct.pack("<I", n) + where + numbers(self.values[row])
        return Frame(self.kind, self.size, self.values.dtype, payload)

    @classmethod
    def read(cls, frame: Frame, last: Tensor | None) -> Sparse:
        payload, size = frame.payload, frame.size
        sound(len(payload) >= 4, "it does not say how many coordinates it has")
        (n,) = struct.unpack_from("<I", payload)
        sound(n <= size, f"it has {n} coordinates of {size}")
        length = sparse_length(n, size, frame.dtype.itemsize)
        sound(len(payload) == length, f"{n} coordinates of {size} take {length} bytes, and {len(payload)} came")
        where = payload[4 : length - n * frame.dtype.itemsize]
        at = np.flatnonzero(unpacked(where, size, 1)) if _as_map(n, size) else unpacked(where, n, bits_for(size))
        rising = len(at) == n and (n == 0 or (int(at[-1]) < size and bool((np.diff(at) > 0).all())))
        sound(rising, "its coordinates do not rise, or go beyond the vector")
        values = read_numbers(payload[length - n * frame.dtype.itemsize :], frame.dtype)
        return cls(size, torch.from_numpy(at.astype(np.int64))[None], values[None])


def _as_map(n: int, size: int) -> bool:
    """Whether a bit for each coordinate is shorter than positions."""
    return size <= n * bits_for(size)


def sparse_length(n: int, size: int, element: int) -> int:
    """Bytes of n values of `size` and where they are."""
    return 4 + packed_length(min(size, n * bits_for(size)), 1) + n * element


def largest(x: Tensor, n: int) -> Sparse:
    """The n coordinates of largest absolute value of each row."""
    at = x.abs().topk(n, dim=1, sorted=False).indices.sort(1).values
    return Sparse(x.shape[1], at, x.gather(1, at))


@dataclass(frozen=True)
class TopK(Compressor):
    """The largest coordinates, the rest remembered and added to the next message (error feedback).

    For example:

        >>> less = st.Traffic(compress=st.compressors.TopK(k=0.05))
        >>> result = st.fit(st.FedAvg(), model, clients, rounds=2, traffic=less)
        >>> result.summary["bytes_up"] < 2 * 6 * 4 * 650  # 650 numbers of 4 bytes from 6 clients in 2 rounds
        True
    """

    k: float = 0.01  # the share of coordinates that is sent; above 1: how many
    feedback: bool = True
    paper: ClassVar[str] = "Stich et al. 2018"

    def __post_init__(self) -> None:
        check_k("top-k", self.k)

    def encode(self, x: Tensor, memory: State, draws: Draws) -> tuple[Code, State]:
        return largest(x, count(self.k, x.shape[1])), memory

    def most(self, size: int, element: int, round: int) -> int:
        return sparse_length(count(self.k, size), size, element)
