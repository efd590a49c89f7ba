"""FedRep (Collins et al., "Exploiting shared representations for personalized federated learning", ICML 2021), Alg. 1.

    min_φ (1/n) Σ_i min_{h_i} f_i(h_i ∘ φ):  a representation φ that all share, a head h_i of each client's own
    client:   h_i = steps on f_i(· ∘ φ^t) from its last h_i, φ^t fixed  (`head_solver`)
              φ_i = steps on f_i(h_i ∘ ·) from φ^t, h_i fixed           (`solver`);   send φ_i
    server:   φ^{t+1} = the mean of the cohort's φ_i

The head is the last `head` layers of the model. As in the paper the two are trained one after the other, where FedPer
trains them together. The personal model is h_i ∘ φ with the latest φ; there is no global model.
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
class FedRep(Method):
    """A shared representation, a head of each client's own, trained in turn."""

    head: int = 1
    weighting: str = "uniform"
    solver: Solver = SGD()
    head_solver: Solver | None = None  # none: the same as `solver`
    aggregate: Aggregator = mean

    def init(self, problem: Problem) -> tuple[Server, State]:
        body, head = body_and_head("FedRep", problem, self.head)
        return {"w": problem.start[body]}, {"head": problem.start[head]}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        phi, h = down["w"], state["head"]
        body, head = slice(0, phi.shape[1]), slice(phi.shape[1], None)
        whole = torch.cat([phi, h], dim=1)
        h = (self.head_solver or self.solver).minimise(ModelPart(local, whole, head), h, Free(), stream=1)
        whole = torch.cat([phi, h], dim=1)
        phi = self.solver.minimise(ModelPart(local, whole, body), phi, Free())
        return {"head": h}, {"w": phi}

    def shared(self, server: Server) -> None:
        return None

    def join(self, state: State, down: State, local: ClientStack) -> State:
        """A newcomer trains its head only."""
        whole, head = torch.cat([down["w"], state["head"]], dim=1), slice(down["w"].shape[1], None)
        h = (self.head_solver or self.solver).minimise(ModelPart(local, whole, head), state["head"], Free(), stream=1)
        return {"head": h}

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return torch.cat([down["w"], state["head"]], dim=1)


ABOUT = {
    "class": "FedRep",
    "order": 160,
    "paper": "Collins et al. 2021",
    "names": {"fedrep": {"line": "shared representation, own head, trained in turn"}},
    "settings": {"head_solver": "the solver of the head; none: the same as `solver`"},
    "cite": ["collins2021fedrep"],
    "cold_start": (
        "the shared representation as it is, under a head of its own, trained alone from the first head (heads "
        "are never sent, so there is none to begin with)"
    ),
    "privacy": {"sends": "the shared layers; its own stay", "server": "yes", "client": "yes"},
}
