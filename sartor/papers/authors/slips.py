"""Published methods with what their authors' code, or the code of a paper that compares with them, does otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...core import ClientStack, Problem, Server, State
from ...methods import RSA, Ditto, LGFedAvg, LpProj, PFedMe


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


# In Lp-Proj's experiments every client trains in every round, whatever the method, and a cohort is averaged
# (github.com/desternylin/perfed, server.py: all but FedAvg and Per-FedAvg, whose personal models are made of the global
# one; and LG-FedAvg, which this repetition adds, as it would have a tenth of the others' training).


@dataclass(frozen=True)
class DittoEveryone(Ditto):
    """Ditto whose clients all train in every round; the cohort is averaged."""

    train_all = True


@dataclass(frozen=True)
class RSAEveryone(RSA):
    """RSA whose clients all train in every round; the cohort is heard."""

    train_all = True


@dataclass(frozen=True)
class LGFedAvgEveryone(LGFedAvg):
    """LG-FedAvg whose clients all train in every round; the cohort's heads are averaged."""

    train_all = True
