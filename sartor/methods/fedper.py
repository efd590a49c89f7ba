"""FedPer (Arivazhagan et al., "Federated learning with personalization layers", 2019), Algorithms 1 and 2.

    model: base layers W_B that all share, under personalisation layers W_P of each client's own
    client:   (W_B, W_P) = steps on f_i from (the received W_B, its own W_P), both together;   send W_B
    server:   W_B = Σ (n_i / Σ n) W_B,i over those that answered

The personalisation layers are the last `head` layers of the model (the paper's K_P). The personal model is the latest
base under the client's own layers; there is no global model.
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
class FedPer(Method):
    """A shared representation, a head of each client's own, trained together."""

    head: int = 1
    weighting: str = "size"
    solver: Solver = SGD()
    aggregate: Aggregator = mean

    def init(self, problem: Problem) -> tuple[Server, State]:
        body, head = body_and_head("FedPer", problem, self.head)
        return {"w": problem.start[body]}, {"head": problem.start[head]}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        whole = self.solver.minimise(local, torch.cat([down["w"], state["head"]], dim=1), Free())
        k = down["w"].shape[1]
        return {"head": whole[:, k:]}, {"w": whole[:, :k]}

    def shared(self, server: Server) -> None:
        return None

    def join(self, state: State, down: State, local: ClientStack) -> State:
        """A newcomer trains its own layers only: the base is not its to change."""
        whole, k = torch.cat([down["w"], state["head"]], dim=1), down["w"].shape[1]
        return {"head": self.solver.minimise(ModelPart(local, whole, slice(k, None)), state["head"], Free())}

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return torch.cat([down["w"], state["head"]], dim=1)


ABOUT = {
    "class": "FedPer",
    "order": 150,
    "paper": "Arivazhagan et al. 2019",
    "names": {"fedper": {"line": "shared representation, own head, trained together"}},
    "cite": ["arivazhagan2019fedper"],
    "cold_start": (
        "the shared representation as it is, under a head of its own, trained alone from the first head (heads "
        "are never sent, so there is none to begin with)"
    ),
    "privacy": {"sends": "the shared layers; its own stay", "server": "yes", "client": "yes"},
}
