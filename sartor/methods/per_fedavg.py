"""Per-FedAvg (Fallah et al., "Personalized federated learning with theoretical guarantees", NeurIPS 2020), Algorithm 1.

    min_w  (1/n) Σ_i F_i(w),   F_i(w) = f_i(w − α ∇f_i(w))                                                        (3)
    ∇F_i(w) = (I − α ∇²f_i(w)) ∇f_i(w − α ∇f_i(w))                                                                (4)
    client, τ steps:  w̃ = w − α ∇f_i(w; D),   w = w − β (I − α ∇²f_i(w; D'')) ∇f_i(w̃; D')
    server:           w = the mean of the w_i of the cohort
    FO: the Hessian is left out.   HF: ∇²f_i(w) v ≈ ( ∇f_i(w + δv) − ∇f_i(w − δv) ) / 2δ

`solver` holds τ and β. D, D', D'' are three orders of the client's data. δ is the length of the shift in parameter
space, δv/‖v‖, so that it suits any gradient (the paper: a δ that does not know ‖v‖). The personal model is one step α
over all of the client's training data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import Batch, ClientStack, Method, State
from ..couplings import Free
from ..errors import one_of, positive
from ..solvers import SGD, Solver
from .parts.other_losses import View
from .parts.split_steps import each_of, lasting


class Meta(View):
    """F_i in place of f_i. A batch holds D, D' and D'' side by side."""

    def __init__(self, local: ClientStack, alpha: float, delta: float | None) -> None:
        super().__init__(local)
        self.alpha, self.delta = alpha, delta

    def batches(
        self, size: int, *, epochs: int = 1, steps: int | None = None, start: int = 0, stream: int = 0
    ) -> Iterator[tuple[int, Batch]]:
        orders = [
            self.local.batches(size, epochs=epochs, steps=steps, start=start, stream=3 * stream + k) for k in range(3)
        ]
        for (a, D), (_, D1), (_, D2) in zip(*orders, strict=True):
            x, y, weight = (torch.cat(three, dim=1) for three in zip(D[:3], D1[:3], D2[:3], strict=True))
            yield a, Batch(x, y, weight, D.key)

    def grad(self, theta: Tensor, batch: Batch) -> Tensor:
        parts = zip(*(t.chunk(3, dim=1) for t in batch[:3]), strict=True)
        D, D1, D2 = (Batch(x, y, weight, batch.key) for x, y, weight in parts)
        adapted = theta - self.alpha * self.local.grad(theta, D)
        v: Tensor = self.local.grad(adapted, D1)
        if self.delta is None:
            return v
        length = v.norm(dim=1, keepdim=True).clamp(min=torch.finfo(v.dtype).tiny)
        shift = v * (self.delta / length)
        Hv = (self.local.grad(theta + shift, D2) - self.local.grad(theta - shift, D2)) * (length / (2 * self.delta))
        v -= self.alpha * Hv
        return v


@dataclass(frozen=True)
class PerFedAvg(Method):
    """Meta-learning: a global model from which one gradient step at each client leads to a good personal one.

    For example:

        >>> result = st.fit(st.PerFedAvg(alpha=0.05, variant="FO"), model, clients, rounds=2)
    """

    alpha: float = 0.01
    variant: str = "HF"  # or "FO"
    delta: float = 1e-3
    weighting: str = "uniform"
    solver: Solver = SGD()
    aggregate: Aggregator = mean

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("Per-FedAvg", alpha=self.alpha, delta=self.delta)
        one_of("Per-FedAvg", "variant", self.variant, ["HF", "FO"])

    def split(self, steps: int) -> Method:
        """A step takes ∇f(w) and ∇f(w̃), and with the Hessian two more."""
        taken = each_of(f"Per-FedAvg ({self.variant})", 4 if self.variant == "HF" else 2, steps)
        return replace(self, solver=lasting(self.solver, taken))

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        view = Meta(local, self.alpha, self.delta if self.variant == "HF" else None)
        return {}, {"w": self.solver.minimise(view, down["w"], Free())}

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return down["w"] - self.alpha * local.full_grad(down["w"].contiguous())


ABOUT = {
    "class": "PerFedAvg",
    "title": "Per-FedAvg",
    "order": 80,
    "paper": "Fallah et al. 2020",
    "personal": "the latest w after one step α over all of the client's training data",
    "names": {
        "per-fedavg": {"line": "meta-learning, Hessian-free; one step makes it personal"},
        "per-fedavg-fo": {"line": "the same to first order", "preset": {"variant": "FO"}},
    },
    "settings": {
        "alpha": "α, the one step by which a model becomes personal",
        "variant": "`HF`, with the Hessian by differences of gradients, or `FO`, without it",
        "delta": "δ, how far apart the two gradients of that difference are taken",
    },
    "tune": {"alpha": "log(0.001, 0.1)"},
    "cite": ["fallah2020perfedavg"],
    "local_steps": "N/4 steps, of four gradients each (HF), or N/2, of two (FO); N must be a multiple",
    "cold_start": "the global model after one step α over all its data",
    "privacy": {"sends": "its model", "server": "yes", "client": "yes"},
}
