"""EWC: fine-tuning held back by the Fisher information (Kirkpatrick et al., PNAS 2017; Yu et al. 2020; Ditto, App. C).

    w* by FedAvg;   client k:  min_w  F_k(w) + λ/2 Σ_i F_ii (w[i] − w*[i])²,  started at w*
    F_ii = (1/|D|) Σ_{(x, y) in D} ( ∂/∂w[i] log p(y | x, w*) )²,  the diagonal of the empirical Fisher on a batch D

For cross-entropy −log p is the loss, so F_ii is the mean square of the samples' gradients; we use the task's own loss
whatever it is. D is one batch of the client's own data, of `fisher_batch` samples. The personal model is made when it
is asked for, and neither sent nor kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import Batch, ClientStack, Method, State
from ..couplings import Free, Quadratic
from ..errors import need, positive
from ..solvers import SGD, Solver


def fisher(local: ClientStack, w: Tensor, size: int) -> Tensor:
    """F_ii [c, d] at w, on one batch of each client. Samples one by one, all clients side by side."""
    _, D = next(local.batches(size, steps=1, stream=2))
    total = torch.zeros(w.shape, dtype=w.dtype, device=w.device)
    for s in range(D.weight.shape[1]):
        a = int((D.weight[:, s] > 0).sum())  # those that have so many samples: the first, as they are ordered by size
        one = Batch(D.x[:a, s : s + 1], D.y[:a, s : s + 1], torch.ones_like(D.weight[:a, :1]), D.key[:a])
        total[:a].addcmul_(D.weight[:a, s : s + 1], local.grad(w[:a], one).square_())
    return total


@dataclass(frozen=True)
class EWC(Method):
    """FedAvg, then fine-tuning in which weights that matter to the global model are held near it.

    For example:

        >>> result = st.fit(st.EWC(lam=10.0, finetune=st.SGD(epochs=2)), model, clients, rounds=2)
        >>> everybody, own = result.shared(), result.personal(2)  # client 2's, fine-tuned from everybody's
    """

    lam: float = 1.0
    fisher_batch: int = 100
    weighting: str = "size"
    solver: Solver = SGD()
    finetune: Solver = SGD(epochs=5)
    aggregate: Aggregator = mean

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("EWC", lam=self.lam)
        need(self.fisher_batch >= 1, f"EWC needs fisher_batch >= 1; got {self.fisher_batch}.")

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        return {}, {"w": self.solver.minimise(local, down["w"], Free())}

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        w = down["w"].contiguous()
        return self.finetune.minimise(local, w, Quadratic(self.lam * fisher(local, w, self.fisher_batch), w), stream=1)


ABOUT = {
    "class": "EWC",
    "order": 120,
    "paper": "Kirkpatrick et al. 2017",
    "personal": "the latest w, fine-tuned when it is asked for, held back by the Fisher information",
    "names": {"ewc": {"line": "FedAvg, then fine-tuning held back by the Fisher information"}},
    "settings": {
        "lam": "λ, how strongly weights that matter are held at the global model's",
        "fisher_batch": "samples of a client by which the Fisher information is estimated",
    },
    "tune": {"lam": "log(0.01, 100)", "finetune.lr": "log(0.005, 0.5)"},
    "cite": ["kirkpatrick2017ewc"],
    "cold_start": "the global model, fine-tuned and held back by the Fisher information",
    "privacy": {"sends": "its model", "server": "yes", "client": "yes"},
}
