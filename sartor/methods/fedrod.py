"""FedRoD (Chen, Chao, "On bridging generic and personalized federated learning for image classification", ICLR 2022).

    model: a body φ under a generic head g; each client has a head p_i of its own beside it
    client, on each batch:   (φ, g) = a step on the balanced loss −log softmax(g∘φ(x) + γ log π_i)_y
                             p_i = a step on f_i(g∘φ + p_i∘φ), in which φ and g stand still
    server:   (φ, g) = Σ (n_k / Σ n) (φ_k, g_k) over those that answered;   p_i stays at client i
    personal: the sum of both heads' logits, g∘φ + p_i∘φ

π_i [k] are the shares of the classes among the client's training samples: the balanced softmax trains (φ, g) as if all
classes came alike. A head is the last layer, which is linear: the sum of two heads' logits is what the model with the
head g + p_i says. p_i begins at zero. A step takes two gradients, of (φ, g) and of p_i. γ = 1 is the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from ..aggregators import Aggregator, mean
from ..core import Batch, ClientStack, Method, Problem, Server, State
from ..couplings import Free
from ..errors import need, not_negative
from ..solvers import SGD, Solver
from .parts.other_losses import View
from .parts.own_parts import last_coordinates
from .parts.split_steps import each_of, lasting


class TwoHeads(View):
    """θ = (w, p): the generic model under the balanced loss, the personal head under the client's own."""

    def __init__(self, local: ClientStack, head: slice, gamma: float) -> None:
        super().__init__(local)
        self.head, self.gamma, self.pi = head, gamma, local.class_shares()

    def grad(self, theta: Tensor, batch: Batch) -> Tensor:
        p = theta[:, -(self.head.stop - self.head.start) :]
        w = theta[:, : -p.shape[1]].contiguous()
        outputs, back = self.local.vjp(w, batch)
        pi = pad(self.pi[: len(w)], (0, outputs.shape[-1] - self.pi.shape[1]))  # a model may have outputs to spare
        said = (outputs + self.gamma * pi.log()[:, None] if self.gamma else outputs).softmax(-1)
        slope = (said - one_hot(batch.y, said.shape[-1])) * batch.weight[..., None]
        return torch.cat([back(slope), self.local.grad(with_head(w, p, self.head), batch)[:, self.head]], dim=1)


def with_head(w: Tensor, p: Tensor, head: slice) -> Tensor:
    """[c, d] the generic models with g + p in place of g."""
    both = w.clone()
    both[:, head] += p
    return both


@dataclass(frozen=True)
class FedRoD(Method):
    """A generic model trained as if classes were balanced, and beside its head one for the client's own classes.

    For example:

        >>> result = st.fit(st.FedRoD(), model, clients, rounds=2)
        >>> generic, own = result.shared(), result.personal(2)
    """

    gamma: float = 1.0
    weighting: str = "size"
    solver: Solver = SGD()
    aggregate: Aggregator = mean

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative("FedRoD", gamma=self.gamma)

    def split(self, steps: int) -> Method:
        return replace(self, solver=lasting(self.solver, each_of("FedRoD", 2, steps)))

    def init(self, problem: Problem) -> tuple[Server, State]:
        need(
            problem.loss == "cross-entropy",
            f"FedRoD balances classes, so it needs the loss cross-entropy; got {problem.loss}. Use fedper.",
        )
        w = problem.start
        return {"w": w}, {"p": torch.zeros_like(w[last_coordinates(problem.blocks, 1)])}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w, p = down["w"], state["p"]
        both = TwoHeads(local, last_coordinates(local.blocks, 1), self.gamma)
        theta = self.solver.minimise(both, torch.cat([w, p], dim=1), Free())
        return {"p": theta[:, w.shape[1] :]}, {"w": theta[:, : w.shape[1]]}

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return with_head(down["w"], state["p"], last_coordinates(local.blocks, 1))


ABOUT = {
    "class": "FedRoD",
    "order": 166,
    "paper": "Chen, Chao 2022",
    "personal": "the latest φ under g + p_i, the generic head and the client's own",
    "names": {"fedrod": {"line": "a generic head trained as if classes were balanced, and a personal head beside it"}},
    "settings": {"gamma": "γ, how far classes are balanced for the generic model: 0 not at all, 1 to equal shares"},
    "cite": ["chen2022fedrod"],
    "local_steps": "N/2 steps, of two gradients each; N must be a multiple",
    "cold_start": "the global model; each visit trains a head of its own beside the generic one",
    "privacy": {"sends": "the generic model; the personal head stays", "server": "yes", "client": "yes"},
}
