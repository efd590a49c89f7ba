"""FedAvg (McMahan et al., AISTATS 2017), FedProx (Li et al., MLSys 2020), and both with fine-tuning.

    client:   w_k ≈ argmin F_k(w) + μ/2 ‖w − w^t‖²   from w^t;  FedAvg has μ = 0
    server:   w^{t+1} = Σ_k (n_k / Σ n) w_k over those that answered

Fine-tuning: the personal model is what `finetune` makes of w on the client's own data; it is not sent or kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Server, State
from ..couplings import Free, Quadratic
from ..errors import not_negative
from ..solvers import SGD, Solver
from .parts.diagnostics import inner_loop_warnings, prox_facts


@dataclass(frozen=True)
class FedAvg(Method):
    """One global model, the average of locally trained ones.

    For example:

        >>> result = st.fit(st.FedAvg(), model, clients, rounds=2)
        >>> everybody = result.shared()  # one model for all
    """

    mu: float = 0.0
    weighting: str = "size"
    solver: Solver = SGD()
    finetune: Solver | None = None  # none: there is no personal model
    aggregate: Aggregator = mean

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative("FedProx", mu=self.mu)

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w = down["w"]
        coupling = Quadratic(self.mu, w) if self.mu else Free()
        return {}, {"w": self.solver.minimise(local, w, coupling)}

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor | None:
        return None if self.finetune is None else self.finetune.minimise(local, down["w"], Free(), stream=1)

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        return {"gradient_mean": local.full_grad(down["w"])} | prox_facts(local, down["w"], Free(), self.solver)

    def warnings(self, server: Server, round: int, facts: Mapping[str, float]) -> list[str]:
        return inner_loop_warnings("FedProx" if self.mu else "FedAvg", self.solver, self.mu, facts)


def FedProx(mu: float = 0.1, **settings: Any) -> FedAvg:
    """FedAvg whose clients stay near the received model: μ/2 ‖w − w^t‖².

    For example:

        >>> result = st.fit(st.FedProx(mu=0.5), model, clients, rounds=2)
        >>> st.FedProx(mu=0.5) == st.FedAvg(mu=0.5)
        True
    """
    return FedAvg(mu=mu, **settings)


ABOUT = {
    "class": "FedAvg",
    "factories": ["FedProx"],
    "title": "FedAvg, FedProx",
    "order": 70,
    "personal": "the latest w, fine-tuned by `finetune` when it is asked for",
    "names": {
        "fedavg": {
            "paper": "McMahan et al. 2017",
            "line": "one global model: the average of local ones",
            "cite": ["mcmahan2017fedavg"],
            "cold_start": "the global model",
        },
        "fedprox": {
            "paper": "Li et al. 2020",
            "line": "FedAvg with a proximal term",
            "preset": {"mu": 0.1},
            "tune": {"mu": "log(0.001, 1)"},
            "cite": ["li2020fedprox"],
            "cold_start": "the global model",
        },
        "fedavg-ft": {
            "paper": "McMahan et al. 2017",
            "line": "FedAvg, then fine-tuning at each client",
            "preset": {"finetune": {"kind": "sgd", "epochs": 5}},
            "tune": {"finetune.lr": "log(0.005, 0.5)", "finetune.epochs": "oneof(1, 2, 5, 10)"},
            "cite": ["mcmahan2017fedavg"],
            "cold_start": "the global model, fine-tuned on its data",
        },
        "fedprox-ft": {
            "paper": "Li et al. 2020",
            "line": "FedProx, then fine-tuning at each client",
            "preset": {"mu": 0.1, "finetune": {"kind": "sgd", "epochs": 5}},
            "tune": {"mu": "log(0.001, 1)", "finetune.lr": "log(0.005, 0.5)"},
            "cite": ["li2020fedprox"],
            "cold_start": "the global model, fine-tuned on its data",
        },
        "fedavg-es": {
            "paper": "McMahan et al. 2017",
            "line": "FedAvg, then fine-tuning that each client stops by its validation data",
            "preset": {"finetune": {"kind": "early"}},
            "cite": ["mcmahan2017fedavg"],
            "cold_start": "the global model, fine-tuned on its data and stopped by its validation data, if it has any",
        },
    },
    "settings": {
        "mu": "μ, FedProx's proximal term; 0 is FedAvg",
        "finetune": "the solver that makes personal models out of the global one; none: there are no personal models",
    },
    "privacy": {"sends": "its model", "server": "yes", "client": "yes"},
}
