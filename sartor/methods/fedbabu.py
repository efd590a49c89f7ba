"""FedBABU (Oh, Kim, Yun, "FedBABU: toward enhanced representation for federated image classification", ICLR 2022).

    model: a body φ under a head h⁰ that stays as it was drawn while the federation learns
    client:   φ_i = steps on f_i(h⁰ ∘ ·) from φ^t;   send φ_i
    server:   φ^{t+1} = Σ (n_i / Σ n) φ_i over those that answered
    personal: (φ, h) = `finetune` on f_i from (φ^t, h⁰): both are trained, and neither is sent or kept

The head is the last `head` layers of the model. The global model is φ under h⁰.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import Blocks, ClientStack, Problem, Server, State
from ..couplings import Free
from ..solvers import SGD, Solver
from .fedavg import FedAvg
from .parts.other_losses import ModelPart
from .parts.own_parts import OwnParts, last_layers


@dataclass(frozen=True)
class FedBABU(OwnParts):
    """The body is learnt together, under a head that nobody trains; each client fine-tunes both.

    For example:

        >>> deep = st.models.layers(64, 16, 10)
        >>> result = st.fit(st.FedBABU(head=1, finetune=st.SGD(lr=0.3, epochs=2)), deep, clients, rounds=2)
    """

    head: int = 1
    weighting: str = "size"
    solver: Solver = SGD()
    finetune: Solver = SGD(lr=0.3, epochs=5)  # a head that nobody has trained takes longer steps
    aggregate: Aggregator = mean

    @property
    def inner(self) -> FedAvg:
        return FedAvg(weighting=self.weighting, solver=self.solver, aggregate=self.aggregate)

    def own_names(self, blocks: Blocks) -> list[str]:
        return last_layers("FedBABU", blocks, self.head)

    def init(self, problem: Problem) -> tuple[Server, State]:
        server, state = super().init(problem)
        return server | {"head": state["own part"]}, state

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        common, _ = self.places(local.blocks)
        phi = self.solver.minimise(ModelPart(local, self.whole(state, down, local), common), down["w"], Free())
        return state, {"w": phi}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        return server | {"w": self.average(server, messages, weights)}

    def shared(self, server: Server) -> Tensor:  # type: ignore[override]
        return torch.cat([server["w"], server["head"]])

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return self.finetune.minimise(local, self.whole(state, down, local), Free(), stream=1)

    def fresh(self, problem: Problem, server: Server) -> State:
        return {"own part": server["head"]}

    def join(self, state: State, down: State, local: ClientStack) -> State:
        return state


ABOUT = {
    "class": "FedBABU",
    "order": 165,
    "paper": "Oh et al. 2022",
    "personal": "the latest body under the untrained head, both fine-tuned when it is asked for",
    "names": {"fedbabu": {"line": "shared representation under a head that stays random; then fine-tuning"}},
    "settings": {"finetune": "the solver that makes personal models out of the global one"},
    "tune": {"finetune.lr": "log(0.005, 0.5)", "finetune.epochs": "oneof(1, 2, 5, 10)"},
    "cite": ["oh2022fedbabu"],
    "cold_start": "the global model, fine-tuned on its data",
    "privacy": {"sends": "the body", "server": "yes", "client": "yes"},
}
