"""SKL: fine-tuning held back by the predictions (Jiang et al., ACL 2020, "SMART"; Ditto, Appendix C).

    w* by FedAvg;   client k:  min_w  F_k(w) + λ/2 ( D_KL(f(w) ‖ f(w*)) + D_KL(f(w*) ‖ f(w)) ),  started at w*
    f(w): the softmax of the outputs, on the same samples as F_k
    with outputs z, p = softmax(z), q = softmax(z*), r = log p − log q:   ∂/∂z = p (r − <p, r>) + p − q
    and of F_k, the cross-entropy with the class y:   ∂/∂z = p − e_y;   both go back through the model in one pass

The divergences are means over the batch. The personal model is made when it is asked for, and neither sent nor kept.
A task without class probabilities (squared, hinge or a loss of one's own) is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import Batch, ClientStack, Method, Number, Problem, Server, State
from ..couplings import Free
from ..errors import need, positive
from ..solvers import SGD, Solver
from .parts.other_losses import View


class NearPredictions(View):
    """f_i with the symmetrised divergence from the predictions of `w` [c, d]."""

    def __init__(self, local: ClientStack, lam: Number, w: Tensor) -> None:
        super().__init__(local)
        self.lam, self.w = lam, w

    def grad(self, theta: Tensor, batch: Batch) -> Tensor:
        z, back = self.local.vjp(theta, batch)
        y = torch.nn.functional.one_hot(batch.y, z.shape[-1]).to(z.dtype)
        log_p = torch.log_softmax(z, -1)
        log_q = torch.log_softmax(self.local.vjp(self.w[: len(theta)], batch)[0], -1)
        p, r = log_p.exp(), log_p - log_q
        slope = p * (r - (p * r).sum(-1, keepdim=True)) + p - log_q.exp()
        lam = self.lam[: len(theta), :, None] if isinstance(self.lam, Tensor) else self.lam
        return back(batch.weight[..., None] * (p - y + lam / 2 * slope))


@dataclass(frozen=True)
class SKL(Method):
    """FedAvg, then fine-tuning whose predictions stay near the global model's.

    For example:

        >>> result = st.fit(st.SKL(lam=1.0, finetune=st.SGD(epochs=2)), model, clients, rounds=2)
    """

    lam: float = 0.1
    weighting: str = "size"
    solver: Solver = SGD()
    finetune: Solver = SGD(epochs=5)
    aggregate: Aggregator = mean

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("SKL", lam=self.lam)

    def init(self, problem: Problem) -> tuple[Server, State]:
        need(
            problem.loss == "cross-entropy",
            f"SKL compares class probabilities, so it needs cross-entropy; got {problem.loss} loss. "
            "Use ewc or ditto, or a softmax or mlp model.",
        )
        return super().init(problem)

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        return {}, {"w": self.solver.minimise(local, down["w"], Free())}

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        w = down["w"].contiguous()
        return self.finetune.minimise(NearPredictions(local, self.lam, w), w, Free(), stream=1)


ABOUT = {
    "class": "SKL",
    "order": 130,
    "paper": "Jiang et al. 2020",
    "personal": "the latest w, fine-tuned when it is asked for, its predictions held near the global model's",
    "names": {"skl": {"line": "FedAvg, then fine-tuning that keeps its predictions near the global ones"}},
    "settings": {"lam": "λ, how strongly predictions are held at the global model's"},
    "tune": {"lam": "log(0.01, 10)", "finetune.lr": "log(0.005, 0.5)"},
    "cite": ["jiang2020smart"],
    "cold_start": "the global model, fine-tuned with its predictions held near the global model's",
    "privacy": {"sends": "its model", "server": "yes", "client": "yes"},
}
