"""FedFomo (Zhang, Sapra, Fidler, Yeung, Alvarez, "Personalized federated learning with first order model optimization",
ICLR 2021).

    server:   send client i the last models θ_n of M others
    client:   w_n = max(L_i(θ_i) − L_i(θ_n), 0) / ‖θ_n − θ_i‖,  L_i: the mean loss on its validation samples
              θ_i = θ_i + Σ_n (w_n / Σ w) (θ_n − θ_i);   then steps on f_i from there;   send θ_i and w
    server:   P_in = P_in + w_n;   next time each of the M models is, with chance ε, one drawn at random, and else the
              one with the largest P_in that is left

Where no model is better than its own, or a client has no validation samples, its own stays, as in local training.
P begins at zero, and of equals one is drawn. A client that was never heard counts with the first model. The personal
model is θ_i. There is no global one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..client_table import Rows
from ..core import ClientStack, Method, Problem, Sent, Server, State
from ..couplings import Free
from ..errors import need
from ..seeds import stream
from ..solvers import SGD, Solver


@dataclass(frozen=True)
class FedFomo(Method):
    """Each client is sent some of the others' models, and goes towards those that help on its validation samples.

    For example:

        >>> result = st.fit(st.FedFomo(M=3), model, clients, rounds=2)  # each client is sent three models
    """

    M: int = 5
    epsilon: float = 0.3
    solver: Solver = SGD()
    sends = (Sent("w", against="last"),)  # the weights go as they are

    def __post_init__(self) -> None:
        super().__post_init__()
        need(self.M >= 1, f"FedFomo needs M >= 1 models for each client; got {self.M}.")
        need(0 <= self.epsilon <= 1, f"FedFomo needs epsilon in [0, 1]; got {self.epsilon}.")

    def init(self, problem: Problem) -> tuple[Server, State]:
        theta, m = problem.start, problem.clients
        server = {"theta": Rows(m, theta), "P": theta.new_zeros(m, m), "seed": torch.tensor(problem.seed)}
        return server, {"theta": theta}

    def downlink(self, server: Server, ids: Tensor, round: int) -> State:
        each, places = torch.unique(self.others(server, ids, round), return_inverse=True)
        return {"w": server["theta"][each][places]}

    def others(self, server: Server, ids: Tensor, round: int) -> Tensor:
        """[n, M] whose models these clients are sent in this round."""
        P, chosen = server["P"].numpy(), []
        for i in ids.tolist():
            draw = stream(int(server["seed"]), "models of FedFomo", round, i)
            ranked = draw.permutation(np.delete(np.arange(len(P)), i) if len(P) > 1 else [i])  # alone: its own
            ranked = ranked[np.argsort(-P[i, ranked], kind="stable")]
            count = min(self.M, len(ranked))
            best = count - int((draw.random(count) < self.epsilon).sum())
            chosen.append(np.append(ranked[:best], draw.permutation(ranked[best:])[: count - best]))
        return torch.from_numpy(np.stack(chosen))

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        theta, others = state["theta"], down["w"]
        w = self.weights(theta, others, local)
        share = w / w.sum(1, keepdim=True).clamp(min=torch.finfo(w.dtype).tiny)
        start = theta + (share[..., None] * (others - theta[:, None])).sum(1)
        theta = self.solver.minimise(local, start, Free())
        return {"theta": theta}, {"w": theta, "weights": w}

    def weights(self, theta: Tensor, others: Tensor, local: ClientStack) -> Tensor:
        """w [c, M]."""
        own = local.validation(theta)[1]
        losses = torch.stack([local.validation(others[:, n].contiguous())[1] for n in range(others.shape[1])], dim=1)
        apart = (others - theta[:, None]).norm(dim=2)
        gain = (own[:, None] - losses).nan_to_num(0.0, posinf=0.0, neginf=0.0).clamp(min=0).to(apart)
        return torch.where(apart > 0, gain / apart, 0.0)

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        P = server["P"].clone()
        P[ids[:, None], self.others(server, ids, round)] += messages["weights"]
        return server | {"theta": server["theta"].replaced(ids, messages["w"]), "P": P}

    def shared(self, server: Server) -> None:
        return None

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return state["theta"]

    def fresh(self, problem: Problem, server: Server) -> State:
        return {"theta": server["theta"].whole().mean(0)}

    def welcome(self, server: Server, state: State, local: ClientStack) -> State:
        """The models that have helped others most."""
        best = server["P"].sum(0).argsort(descending=True, stable=True)[: self.M]
        return {"w": server["theta"][best.sort().values].expand(len(local.ids), -1, -1)}

    def exposes(self) -> str:
        return "how much each of the others' models helps on its validation samples; use ditto or fedavg"


ABOUT = {
    "class": "FedFomo",
    "order": 66,
    "paper": "Zhang et al. 2021",
    "personal": "θ_i after the client's last local training",
    "names": {"fedfomo": {"line": "own models, moved towards those of others that help on validation data"}},
    "settings": {
        "M": "how many of the others' models a client is sent in a round",
        "epsilon": "ε, the chance that such a model is drawn at random, not by how much it has helped before",
    },
    "tune": {"M": "oneof(2, 5, 10)"},
    "cite": ["zhang2021fedfomo"],
    "cold_start": (
        "θ from the mean of all models; each visit moves it towards those of the M models, which have helped others "
        "most, that help on its validation data, and trains it"
    ),
    "privacy": {
        "sends": "its personal model, and how much each model that it was sent helps it",
        "server": "refused: the weights are facts about its data",
        "client": "refused",
    },
}
