"""TERM (Li, Beirami, Sanjabi, Smith, "Tilted empirical risk minimization", ICLR 2021), tilted over clients.

    R(t; w) = (1/t) log Σ_k p_k e^{t F_k(w)},   p_k = n_k / Σ n     (its hierarchical objective, samples untilted)
    ∇R(t; w) = Σ_k π_k ∇F_k(w),   π_k ∝ p_k e^{t F_k(w)}
    client:  w_k = local steps on F_k from w^t;   send w_k and F_k(w^t)
    server:  w^{t+1} = Σ_k π_k w_k over those that answered

t > 0 lifts the worst-off clients, t < 0 sets outliers aside, t = 0 is FedAvg. One full-batch step at each client is a
gradient step on R. F_k(w^t) is over all of the client's training data. There is no personal model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import Server, State
from ..errors import need
from ..solvers import SGD, Solver
from .parts.told_losses import TellsLoss


@dataclass(frozen=True)
class TERM(TellsLoss):
    """One global model; clients weigh by e^{t·loss}, so that those served worst count more (or less: t < 0).

    For example:

        >>> result = st.fit(st.TERM(t=2.0), model, clients, rounds=2)
    """

    t: float = 1.0
    weighting: str = "size"
    solver: Solver = SGD()
    aggregate: Aggregator = mean
    columns: ClassVar[tuple[str, ...]] = ("t",)

    unsummed = "each message is weighted by its client's loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        need(math.isfinite(self.t), f"TERM needs a finite t; got {self.t}.")

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        tilted = torch.softmax(weights.log() + self.t * messages["loss"], 0)  # π_k
        return server | {"w": self.average(server, messages, tilted)}


ABOUT = {
    "class": "TERM",
    "order": 210,
    "paper": "Li et al. 2021",
    "names": {"term": {"line": "one global model; tilted towards clients with a high loss"}},
    "settings": {"t": "the tilt: above 0 those served worst count more, below 0 less; 0 is FedAvg"},
    "tune": {"t": "log(0.1, 10)"},
    "cite": ["li2021term"],
    "cold_start": "the global model",
    "privacy": {
        "sends": "its model and its loss",
        "server": "refused: the loss has no bound to clip to, and is the weight",
        "client": "refused",
    },
}
