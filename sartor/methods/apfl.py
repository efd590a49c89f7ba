"""APFL (Deng, Kamani, Mahdavi, "Adaptive personalized federated learning", 2020), Algorithm 1.

    v̄_i = α_i v_i + (1 − α_i) w*,   α_i and v_i minimise f_i(v̄_i)                                            (2), (3)
    client, τ steps:  w_i = w_i − η ∇f_i(w_i; ξ),   v_i = v_i − η α_i ∇f_i(α_i v_i + (1 − α_i) w_i; ξ)
    mixture:          α_i = α_i − η_α <v_i − w, ∇f_i(v̄_i)>,  kept in [0, 1]                                      (10)
    server:           w = the mean of the cohort's w_i

w_i and v_i step on the same batches. α_i moves once a round, before the steps, at the received w and over all of the
client's data (the paper: on a minibatch, with the models' η; here η_α is a setting of its own, and 0 keeps α fixed).
The personal model is α_i v_i + (1 − α_i) w with the latest w.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import Batch, ClientStack, Method, Problem, Server, State
from ..couplings import Free
from ..errors import need, not_negative
from ..solvers import SGD, Solver
from .parts.other_losses import View


class Pair(View):
    """θ = (w, v): the global model on its own loss, the local one through the mixture."""

    def __init__(self, local: ClientStack, alpha: Tensor) -> None:
        super().__init__(local)
        self.alpha = alpha

    def grad(self, theta: Tensor, batch: Batch) -> Tensor:
        alpha, (w, v) = self.alpha[: len(theta)], theta.chunk(2, dim=1)
        w = w.contiguous()
        return torch.cat([self.local.grad(w, batch), alpha * self.local.grad(torch.lerp(w, v, alpha), batch)], dim=1)


@dataclass(frozen=True)
class APFL(Method):
    """Each client mixes a local model with the global one, and learns by how much."""

    alpha: float = 0.5  # at the start
    alpha_lr: float = 0.1
    weighting: str = "uniform"
    solver: Solver = SGD()
    aggregate: Aggregator = mean

    def __post_init__(self) -> None:
        super().__post_init__()
        need(0 <= self.alpha <= 1, f"APFL needs alpha in [0, 1]; got {self.alpha}.")
        not_negative("APFL", alpha_lr=self.alpha_lr)

    def init(self, problem: Problem) -> tuple[Server, State]:
        w = problem.start
        return {"w": w}, {"v": w, "alpha": w.new_full((1,), self.alpha)}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w, v, alpha = down["w"], state["v"], state["alpha"]
        if self.alpha_lr:
            slope = ((v - w) * local.full_grad(torch.lerp(w, v, alpha))).sum(1, keepdim=True)
            alpha = (alpha - self.alpha_lr * slope).clamp(0, 1)
        w_i, v = self.solver.minimise(Pair(local, alpha), torch.cat([w, v], dim=1), Free()).chunk(2, dim=1)
        return {"v": v, "alpha": alpha}, {"w": w_i}

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return torch.lerp(down["w"], state["v"], state["alpha"])

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        return {"alpha": state["alpha"][:, 0]}


ABOUT = {
    "class": "APFL",
    "order": 90,
    "paper": "Deng et al. 2020",
    "names": {"apfl": {"line": "a local model mixed with the global one by a learnt α"}},
    "settings": {
        "alpha": "α at the start: the share of the local model in the mixture",
        "alpha_lr": "η_α, the step by which each client's α is learnt; 0 keeps it",
    },
    "tune": {"alpha": "flat(0.1, 0.9)", "alpha_lr": "log(0.001, 1)"},
    "cite": ["deng2020apfl"],
    "cold_start": "v from w and α from its first value, both learnt; the mixture α v + (1 − α) w",
    "privacy": {"sends": "its copy of the global model; v and α stay", "server": "yes", "client": "yes"},
}
