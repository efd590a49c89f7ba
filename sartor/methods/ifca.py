"""IFCA (Ghosh et al., "An efficient framework for clustered federated learning", NeurIPS 2020), Alg. 1, by averaging.

    server:  send θ_1, ..., θ_k to the cohort
    client:  ĵ = argmin_j F_i(θ_j);   θ̃_i = local steps on F_i from θ_ĵ;   send θ̃_i and the one-hot s_i of ĵ
    server:  θ_j = Σ_i s_ij θ̃_i / Σ_i s_ij;  a cluster nobody chose stays as it is

F_i is over all of the client's training data. θ_1 is the common start; the others are the same numbers dealt anew
within each parameter, which is what drawing a layer again amounts to. The paper restarts when a start is unlucky: try
another seed. The personal model is the cluster model that fits the client's training data best; there is no global one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Problem, Sent, Server, State
from ..couplings import Free
from ..errors import need
from ..seeds import stream
from ..solvers import SGD, Solver


@dataclass(frozen=True)
class IFCA(Method):
    """Clustered: k models, each client trains and takes the one that fits it best.

    For example:

        >>> result = st.fit(st.IFCA(k=2), model, clients, rounds=2)
    """

    k: int = 5
    weighting: str = "size"
    solver: Solver = SGD()
    aggregate: Aggregator = mean
    unsummed = "the clients of each cluster are averaged by themselves"
    sends = (Sent("w", against="last"),)  # the choice s goes as it is

    def __post_init__(self) -> None:
        super().__post_init__()
        need(self.k >= 1, f"IFCA needs k >= 1 clusters; got {self.k}.")

    def init(self, problem: Problem) -> tuple[Server, State]:
        theta = problem.start.repeat(self.k, 1)
        for j in range(1, self.k):
            draw = stream(problem.seed, "clusters of IFCA", j)
            for at in problem.blocks.values():
                theta[j, at] = problem.start[at][torch.from_numpy(draw.permutation(at.stop - at.start))]
        return {"w": theta}, {}

    def downlink(self, server: Server, ids: Tensor, round: int) -> State:
        return {"w": server["w"].expand(len(ids), -1, -1)}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        j = self.best(down, local)
        theta = self.solver.minimise(local, down["w"][torch.arange(len(j)), j], Free())
        return {}, {"w": theta, "s": torch.nn.functional.one_hot(j, self.k).to(theta.dtype)}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        theta = server["w"].clone()
        for j, s in enumerate(messages["s"].T):
            if bool((mine := s > 0.5).any()):
                losses = messages["loss"][mine] if "loss" in messages else None
                theta[j] = self.aggregate(messages["w"][mine], weights[mine], theta[j], losses)
        return server | {"w": theta}

    def shared(self, server: Server) -> None:
        return None

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        j = self.best(down, local)
        return down["w"][torch.arange(len(j)), j]

    def best(self, down: State, local: ClientStack) -> Tensor:
        """ĵ [c]."""
        losses = [local.full_loss(down["w"][:, j].contiguous()) for j in range(self.k)]
        return torch.stack(losses).argmin(0)

    def exposes(self) -> str:
        return "the cluster that fits its data best; use ditto or fedavg"


ABOUT = {
    "class": "IFCA",
    "order": 240,
    "paper": "Ghosh et al. 2020",
    "personal": "the latest cluster model that fits the client's training data best",
    "names": {"ifca": {"line": "clusters: each client trains the model that fits it best"}},
    "settings": {"k": "the number of clusters, and of models sent to each client"},
    "cite": ["ghosh2020ifca"],
    "cold_start": "the cluster's model with the least loss on its data",
    "privacy": {
        "sends": "its model and its cluster",
        "server": "refused: the cluster is a fact about its data",
        "client": "refused",
    },
}
