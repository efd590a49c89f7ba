"""Random projection with Lp-Proj's own P: Gaussian rows of unit length (Lin et al., "Personalized federated learning
towards communication efficiency, robustness and fairness").

    send z = Px,  P in R^{k x d};   value (d/k) Pᵀz;   E = x,   E‖value − x‖² = (d − 1)/k ‖x‖²

since a row is uniform on the sphere: E ppᵀ = I/d. P is a function of a key in the message. As a code of updates P must
be drawn anew in every round (`fresh`), else what is orthogonal to its rows is never sent; Lp-Proj itself keeps one P,
and there the model lives in that subspace.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core import State
from ..couplings import Projection
from ..errors import need
from .base import Code, Compressor, Draws, check_k, count
from .wire import Frame, numbers, read_numbers, sound

_HEAD = struct.Struct("<Q")  # key


@dataclass
class Shadow(Code):
    """Px of each client."""

    z: Tensor  # [c, k]
    key: int
    size: int
    kind: ClassVar[int] = 7

    def value(self) -> Tensor:
        k = self.z.shape[1]
        return Projection(k, self.size, self.key).lift(self.z * (self.size / k))

    def lengths(self) -> Tensor:
        return torch.full((len(self.z),), _HEAD.size + self.z.shape[1] * self.z.element_size())

    def frame(self, row: int) -> Frame:
        return Frame(self.kind, self.size, self.z.dtype, _HEAD.pack(self.key) + numbers(self.z[row]))

    @classmethod
    def read(cls, frame: Frame, last: Tensor | None) -> Shadow:
        sound(len(frame.payload) >= _HEAD.size, "it has no key")
        z = read_numbers(frame.payload[_HEAD.size :], frame.dtype)
        sound(1 <= len(z) <= frame.size, f"{len(z)} numbers are no projection of {frame.size}")
        return cls(z[None], _HEAD.unpack_from(frame.payload)[0], frame.size)


@dataclass(frozen=True)
class RandomProjection(Compressor):
    """A few random projections, the same for all clients.

    For example:

        >>> less = st.Traffic(compress=st.compressors.RandomProjection(k=0.2))
        >>> result = st.fit(st.FedAvg(), model, clients, rounds=2, traffic=less)
        >>> result.summary["bytes_up"] < 2 * 6 * 4 * 650  # 650 numbers of 4 bytes from 6 clients in 2 rounds
        True
    """

    k: float = 0.1  # projections, as a share of the numbers; above 1: how many
    fresh: bool = True  # other projections in every round; false: those of `seed`, as Lp-Proj has them
    seed: int = 0
    feedback: bool = True
    paper: ClassVar[str] = "Lp-Proj"

    def __post_init__(self) -> None:
        check_k("projection", self.k)
        need(0 <= self.seed < 2**63, f"projection needs a seed from 0 to 2^63 − 1; got {self.seed}.")

    def omega(self, size: int) -> float:
        return (size - 1) / count(self.k, size)

    def encode(self, x: Tensor, memory: State, draws: Draws) -> tuple[Code, State]:
        key, size = draws.key() if self.fresh else self.seed, x.shape[1]
        return Shadow(Projection(count(self.k, size), size, key).project(x), key, size), memory

    def most(self, size: int, element: int, round: int) -> int:
        return _HEAD.size + count(self.k, size) * element
