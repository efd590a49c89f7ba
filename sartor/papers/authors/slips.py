"""Published methods with what their authors' code does otherwise than the paper."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...core import ClientStack, Problem, Server, State
from ...methods import LpProj, PFedMe


@dataclass(frozen=True)
class PFedMeScoringW(PFedMe):
    """pFedMe whose personal score is that of the local model w_i in place of θ_i.

    An aliasing slip: before it is scored, θ_i is overwritten by w_i. The published numbers are such scores.
    """

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return state["w"]


@dataclass(frozen=True)
class LpProjFromZero(LpProj):
    """Lp-Proj whose shared point w starts at 0 in place of P x_0."""

    def init(self, problem: Problem) -> tuple[Server, State]:
        server, state = super().init(problem)
        return {"w": 0 * server["w"]}, state
