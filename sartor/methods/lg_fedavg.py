"""LG-FedAvg (Liang et al., "Think locally, act globally: federated learning with local and global representations").

    each client: a representation l(x; θ_l) of its own, under a global head g(·; θ_g) that all share     (2020, Alg. 1)
    client:   (θ_l, θ_g) = steps on f_i from (its own θ_l, the received θ_g), both together;   send θ_g
    server:   θ_g = Σ (n_i / Σ n) θ_g,i over those that answered

The head is the last `head` layers of the model. Only it travels. The personal model is the client's representation
under the latest head; there is no global model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Problem, Server, State
from ..couplings import Free
from ..solvers import SGD, Solver
from .parts.body_and_head import body_and_head
from .parts.other_losses import ModelPart


@dataclass(frozen=True)
class LGFedAvg(Method):
    """A representation of each client's own, a shared head; only the head is sent."""

    head: int = 1
    weighting: str = "size"
    solver: Solver = SGD()
    aggregate: Aggregator = mean

    def init(self, problem: Problem) -> tuple[Server, State]:
        body, head = body_and_head("LG-FedAvg", problem, self.head)
        return {"w": problem.start[head]}, {"body": problem.start[body]}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        whole = torch.cat([state["body"], down["w"]], dim=1)
        whole = self.solver.minimise(local, whole, Free())
        k = state["body"].shape[1]
        return {"body": whole[:, :k]}, {"w": whole[:, k:]}

    def shared(self, server: Server) -> None:
        return None

    def join(self, state: State, down: State, local: ClientStack) -> State:
        """A newcomer trains its own representation only, under the head that is there."""
        whole, k = torch.cat([state["body"], down["w"]], dim=1), state["body"].shape[1]
        return {"body": self.solver.minimise(ModelPart(local, whole, slice(0, k)), state["body"], Free())}

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return torch.cat([state["body"], down["w"]], dim=1)


ABOUT = {
    "class": "LGFedAvg",
    "title": "LG-FedAvg",
    "order": 140,
    "paper": "Liang et al. 2020",
    "names": {"lg-fedavg": {"line": "own representation, shared head; only the head is sent"}},
    "cite": ["liang2020lgfedavg"],
    "cold_start": "the shared head as it is, over a representation of its own, trained from the first one",
    "privacy": {"sends": "the shared layers; its own stay", "server": "yes", "client": "yes"},
}
