"""FedALA (Zhang et al., "FedALA: adaptive local aggregation for personalized federated learning", AAAI 2023), Alg. 1.

    client:   θ̂_i = θ_i + (w − θ_i) ⊙ W_i:   the received w where W = 1, its own last model where W = 0       (4), (5)
              W_i = clip(W_i − η (w − θ_i) ⊙ ∇f_i(θ̂_i), 0, 1) on some batches, for the last `layers` layers;    (6)
                    in the layers below W = 1
              θ_i = steps on f_i from θ̂_i;   send θ_i
    server:   w = Σ (n_i / Σ n) θ_i over those that answered

W_i begins at 1 and is kept from round to round. The paper trains it until it settles when a client comes for the second
time, and once in later rounds; here it takes `weight_steps` batches in each. In the first round θ_i = w, so W has no
say. The personal model is θ_i.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Problem, Server, State, uncounted
from ..couplings import Free
from ..errors import need, not_negative
from ..solvers import SGD, Solver
from .parts.own_parts import last_coordinates
from .parts.split_steps import lasting


@dataclass(frozen=True)
class FedALA(Method):
    """Clients learn, number by number, how much of the received model to take.

    For example:

        >>> deep = st.models.layers(64, 16, 10)
        >>> result = st.fit(st.FedALA(layers=1, weight_steps=5), deep, clients, rounds=2)
    """

    eta: float = 1.0
    layers: int = 1
    weight_steps: int = 3
    weighting: str = "size"
    solver: Solver = SGD()
    aggregate: Aggregator = mean
    lengths: ClassVar[tuple[str, ...]] = ("weight_steps",)

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative("FedALA", eta=self.eta)
        for name in ("layers", "weight_steps"):
            need(getattr(self, name) >= 1, f"FedALA needs {name} >= 1; got {getattr(self, name)}.")

    def unsplit(self) -> str:
        return uncounted(self.solver)

    def split(self, steps: int) -> Method:
        need(steps >= 2, f"FedALA needs local_steps >= 2, one for its weights; got {steps}.")
        own = max(1, steps // 4)
        return replace(self, weight_steps=own, solver=lasting(self.solver, steps - own))

    def init(self, problem: Problem) -> tuple[Server, State]:
        w = problem.start
        return {"w": w}, {"theta": w, "W": torch.ones_like(w[last_coordinates(problem.blocks, self.layers)])}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        start, W = self.mixed(state, down["w"], local)
        theta = self.solver.minimise(local, start, Free())
        return {"theta": theta, "W": W}, {"w": theta}

    def mixed(self, state: State, w: Tensor, local: ClientStack) -> tuple[Tensor, Tensor]:
        """θ̂ and W after this round's steps on W."""
        top, batch = last_coordinates(local.blocks, self.layers), getattr(self.solver, "batch", 20)
        W = state["W"].clone()
        apart, own = (w - state["theta"])[:, top], state["theta"][:, top]
        start = w.clone()
        start[:, top] = own + apart * W
        for a, some in local.batches(batch, steps=self.weight_steps, stream=1):
            slope = apart[:a] * local.grad(start[:a], some)[:, top]
            W[:a] = (W[:a] - self.eta * slope).clamp(0, 1)
            start[:a, top] = own[:a] + apart[:a] * W[:a]
        return start, W

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return state["theta"]


ABOUT = {
    "class": "FedALA",
    "order": 135,
    "paper": "Zhang et al. 2023",
    "personal": "θ_i after the client's last local training",
    "names": {"fedala": {"line": "own models; each client learns how much of the global one to take"}},
    "settings": {
        "eta": "η, the step size of the weights W",
        "layers": "how many of the last layers have weights; those below take the global model",
        "weight_steps": "batches on which W is trained in a round",
    },
    "tune": {"eta": "log(0.1, 10)", "layers": "oneof(1, 2)"},
    "cite": ["zhang2023fedala"],
    "local_steps": "a quarter of N for W, the rest for θ",
    "cold_start": "θ from w; each visit begins at the mixture of both that it learns",
    "privacy": {"sends": "θ_i, its personal model as local training left it", "server": "yes", "client": "yes"},
}
