"""FLAME: ADMM on the Moreau-envelope objective.

"On ADMM in heterogeneous federated learning: personalization, robustness, and fairness", Algorithm 1.

    min_{θ, w}  Σ_i α_i ( f_i(θ_i) + λ/2 ‖θ_i − w‖² )                                                         (6)
    L = Σ_i [ α_i ( f_i(θ_i) + λ/2‖θ_i − w_i‖² ) + <π_i, w_i − w> + ρ/2 ‖w_i − w‖² ]                          (10)
    client in S_t:   θ_i ≈ argmin f_i(θ) + λ/2 ‖θ − w_i‖²                                                     (11)
                     w_i = (λα_i θ_i + ρ w − π_i) / (λα_i + ρ)                                                (12)
                     π_i = π_i + ρ (w_i − w),      send u_i = w_i + π_i/ρ                                     (13)
    server:          w = (1/m) Σ_i u_i over ALL clients, with the last u_i of those that sat out              (14)

As written: the θ-step is anchored at the client's own w_i; `anchor="global"` anchors it at the received w, as the
authors' code does. Local epochs are the solver's, and (12), (13) run once a round. π_i = λα_i(θ_i − w_i) after every
update (Lemma 3; it holds at the start as θ_i = w_i), so only θ_i and w_i are kept, and (12), (13) are linear
interpolations. A robust `aggregate` makes FLAME inexact, even on clean data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Problem, Sent, Server, State
from ..couplings import Quadratic
from ..errors import one_of, positive
from ..solvers import SGD, Inexact, Solver
from .parts.diagnostics import prox_slope
from .parts.flame_facts import flame_facts, flame_warnings
from .parts.last_messages import mean_of_last, remembering


@dataclass(frozen=True)
class FLAME(Method):
    """ADMM on the Moreau-envelope objective: a personal, a local and a global model."""

    lam: float = 0.1
    rho: float = 0.03
    anchor: str = "local"
    weighting: str = "uniform"  # α_i = 1/m, or "size": n_i / Σ n
    solver: Solver = SGD()
    aggregate: Aggregator = mean
    keeps_last: ClassVar[bool] = True
    sends = (Sent("u", against="last"),)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("FLAME", lam=self.lam, rho=self.rho)
        one_of("FLAME", "anchor", self.anchor, ["local", "global"])

    def init(self, problem: Problem) -> tuple[Server, State]:
        w = problem.start
        gap = {"gap": w.new_zeros(1)} if isinstance(self.solver, Inexact) else {}
        return remembering(problem.clients, w, self.aggregate), {"theta": w, "w": w} | gap

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w, la = down["w"], self.lam_alpha(local)
        coupling = Quadratic(self.lam, state["w"] if self.anchor == "local" else w)
        theta = self.solver.minimise(local, state["theta"], coupling)  # (11)
        w_i = local_model(theta, w, state, la, self.rho)  # (12)
        u = message(theta, w_i, la, self.rho)  # (13)
        gap = {}
        if isinstance(self.solver, Inexact):
            gap["gap"] = prox_slope(local, theta, coupling).square().sum(1, keepdim=True)
        return {"theta": theta, "w": w_i} | gap, {"u": u}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        return mean_of_last(server, ids, messages, self.aggregate)  # (14)

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return state["theta"]

    def lam_alpha(self, local: ClientStack) -> float | Tensor:
        """λα_i, a number or [c, 1]."""
        return self.lam / local.clients if self.weighting == "uniform" else self.lam * local.share

    def exposes(self) -> str:
        return "" if self.weighting == "uniform" else "its share of all samples; use weighting=uniform"

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        return flame_facts(state, down["w"], local, self.lam, self.rho, self.lam_alpha(local), self.solver)

    def warnings(self, server: Server, round: int, facts: Mapping[str, float]) -> list[str]:
        alike = self.lam / len(server["u"]) if self.weighting == "uniform" else None
        return flame_warnings(self.lam, self.rho, alike, self.solver, facts)


def local_model(theta: Tensor, w: Tensor, before: State, la: float | Tensor, rho: float) -> Tensor:
    """(12): w_i = (λα_i θ_i + ρ w − π_i) / (λα_i + ρ), where π_i = λα_i(θ_i − w_i) of the round before."""
    return (theta - before["theta"]).add_(before["w"]).lerp_(w, rho / (la + rho))


def message(theta: Tensor, w_i: Tensor, la: float | Tensor, rho: float) -> Tensor:
    """(13): u_i = w_i + π_i/ρ, where π_i = λα_i(θ_i − w_i) is what π_i + ρ(w_i − w) has become."""
    return w_i.lerp(theta, la / rho)


ABOUT = {
    "class": "FLAME",
    "order": 10,
    "paper": "FLAME",
    "names": {"flame": {"line": "ADMM on Moreau envelopes; personal, local and global model"}},
    "settings": {
        "rho": (
            "ρ, the penalty of the ADMM: how firmly local models are held to the global one. Take at least 2.56 "
            "λα, with α = 1/clients"
        ),
        "anchor": (
            "where the θ-step is held: `local`, the client's own w_i (the paper), or `global`, the received w "
            "(the authors' code)"
        ),
    },
    "tune": {"lam": "log(0.01, 10)", "rho": "log(0.001, 1)"},
    "cite": ["zhu2024flame"],
    "cold_start": (
        "θ from w: each visit a proximal step anchored at its own w_i, which begins at w with π = 0; the visits "
        "converge to the proximal point of w"
    ),
    "privacy": {
        "sends": "u_i = w_i + π_i/ρ, clipped against w; θ_i and π_i stay",
        "server": (
            "yes, and a client that sat out counts with w itself; `weighting=size` is refused, as Σn would be known"
        ),
        "client": "yes; `weighting=size` is refused, too",
    },
}
