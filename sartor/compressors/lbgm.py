"""LBGM (Azam, Hosseinalipour, Qiu, Brinton, "Recycling model updates in federated learning: are gradient subspaces
low-rank?", ICLR 2022), Algorithm 1.

    g the client's update, l its look-back gradient: the last one that it sent whole
    ρ = <g, l> / ‖l‖²                                                           look-back coefficient
    sin²α = 1 − <g, l>² / (‖g‖² ‖l‖²)                                           look-back phase error
    sin²α <= δ:  send ρ; the server takes ρ l          else:  send g; both keep l = g

The first message is whole. An update along l, however long, costs one number. The server has every client's l.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core import State
from ..errors import need
from .base import Code, Compressor, Draws, Raw
from .wire import Frame, damaged, numbers, read_numbers, sound


@dataclass
class Recycled(Code):
    """For each client either the whole vector or a multiple of its last whole one."""

    x: Tensor  # [c, size]
    rho: Tensor  # [c, 1]
    last: Tensor  # [c, size]
    whole: Tensor  # [c, 1] bool
    kind: ClassVar[int] = 8

    def value(self) -> Tensor:
        return torch.where(self.whole, self.x, self.rho * self.last)

    def lengths(self) -> Tensor:
        one = self.x.element_size()
        return torch.where(self.whole[:, 0], one * self.x.shape[1], one).cpu()

    def frame(self, row: int) -> Frame:
        if bool(self.whole[row]):
            return Raw(self.x).frame(row)
        return Frame(self.kind, self.x.shape[1], self.x.dtype, numbers(self.rho[row]))

    @classmethod
    def read(cls, frame: Frame, last: Tensor | None) -> Code:
        rho = read_numbers(frame.payload, frame.dtype)
        sound(len(rho) == 1, f"{len(rho)} look-back coefficients in place of one")
        if last is None or last.shape != (frame.size,):
            raise damaged("it refers to an earlier message that is not here")
        last = last[None].to(frame.dtype)
        return cls(torch.zeros_like(last), rho[None], last, torch.tensor([[False]]))


@dataclass(frozen=True)
class LBGM(Compressor):
    """One number while an update points where the last whole one did; else the whole update.

    For example:

        >>> less = st.Traffic(compress=st.compressors.LBGM(delta=0.5))
        >>> result = st.fit(st.FedAvg(), model, clients, rounds=2, traffic=less)
        >>> result.summary["bytes_up"] < 2 * 6 * 4 * 650  # 650 numbers of 4 bytes from 6 clients in 2 rounds
        True
    """

    delta: float = 0.2  # the largest sin²α at which a gradient is recycled; 0: only what is exactly in line
    paper: ClassVar[str] = "Azam et al. 2022"
    refers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        need(0 <= self.delta < 1, f"lbgm needs delta in [0, 1), a squared sine; got {self.delta}.")

    def memory(self, like: Tensor) -> State:
        return {"l": like}

    def encode(self, x: Tensor, memory: State, draws: Draws) -> tuple[Code, State]:
        g, l = x, memory["l"]  # noqa: E741 (the paper's letters)
        along, gg, ll = (g * l).sum(1, True), (g * g).sum(1, True), (l * l).sum(1, True)
        rho = torch.where(ll > 0, along / ll, 0)
        rounding = 32 * torch.finfo(x.dtype).eps  # of a difference of two numbers near 1
        whole = ~((ll > 0) & (gg - along * rho <= (self.delta + rounding) * gg))
        code = Recycled(g, rho, l, whole)
        return code, {"l": torch.where(whole, g, l)}

    def most(self, size: int, element: int, round: int) -> int:
        return size * element
