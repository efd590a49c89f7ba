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
update (Lemma 3; it holds at the start as θ_i = w_i), so only θ and w are kept, and (12), (13) become two linear
interpolations. A robust `aggregate` makes FLAME
inexact, even on clean data.
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
from .parts.diagnostics import flame_theorem1, inner_loop_warnings, prox_facts, prox_slope
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
        start = {"theta": w, "w": w} | ({"gap": w.new_zeros(1)} if isinstance(self.solver, Inexact) else {})
        return remembering(problem.clients, w, self.aggregate), start

    def lam_alpha(self, local: ClientStack) -> float | Tensor:
        return self.lam / local.clients if self.weighting == "uniform" else self.lam * local.share

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w, theta, w_i, la, rho = down["w"], state["theta"], state["w"], self.lam_alpha(local), self.rho
        coupling = Quadratic(self.lam, w_i if self.anchor == "local" else w)
        new = self.solver.minimise(local, theta, coupling)
        w_i = (new - theta).add_(w_i).lerp_(w, rho / (la + rho))  # (12): (λα θ' + ρ w − π) / (λα + ρ)
        u = w_i.lerp(new, la / rho)  # (13): w_i + π'/ρ
        kept = {"theta": new, "w": w_i}
        if isinstance(self.solver, Inexact):
            kept["gap"] = prox_slope(local, new, coupling).square().sum(1, keepdim=True)
        return kept, {"u": u}

    def exposes(self) -> str:
        return "" if self.weighting == "uniform" else "its share of all samples; use weighting=uniform"

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        return mean_of_last(server, ids, messages, self.aggregate)

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return state["theta"]

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        """L as the mean over clients, the residuals of (16), and how far (17) was met."""
        w, theta, w_i, la, m = down["w"], state["theta"], state["w"], self.lam_alpha(local), local.clients
        pi, coupling = la * (theta - w_i), Quadratic(self.lam, w_i)
        alpha = la / self.lam
        alpha = alpha[:, 0] if isinstance(alpha, Tensor) else alpha
        away = w_i - w
        L = (
            alpha * (local.full_loss(theta) + coupling.value(theta))
            + (pi * away).sum(1)
            + self.rho / 2 * (away**2).sum(1)
        )
        facts = {"lagrangian": m * L, "primal_residual": away.norm(dim=1), "dual_mean": pi}
        facts |= {"dual_residual": (pi - la * (theta - w)).norm(dim=1)} | prox_facts(
            local, theta, coupling, self.solver
        )
        holds = flame_theorem1(alpha * self.lam, self.rho, alpha * facts["smoothness"])
        facts["theorem1_holds"] = holds.all(1).to(w.dtype)
        if isinstance(self.solver, Inexact):
            missed = state["gap"][:, 0] > self.solver.tolerance(local.visits) * (1 + 1e-6)
            facts |= {"inexact_gap": state["gap"][:, 0], "inexact_missed": missed.to(w.dtype)}
        return facts

    def warnings(self, server: Server, round: int, facts: Mapping[str, float]) -> list[str]:
        m = len(server["u"])
        x = self.lam / m if self.weighting == "uniform" else self.lam  # the largest λα_i there can be
        said = inner_loop_warnings("FLAME", self.solver, self.lam, facts)
        if self.weighting == "uniform" and self.rho < x:
            said.append(
                f"FLAME: ρ = {self.rho:g} < λα = {x:g}: the Lagrangian need not decrease; "
                f"it cannot increase for ρ >= {2.5616 * x:.3g} with exact steps."
            )
        if facts.get("inexact_missed_mean", 0) > 0:
            said.append(
                f"FLAME: {facts['inexact_missed_mean']:.0%} of clients did not reach ‖∇‖² <= ε (17); raise max_steps."
            )
        return said


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
