"""FedLBFGS: L-BFGS (Liu and Nocedal 1989) on the gradients of all: the pooled model itself, where it is too large for
Newton's steps (`fednewton`), which send d² numbers.

    min_w  F(w) = Σ_i n_i f_i(w)/N + ridge/(2N) ‖weights of w‖²
    client:  sends  n_i ∇f_i(w),  n_i f_i(w),  n_i    over all of its samples
    server:  where F(w) <= F(a) + c t gᵀp:   a = w,  g = ∇F(a),  p = −H g by the last `memory` pairs
                                             (s, y) = (change of a, change of g),  t = 1, or 1/‖g‖ without pairs
             else:                           t = t/2
             w = a + t p                     what the clients look at next; a is the model

A pair with sᵀy <= 0 (losses that are not convex) is left out. Where only some clients answer, F is theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core import ClientStack, Method, Problem, Server, State, weights_of
from ..errors import need, not_negative

_ENOUGH = 1e-4  # c: how much of what the slope promises must come
_SHORTEST = 2.0**-20  # a step that has become so short is taken, as F is then known no better


@dataclass(frozen=True)
class FedLBFGS(Method):
    """The pooled model by L-BFGS on the sum of the clients' gradients.

    For example:

        >>> result = st.fit(st.FedLBFGS(ridge=1.0), model, clients, rounds=5)
        >>> pooled = result.shared()  # towards the model of all data in one place
    """

    ridge: float = 1.0
    memory: int = 10
    columns: ClassVar[tuple[str, ...]] = ("ridge",)
    uncompressed: ClassVar[str] = "a changed gradient would make L-BFGS step in a wrong direction"
    unsummed: ClassVar[str] = ""
    sends = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative("FedLBFGS", ridge=self.ridge)
        need(self.memory >= 1, f"FedLBFGS needs a memory of at least 1 pair; got {self.memory}.")

    def unsplit(self) -> str:
        return "its clients send gradients over all of their data"

    def exposes(self) -> str:
        return "the gradient of its loss over all of its samples, their number and its summed loss"

    def init(self, problem: Problem) -> tuple[Server, State]:
        w = problem.start
        vectors = {k: w.clone() for k in ("w", "a")} | {k: torch.zeros_like(w) for k in ("g", "p")}
        pairs = {k: w.new_zeros(self.memory, len(w)) for k in ("S", "Y")}
        numbers = {"F": w.new_full((1,), torch.finfo(w.dtype).max), "t": w.new_ones(1)}
        return vectors | pairs | numbers | {"weights": weights_of(problem.blocks, w)}, {}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w, n = down["w"].contiguous(), local.samples[:, None].to(down["w"])
        return {}, {"g": n * local.full_grad(w), "sums": torch.cat([n * local.full_loss(w)[:, None], n], dim=1)}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        w, a, g, p, S, Y, F, t = (server[k].double() for k in ("w", "a", "g", "p", "S", "Y", "F", "t"))
        new_g, (loss, N) = (messages[k].double().sum(0) for k in ("g", "sums"))
        held = self.ridge * server["weights"].double()
        new_g, new_F = (new_g + held * w) / N, (loss + 0.5 * (held * w * w).sum()) / N
        rounding = 10 * torch.finfo(server["F"].dtype).eps * new_F.abs()
        if bool(new_F <= F + _ENOUGH * t * (g @ p) + rounding) or float(t) < _SHORTEST:
            s, y = w - a, new_g - g
            if bool(s @ y > 1e-12 * s.norm() * y.norm()):
                S, Y = torch.cat([S[1:], s[None]]), torch.cat([Y[1:], y[None]])
            a, g, F, p = w, new_g, new_F[None], -_uphill(new_g, S, Y)
            t = torch.ones_like(t) if bool(S[-1].any()) else 1 / g.norm().clamp(min=1.0)[None]
        else:
            t = t / 2
        found = {"w": a + t * p, "a": a, "g": g, "p": p, "S": S, "Y": Y, "F": F, "t": t}
        return server | {k: v.to(server[k].dtype) for k, v in found.items()}

    def shared(self, server: Server) -> Tensor | None:
        found: Tensor = server["a"]
        return found


def _uphill(g: Tensor, S: Tensor, Y: Tensor) -> Tensor:
    """H g, by the two loops over pairs [k, d], the last the newest; those of zeros are none."""
    pairs = [(s, y, 1 / (s @ y)) for s, y in zip(S, Y, strict=True) if bool(s.any())]
    q, parts = g.clone(), []
    for s, y, rho in reversed(pairs):
        parts.append(rho * (s @ q))
        q -= parts[-1] * y
    if pairs:
        s, y, _ = pairs[-1]
        q *= (s @ y) / (y @ y)
    for (s, y, rho), part in zip(pairs, reversed(parts), strict=True):
        q += (part - rho * (y @ q)) * s
    return q


ABOUT = {
    "class": "FedLBFGS",
    "order": 67,
    "paper": "Liu and Nocedal 1989",
    "names": {"fedlbfgs": {"line": "the pooled model itself, by L-BFGS on the gradients of all; for wide tables"}},
    "settings": {
        "ridge": "the penalty ridge/2 of squared weights, against losses summed over all samples",
        "memory": "how many steps L-BFGS remembers",
    },
    "tune": {"ridge": "log(0.1, 1000)"},
    "cite": ["liu1989lbfgs"],
    "cold_start": "the global model",
    "privacy": {
        "sends": "the gradient of its loss, its summed loss, its samples",
        "server": "no: its gradient is not an update that could be clipped",
        "client": "no: its gradient is not an update that could be clipped",
    },
}
