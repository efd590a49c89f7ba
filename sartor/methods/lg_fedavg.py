"""LG-FedAvg (Liang et al., "Think locally, act globally: federated learning with local and global representations").

    each client: a representation l(x; θ_l) of its own, under a global head g(·; θ_g) that all share     (2020, Alg. 1)
    client:   (θ_l, θ_g) = steps on f_i from (its own θ_l, the received θ_g), both together;   send θ_g
    server:   θ_g = Σ (n_i / Σ n) θ_g,i over those that answered

The head is the last `head` layers of the model. Only it travels. The personal model is the client's representation
under the latest head; there is no global model.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..aggregators import Aggregator, mean
from ..core import Blocks
from ..solvers import SGD, Solver
from .fedavg import FedAvg
from .parts.own_parts import OwnParts, last_layers


@dataclass(frozen=True)
class LGFedAvg(OwnParts):
    """A representation of each client's own, a shared head; only the head is sent.

    For example:

        >>> deep = st.models.layers(64, 16, 10)
        >>> result = st.fit(st.LGFedAvg(head=1), deep, clients, rounds=2)
        >>> result.summary["bytes_up"] == 2 * 6 * 4 * (16 + 1) * 10  # the head alone is sent
        True
    """

    head: int = 1
    weighting: str = "size"
    solver: Solver = SGD()
    aggregate: Aggregator = mean

    @property
    def inner(self) -> FedAvg:
        return FedAvg(weighting=self.weighting, solver=self.solver, aggregate=self.aggregate)

    def own_names(self, blocks: Blocks) -> list[str]:
        head = last_layers("LGFedAvg", blocks, self.head)
        return [name for name in blocks if name not in head]


ABOUT = {
    "class": "LGFedAvg",
    "title": "LG-FedAvg",
    "order": 140,
    "paper": "Liang et al. 2020",
    "personal": "the client's own representation under the latest shared head",
    "names": {"lg-fedavg": {"line": "own representation, shared head; only the head is sent"}},
    "cite": ["liang2020lgfedavg"],
    "cold_start": "the shared head as it is, over a representation of its own, trained from the first one",
    "privacy": {"sends": "the shared layers; its own stay", "server": "yes", "client": "yes"},
}
