"""FedAvg (McMahan et al., AISTATS 2017), FedProx (Li et al., MLSys 2020), and both with fine-tuning.

client:   w_k ≈ argmin F_k(w) + μ/2 ‖w − w^t‖²   from w^t;  FedAvg has μ = 0
server:   w^{t+1} = Σ_k (n_k / Σ n) w_k over those that answered
fine-tuning: the personal model is what `finetune` makes of w on the client's own data; it is not sent or kept
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Server, State
from ..couplings import Free, Quadratic
from ..errors import not_negative
from ..solvers import SGD, Solver
from .parts.diagnostics import inner_loop_warnings, prox_facts


@dataclass(frozen=True)
class FedAvg(Method):
    """One global model, the average of locally trained ones."""

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
