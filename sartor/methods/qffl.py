"""q-FFL by q-FedAvg (Li, Sanjabi, Beirami, Smith, "Fair resource allocation in federated learning", ICLR 2020), Alg. 2.

    min_w  f_q(w) = Σ_k p_k/(q+1) F_k(w)^{q+1}
    client:  w̄_k = local steps on F_k from w^t,   Δw_k = L (w^t − w̄_k)
             Δ_k = F_k(w^t)^q Δw_k,   h_k = q F_k(w^t)^{q−1} ‖Δw_k‖² + L F_k(w^t)^q
    server:  w^{t+1} = w^t − Σ_k Δ_k / Σ_k h_k over those that answered

L is 1/lr of the solver where it is not given. The paper samples clients by p_k and then weighs them alike; here p_k
multiplies Δ_k and h_k (`weighting`), which for q = 0 is FedAvg exactly. Clients send w̄_k and F_k(w^t), which hold the
same. The server adds up sums, so there is no aggregator to choose. There is no personal model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..core import Server, State
from ..errors import SartorError, not_negative, positive
from ..solvers import SGD, Solver
from .parts.told_losses import TellsLoss


@dataclass(frozen=True)
class QFFL(TellsLoss):
    """One global model; a client's loss counts to the power q + 1, so losses become more alike as q grows.

    For example:

        >>> result = st.fit(st.QFFL(q=1.0), model, clients, rounds=2)
    """

    q: float = 0.1
    L: float | None = None
    weighting: str = "size"
    solver: Solver = SGD()
    columns: ClassVar[tuple[str, ...]] = ("q", "L")

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative("q-FFL", q=self.q)
        positive("q-FFL", L=self.lipschitz())

    def lipschitz(self) -> float:
        lr: float | None = getattr(self.solver, "lr", None)
        if self.L is None and lr is None:
            raise SartorError("q-FFL takes L = 1/lr from its solver, and this one has no lr; give L.")
        return self.L if self.L is not None else 1 / (lr or 1.0)

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        w, q, L = server["w"], self.q, self.lipschitz()
        F = messages["loss"][:, None].clamp(min=1e-10)  # F^{q−1} at a loss of 0
        dw = L * (w - messages["w"])
        p = weights[:, None]
        h = q * F ** (q - 1) * dw.square().sum(1, keepdim=True) + L * F**q
        return server | {"w": w - (p * F**q * dw).sum(0) / (p * h).sum()}


ABOUT = {
    "class": "QFFL",
    "title": "q-FFL",
    "order": 220,
    "paper": "Li et al. 2020",
    "names": {"qffl": {"line": "one global model; losses count to the power q + 1"}},
    "settings": {
        "q": "how much large losses count; 0 is FedAvg",
        "L": "the Lipschitz constant by which steps are scaled; none: 1/lr of the solver",
    },
    "tune": {"q": "log(0.01, 5)"},
    "cite": ["li2020qffl"],
    "cold_start": "the global model",
    "privacy": {
        "sends": "its model and its loss",
        "server": "refused: the loss has no bound to clip to, and is the weight",
        "client": "refused",
    },
}
