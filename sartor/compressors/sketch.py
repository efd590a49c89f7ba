"""Count-sketch (Charikar, Chen, Farach-Colton 2002), as sketched SGD sends it (Ivkin et al., NeurIPS 2019).

    S_{r, h_r(j)} += σ_r(j) x_j   for r = 1..R,   with random columns h_r(j) and signs σ_r(j) = ±1
    x̂_j = median_r σ_r(j) S_{r, h_r(j)};   E x̂_j = x_j,   Var of one row <= ‖x‖² / columns

The median is unbiased since every row's error is as likely as its opposite. Columns and signs are a function of a key
that all clients share in a round and that stands in the message. Sketched SGD keeps the largest estimates only and then
fetches their true values in a second exchange; here there is one exchange and all estimates count, scaled down so that
error feedback converges.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..core import State
from ..errors import need
from ..seeds import hashes
from .base import Code, Compressor, Draws, check_k, count
from .wire import Frame, numbers, read_numbers, sound

_HEAD = struct.Struct("<QBI")  # key, rows, columns


_MOST_ROWS = 15  # so that reading a sketch takes no more memory than so many vectors


@lru_cache(maxsize=4)
def places(key: int, rows: int, columns: int, size: int) -> tuple[Tensor, Tensor]:
    """h [R, size] columns and σ [R, size] signs."""
    drawn = hashes(key, "sketch", 0, np.arange(rows), np.arange(size))
    column = (drawn >> np.uint64(1)) % np.uint64(columns)
    sign = 1.0 - 2.0 * (drawn & np.uint64(1)).astype(np.float64)
    return torch.from_numpy(column.astype(np.int64)), torch.from_numpy(sign)


@dataclass
class SketchCode(Code):
    """The sketch of each client."""

    S: Tensor  # [c, R, columns]
    key: int
    size: int
    kind: ClassVar[int] = 6

    def value(self) -> Tensor:
        h, sigma = places(self.key, self.S.shape[1], self.S.shape[2], self.size)
        each = self.S.gather(2, h.to(self.S.device).expand(len(self.S), -1, -1)) * sigma.to(self.S)
        ranked, middle = each.sort(1).values, self.S.shape[1] // 2
        return ranked[:, middle] if self.S.shape[1] % 2 else (ranked[:, middle - 1] + ranked[:, middle]) / 2

    def lengths(self) -> Tensor:
        return torch.full((len(self.S),), _HEAD.size + self.S[0].numel() * self.S.element_size())

    def frame(self, row: int) -> Frame:
        head = _HEAD.pack(self.key, self.S.shape[1], self.S.shape[2])
        return Frame(self.kind, self.size, self.S.dtype, head + numbers(self.S[row].reshape(-1)))

    @classmethod
    def read(cls, frame: Frame, last: Tensor | None) -> SketchCode:
        sound(len(frame.payload) >= _HEAD.size, "it has no sketch")
        key, rows, columns = _HEAD.unpack_from(frame.payload)
        sane = 1 <= rows <= _MOST_ROWS and 1 <= columns <= frame.size
        sound(sane, f"a sketch of {rows} x {columns} makes no sense for {frame.size} numbers")
        S = read_numbers(frame.payload[_HEAD.size :], frame.dtype)
        sound(len(S) == rows * columns, f"a sketch of {rows} x {columns} holds not {len(S)} numbers")
        return cls(S.view(1, rows, columns), key, frame.size)


@dataclass(frozen=True)
class Sketch(Compressor):
    """A count-sketch: sums of randomly signed coordinates in a small table; the median over its rows is taken.

    For example:

        >>> less = st.Traffic(compress=st.compressors.Sketch(k=0.2))
        >>> result = st.fit(st.FedAvg(), model, clients, rounds=2, traffic=less)
        >>> result.summary["bytes_up"] < 2 * 6 * 4 * 650  # 650 numbers of 4 bytes from 6 clients in 2 rounds
        True
    """

    k: float = 0.1  # the numbers in the table, as a share of those in the vector; above 1: how many
    rows: int = 1  # several find large coordinates more surely; one of all columns has the least variance
    feedback: bool = True
    paper: ClassVar[str] = "Ivkin et al. 2019"

    def __post_init__(self) -> None:
        check_k("sketch", self.k)
        need(1 <= self.rows <= _MOST_ROWS, f"sketch needs 1 to {_MOST_ROWS} rows; got {self.rows}.")

    def columns(self, size: int) -> int:
        """Columns of the table."""
        return max(1, count(self.k, size) // self.rows)

    def omega(self, size: int) -> float:
        """At least half of the rows err as much as the median does, so its variance is at most twice a row's."""
        return (1 if self.rows == 1 else 2) * (size - 1) / self.columns(size)

    def encode(self, x: Tensor, memory: State, draws: Draws) -> tuple[Code, State]:
        size, columns, key = x.shape[1], self.columns(x.shape[1]), draws.key()
        h, sigma = places(key, self.rows, columns, size)
        S = x.new_zeros(len(x), self.rows, columns)
        S.scatter_add_(2, h.to(x.device).expand(len(x), -1, -1), x[:, None] * sigma.to(x))
        return SketchCode(S, key, size), memory

    def most(self, size: int, element: int, round: int) -> int:
        return _HEAD.size + self.rows * self.columns(size) * element
