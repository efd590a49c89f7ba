"""Mapper (Mansour et al., "Three approaches for personalization with applications to federated learning", 2020).

    min over h_c and all (h_{l,k}, λ_k)  (model interpolation):   Σ_k (m_k/m) L_k( λ_k h_{l,k} + (1 − λ_k) h_c )
    client k:  for each λ of a list:  h_l(λ) ≈ argmin_h L_k( λ h + (1 − λ) h_c ),  started at its last h_l
               λ_k = the best of them;   h_{l,k} = h_l(λ_k)
               h_c,k = h_c − η Σ ∇_{h_c} L_k( λ_k h_{l,k} + (1 − λ_k) h_c ),  the solver's steps
    server:    h_c = the mean of the cohort's h_c,k by size

The paper interpolates hypotheses; we interpolate parameters, which is the same for a linear model and keeps one model
to deploy. It judges λ by the loss; we use the client's validation loss (training loss where it has no such samples), as
on its own training data λ = 1 would nearly always win. A client at λ = 1 does not train h_c. The paper asks one client
at a time, we ask a cohort.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Problem, Server, State, uncounted
from ..couplings import Free
from ..errors import need
from ..solvers import SGD, Solver
from .parts.other_losses import Mixed
from .parts.split_steps import lasting


@dataclass(frozen=True)
class Mapper(Method):
    """Model interpolation: the better of a few mixtures of a local and the central model, both trained through it.

    For example:

        >>> result = st.fit(st.Mapper(lambdas=(0.0, 0.5)), model, clients, rounds=2)
    """

    lambdas: tuple[float, ...] = (0.0, 0.25, 0.5)
    weighting: str = "size"
    solver: Solver = SGD()
    aggregate: Aggregator = mean
    central_solver: Solver | None = None  # of h_c; none: the same as `solver`

    def __post_init__(self) -> None:
        super().__post_init__()
        good = len(self.lambdas) > 0 and all(0 <= v <= 1 for v in self.lambdas)
        need(good, f"mapper needs lambdas in [0, 1], at least one; got {list(self.lambdas)}.")

    def unsplit(self) -> str:
        return uncounted(self.solver) or uncounted(self.central_solver or self.solver)

    def split(self, steps: int) -> Method:
        """Every λ but 0 has the same share, and h_c what is left."""
        loops = 1 + sum(value > 0 for value in self.lambdas)
        need(steps >= loops, f"mapper needs local_steps >= {loops}: one for each λ > 0 and one for h_c; got {steps}.")
        share, central = steps // loops, self.central_solver or self.solver
        left = steps - share * (loops - 1)
        return replace(self, solver=lasting(self.solver, share), central_solver=lasting(central, left))

    def init(self, problem: Problem) -> tuple[Server, State]:
        h = problem.start
        return {"w": h}, {"h": h, "lambda": h.new_full((1,), self.lambdas[0])}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        h_c, h_l, lam = down["w"], state["h"], state["lambda"]
        lowest = torch.full_like(lam, torch.inf)
        for value in self.lambdas:
            view = Mixed(local, value, h_c)
            h = state["h"]
            if value > 0:  # at λ = 0 the loss does not know it
                h = self.solver.minimise(view, h, Free(), stream=1)
            loss, own = view.validation(h)[1], view.full_loss(h)
            loss = torch.where(torch.isnan(loss), own, loss)[:, None]
            better = loss < lowest
            h_l, lam = torch.where(better, h, h_l), torch.where(better, value, lam)
            lowest = torch.where(better, loss, lowest)
        h_c = (self.central_solver or self.solver).minimise(Mixed(local, 1 - lam, h_l), h_c, Free())
        return {"h": h_l, "lambda": lam}, {"w": h_c}

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return torch.lerp(down["w"], state["h"], state["lambda"])

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        return {"lambda": state["lambda"][:, 0]}


ABOUT = {
    "class": "Mapper",
    "order": 110,
    "paper": "Mansour et al. 2020",
    "personal": "λ_i h_i + (1 − λ_i) w, with the latest w",
    "names": {"mapper": {"line": "the best of a few mixtures of a local and the central model"}},
    "settings": {
        "lambdas": "the mixtures to try: the share of the local model in each",
        "central_solver": "the solver of the central model; none: the same as `solver`",
    },
    "cite": ["mansour2020three"],
    "local_steps": "the same number for each λ > 0, what is left for h_c",
    "cold_start": "h from w; the best of the mixtures on its validation data (on its training data if it has none)",
    "privacy": {"sends": "its copy of the global model; h and λ stay", "server": "yes", "client": "yes"},
}
