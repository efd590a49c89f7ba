"""APFL (Deng, Kamani, Mahdavi, "Adaptive personalized federated learning", 2020), Algorithm 1.

    v̄_i = α_i v_i + (1 − α_i) w*,   α_i and v_i minimise f_i(v̄_i)                                            (2), (3)
    client, τ steps:  w_i = w_i − η ∇f_i(w_i; ξ),   v_i = v_i − η α_i ∇f_i(α_i v_i + (1 − α_i) w_i; ξ)
    mixture:          α_i = α_i − η_α <v_i − w, ∇f_i(v̄_i)>,  kept in [0, 1]                                      (10)
    server:           w = the mean of the cohort's w_i

w_i and v_i step on the same batches. α_i moves once a round, before the steps, at the received w and over all of the
client's data, or over `alpha_batches` minibatches of them (the paper: one, with the models' η; here η_α is a setting of
its own, and 0 keeps α fixed). A step takes two gradients, of w_i and of v_i.
The personal model is α_i v_i + (1 − α_i) w with the latest w.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import Batch, ClientStack, Method, Problem, Server, State
from ..couplings import Free
from ..errors import need, not_negative
from ..solvers import SGD, Solver
from .parts.other_losses import View
from .parts.split_steps import each_of, lasting


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
    """Each client mixes a local model with the global one, and learns by how much.

    For example:

        >>> result = st.fit(st.APFL(alpha=0.25, alpha_lr=0.5), model, clients, rounds=3)
        >>> result.history[-1]["diagnostics"]["alpha_max"] > 0.25  # a client relies more on its own model than at first
        True
    """

    alpha: float = 0.5  # at the start
    alpha_lr: float = 0.1
    alpha_batches: int | None = None  # none: all data
    weighting: str = "uniform"
    solver: Solver = SGD()
    aggregate: Aggregator = mean
    lengths: ClassVar[tuple[str, ...]] = ("alpha_batches",)

    def __post_init__(self) -> None:
        super().__post_init__()
        need(0 <= self.alpha <= 1, f"APFL needs alpha in [0, 1]; got {self.alpha}.")
        not_negative("APFL", alpha_lr=self.alpha_lr)
        need(
            self.alpha_batches is None or self.alpha_batches >= 1,
            f"APFL needs alpha_batches >= 1 (or none, for all data); got {self.alpha_batches}.",
        )

    def split(self, steps: int) -> Method:
        """α moves on one or two minibatches, so that the rest is even: steps of w and v together."""
        if not self.alpha_lr:
            return replace(self, solver=lasting(self.solver, each_of("APFL", 2, steps)))
        need(steps >= 3, f"APFL needs local_steps >= 3: one gradient for α, two for a step of w and v; got {steps}.")
        for_alpha = 2 - steps % 2
        return replace(self, alpha_batches=for_alpha, solver=lasting(self.solver, (steps - for_alpha) // 2))

    def init(self, problem: Problem) -> tuple[Server, State]:
        w = problem.start
        return {"w": w}, {"v": w, "alpha": w.new_full((1,), self.alpha)}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w, v, alpha = down["w"], state["v"], state["alpha"]
        if self.alpha_lr:
            slope = ((v - w) * self.mixture_grad(torch.lerp(w, v, alpha), local)).sum(1, keepdim=True)
            alpha = (alpha - self.alpha_lr * slope).clamp(0, 1)
        w_i, v = self.solver.minimise(Pair(local, alpha), torch.cat([w, v], dim=1), Free()).chunk(2, dim=1)
        return {"v": v, "alpha": alpha}, {"w": w_i}

    def mixture_grad(self, mixture: Tensor, local: ClientStack) -> Tensor:
        """∇f_i(v̄_i) [c, d] over all data, or over a few minibatches."""
        if self.alpha_batches is None:
            return local.full_grad(mixture)
        size: int = getattr(self.solver, "batch", 20)
        drawn = local.batches(size, steps=self.alpha_batches, stream=1)
        return torch.stack([local.grad(mixture, batch) for _, batch in drawn]).mean(0)

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return torch.lerp(down["w"], state["v"], state["alpha"])

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        return {"alpha": state["alpha"][:, 0]}


ABOUT = {
    "class": "APFL",
    "order": 90,
    "paper": "Deng et al. 2020",
    "personal": "α_i v_i + (1 − α_i) w, with the latest w",
    "names": {"apfl": {"line": "a local model mixed with the global one by a learnt α"}},
    "settings": {
        "alpha": "α at the start: the share of the local model in the mixture",
        "alpha_lr": "η_α, the step by which each client's α is learnt; 0 keeps it",
        "alpha_batches": "minibatches over which α's slope is taken; none: all of the client's data",
    },
    "tune": {"alpha": "flat(0.1, 0.9)", "alpha_lr": "log(0.001, 1)"},
    "cite": ["deng2020apfl"],
    "local_steps": "1 or 2 for α, the others in pairs for w and v",
    "cold_start": "v from w and α from its first value, both learnt; the mixture α v + (1 − α) w",
    "privacy": {"sends": "its copy of the global model; v and α stay", "server": "yes", "client": "yes"},
}
