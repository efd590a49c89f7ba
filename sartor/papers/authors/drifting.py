"""What FLAME's authors ran as Ditto's global model (github.com/zsk66/FLAME, update.py:180-194). Not Ditto.

    client in S_t:   w_k = w_k − η ∇F_k(w_k; one random batch), a few such steps;   w_k is never reset to w^t
    server:          w = (1/m) Σ_k w_k over ALL clients, with the last w_k of those that sat out

The global model is an average of local models that drift apart and are hardly trained: the published "Ditto-GM" of
FLAME's Table III. It is here for that column of a repetition, as Ditto's `global_method`. As every client goes on from
its own w_k, w^t is never used in training: it is only scored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...aggregators import mean
from ...core import ClientStack, Method, Problem, Sent, Server, State
from ...couplings import Free
from ...methods.parts.last_messages import mean_of_last, remembering
from ...solvers import SGD, Solver


@dataclass(frozen=True)
class Drifting(Method):
    """The average of local models that are never reset to it."""

    solver: Solver = SGD(steps=1)
    keeps_last: ClassVar[bool] = True
    sends = (Sent("u", against="last"),)

    def init(self, problem: Problem) -> tuple[Server, State]:
        w = problem.start
        return remembering(problem.clients, w, mean), {"w": w}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w = self.solver.minimise(local, state["w"], Free())
        return {"w": w}, {"u": w}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        return mean_of_last(server, ids, messages, mean)
