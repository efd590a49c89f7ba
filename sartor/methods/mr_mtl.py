"""MR-MTL: mean-regularised multi-task learning (Evgeniou and Pontil 2004; Liu et al., NeurIPS 2022).

    min_{w_1..w_m}  Σ_i F_i(w_i) + λ/2 ‖w_i − w̄‖²,   w̄ = (1/m) Σ_i w_i
    client:   w_i ≈ argmin F_i(w) + λ/2 ‖w − w̄‖²,  started at its own last w_i
    server:   w̄ = (1/|S_t|) Σ_{S_t} w_i

λ → 0 is local training, λ → ∞ one model for all. As FLAME's objective (6), by turns instead of by ADMM: with local
problems solved to the end both reach the same point. Liu et al. found it the best of many under patient-level privacy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Problem, Server, State
from ..couplings import Quadratic
from ..errors import positive
from ..solvers import SGD, Solver
from .parts.diagnostics import inner_loop_warnings, prox_facts


@dataclass(frozen=True)
class MRMTL(Method):
    """Personal models held near their mean.

    For example:

        >>> result = st.fit(st.MRMTL(lam=0.5), model, clients, rounds=2)
    """

    lam: float = 0.1
    weighting: str = "uniform"
    solver: Solver = SGD()
    aggregate: Aggregator = mean

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("MR-MTL", lam=self.lam)

    def init(self, problem: Problem) -> tuple[Server, State]:
        return {"w": problem.start}, {"w": problem.start}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w = self.solver.minimise(local, state["w"], Quadratic(self.lam, down["w"]))
        return {"w": w}, {"w": w}

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return state["w"]

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        gap = {"envelope_gradient": self.lam * (down["w"] - state["w"])}
        return gap | prox_facts(local, state["w"], Quadratic(self.lam, down["w"]), self.solver)

    def warnings(self, server: Server, round: int, facts: Mapping[str, float]) -> list[str]:
        return inner_loop_warnings("MR-MTL", self.solver, self.lam, facts)


ABOUT = {
    "class": "MRMTL",
    "title": "MR-MTL",
    "order": 65,
    "paper": "Liu et al. 2022",
    "personal": "w_i after the client's last local training",
    "names": {"mr-mtl": {"line": "personal models held near their mean"}},
    "tune": {"lam": "log(0.01, 10)"},
    "convex": {"solver.kind": "newton"},
    "cite": ["liu2022mrmtl"],
    "cold_start": "w_i from w̄: each visit a proximal step towards w̄",
    "privacy": {"sends": "w_i, its personal model itself", "server": "yes", "client": "yes"},
}
