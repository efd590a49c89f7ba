"""LG-FedAvg (Liang et al., "Think locally, act globally: federated learning with local and global representations").

    each client: a representation l(x; θ_l) of its own, under a global head g(·; θ_g) that all share     (2020, Alg. 1)
    client:   (θ_l, θ_g) = steps on f_i from (its own θ_l, the received θ_g), both together;   send θ_g
    server:   θ_g = Σ (n_i / Σ n) θ_g,i over those that answered

The head is the last `head` layers of the model. Only it travels. The personal model is the client's representation
under the latest head; there is no global model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..aggregators import Aggregator, mean
from ..solvers import SGD, Solver
from .parts.body_and_head import SplitModel


@dataclass(frozen=True)
class LGFedAvg(SplitModel):
    """A representation of each client's own, a shared head; only the head is sent."""

    head: int = 1
    weighting: str = "size"
    solver: Solver = SGD()
    aggregate: Aggregator = mean
    own: ClassVar[str] = "body"


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
