"""kNN-Per (Marfoq, Neglia, Kameni, Vidal, "Personalized federated learning through local memorization", ICML 2022).

    training:  FedAvg;   h = its model, φ(x) = what h's last layer is given for x
    client i:  remembers {(φ(x_j), y_j)} of its own training samples, by the latest w; sends nothing of them
    personal:  p(y | x) = λ_i Σ_{j in N_k(x)} s_j 1[y_j = y] + (1 − λ_i) softmax(h(x))_y
               N_k(x): the k remembered samples that are nearest to φ(x)
               s_j ∝ exp(−‖φ(x) − φ(x_j)‖² / (scale · p)),  Σ s_j = 1,  p the number of features
    λ_i:       the best of 0, 0.1, ..., 1 on client i's validation data; 1/2 where it has none

The paper has exp(−d) with the Euclidean distance d; its authors' code has the squared one, divided by p, and so do we.
We judge λ by the log loss, which a few samples can tell apart, where accuracies tie. λ_i = 0 is FedAvg. A client with
more than `capacity` samples remembers some of them, drawn at random. What is remembered is made when the personal model
is asked for; tasks/neighbours.py has the layer that votes.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Neighbours, Problem, Server, State
from ..couplings import Free
from ..errors import need
from ..solvers import SGD, Solver


@dataclass(frozen=True)
class KNNPer(Method):
    """One global model; at each client its nearest training samples vote beside it.

    For example:

        >>> result = st.fit(st.KNNPer(k=5), model, clients, rounds=2)
    """

    k: int = 10
    share: float | None = None
    scale: float = 1.0
    capacity: int | None = None
    weighting: str = "size"
    solver: Solver = SGD()
    aggregate: Aggregator = mean

    def __post_init__(self) -> None:
        super().__post_init__()
        need(self.k >= 1, f"knn-per needs k >= 1, the neighbours that vote; got {self.k}.")
        fits = self.share is None or 0 <= self.share <= 1
        need(fits, f"knn-per needs a share in [0, 1], or none: each client chooses its own; got {self.share}.")
        need(0 < self.scale < float("inf"), f"knn-per needs a scale > 0; got {self.scale}.")
        some = self.capacity is None or self.capacity >= 1
        need(some, f"knn-per needs a capacity >= 1, or none: all samples are remembered; got {self.capacity}.")

    @property
    def neighbours(self) -> Neighbours:
        return Neighbours(self.k, self.share, self.scale, self.capacity)

    def init(self, problem: Problem) -> tuple[Server, State]:
        need(
            problem.loss == "cross-entropy",
            f"knn-per's samples vote on classes: it needs the loss cross-entropy; got {problem.loss}. Use fedavg-ft.",
        )
        return super().init(problem)

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        return {}, {"w": self.solver.minimise(local, down["w"], Free())}

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return down["w"]


ABOUT = {
    "class": "KNNPer",
    "title": "kNN-Per",
    "order": 167,
    "paper": "Marfoq et al. 2022",
    "personal": "the latest w, beside which the client's nearest training samples vote with its λ_i",
    "names": {"knn-per": {"line": "FedAvg; each client's nearest training samples vote beside the global model"}},
    "tune": {"k": "oneof(5, 10, 20)", "scale": "log(0.01, 10)"},
    "settings": {
        "k": "how many of the nearest remembered samples vote",
        "share": "λ, what votes count against the model, from 0 (FedAvg) to 1 (votes alone); none: each client's "
        "validation data choose from 0, 0.1, ..., 1",
        "scale": "of squared distances per feature: with a small one the nearest sample alone votes, with a large one "
        "all k alike",
        "capacity": "how many samples a client remembers; none: all of its training samples",
    },
    "cite": ["marfoq2022knnper"],
    "cold_start": "the global model, beside which its own samples vote",
    "privacy": {"sends": "its model; what it remembers stays", "server": "yes", "client": "yes"},
}
