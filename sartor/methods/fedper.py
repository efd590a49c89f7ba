"""FedPer (Arivazhagan et al., "Federated learning with personalization layers", 2019), Algorithms 1 and 2.

    model: base layers W_B that all share, under personalisation layers W_P of each client's own
    client:   (W_B, W_P) = steps on f_i from (the received W_B, its own W_P), both together;   send W_B
    server:   W_B = Σ (n_i / Σ n) W_B,i over those that answered

The personalisation layers are the last `head` layers of the model (the paper's K_P). The personal model is the latest
base under the client's own layers; there is no global model. With one layer it is `fedavg --personal head`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..aggregators import Aggregator, mean
from ..core import Blocks
from ..solvers import SGD, Solver
from .fedavg import FedAvg
from .parts.own_parts import OwnParts, last_layers


@dataclass(frozen=True)
class FedPer(OwnParts):
    """A shared representation, a head of each client's own, trained together.

    For example:

        >>> deep = st.models.layers(64, 16, 10)
        >>> result = st.fit(st.FedPer(head=1), deep, clients, rounds=2)
        >>> result.summary["bytes_up"] == 2 * 6 * 4 * (64 + 1) * 16  # heads are never sent
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
        return last_layers("FedPer", blocks, self.head)


ABOUT = {
    "class": "FedPer",
    "order": 150,
    "paper": "Arivazhagan et al. 2019",
    "personal": "the latest shared layers under the client's own head",
    "names": {"fedper": {"line": "shared representation, own head, trained together"}},
    "cite": ["arivazhagan2019fedper"],
    "cold_start": (
        "the shared representation as it is, under a head of its own, trained alone from the first head (heads "
        "are never sent, so there is none to begin with)"
    ),
    "privacy": {"sends": "the shared layers; its own stay", "server": "yes", "client": "yes"},
}
