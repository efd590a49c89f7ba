"""FedMGDA+ (Hu et al., "Federated learning meets multi-objective optimization", IEEE TNSE 2022), Algorithm 1.

    min_w ( F_1(w), ..., F_m(w) ):  a point from which no client can gain unless another loses
    client:  w_i = local steps on F_i from w^t;   g_i = w^t − w_i
    server:  ĝ_i = g_i / ‖g_i‖
             λ* = argmin ‖Σ λ_i ĝ_i‖²  with λ in the simplex, |λ_i − λ0_i| <= ε
             w^{t+1} = w^t − η d,   d = Σ λ_i* ĝ_i

With ε = 1 <d, ĝ_i> >= ‖d‖² for every client: nobody's loss rises to first order. λ0 is uniform or by size (FedAvg's
weights). η shrinks by `decay` each round. `normalise=False` is plain FedMGDA; with ε = 0 and η = 1 that is FedAvg. A
g_i of 0 stays 0. There is no personal model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..aggregators import fair_direction
from ..core import ClientStack, Method, Server, State
from ..couplings import Free
from ..errors import need, positive
from ..solvers import SGD, Solver


@dataclass(frozen=True)
class FedMGDA(Method):
    """One global model along a direction that serves all clients of the cohort at once.

    For example:

        >>> result = st.fit(st.FedMGDA(epsilon=0.1, eta=1.0), model, clients, rounds=2)
    """

    epsilon: float | None = None  # none: 1/n for n messages, so that nobody counts more than twice as much
    eta: float = 2.0
    decay: float = 1.0
    normalise: bool = True
    weighting: str = "size"
    solver: Solver = SGD()
    columns: ClassVar[tuple[str, ...]] = ("epsilon", "eta", "decay")

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("FedMGDA+", eta=self.eta, decay=self.decay)
        good = self.epsilon is None or 0 <= self.epsilon <= 1
        need(good, f"FedMGDA+ needs epsilon in [0, 1] (or none, for 1/clients); got {self.epsilon}.")

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        return {}, {"w": self.solver.minimise(local, down["w"], Free())}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        w = server["w"]
        g = w - messages["w"]
        if self.normalise:
            g = g / g.norm(dim=1, keepdim=True).clamp(min=torch.finfo(g.dtype).tiny)
        epsilon = 1 / len(g) if self.epsilon is None else self.epsilon
        return server | {"w": w - self.eta * self.decay**round * fair_direction(g, weights, epsilon)}


ABOUT = {
    "class": "FedMGDA",
    "title": "FedMGDA+",
    "order": 230,
    "paper": "Hu et al. 2022",
    "names": {"fedmgda": {"line": "one global model along a direction good for all"}},
    "settings": {
        "epsilon": "how far weights may move from FedAvg's: 0 not at all, 1 freely; none: 1/clients",
        "eta": "the server's step along the common direction",
        "decay": "`eta` is multiplied by this in every round",
        "normalise": "updates are scaled to length 1 first; `false` is plain FedMGDA",
    },
    "tune": {"eta": "log(0.1, 10)"},
    "cite": ["hu2022fedmgda"],
    "cold_start": "the global model",
    "privacy": {"sends": "its model", "server": "no: weights depend on all messages' inner products", "client": "yes"},
}
