"""FLAME: ADMM on the Moreau-envelope objective.

"On ADMM in heterogeneous federated learning: personalization, robustness, and fairness", Algorithm 1.

    min_{θ, w}  Σ_i α_i ( f_i(θ_i) + λ/2 ‖θ_i − w‖² )                                                         (6)
    L = Σ_i [ α_i ( f_i(θ_i) + λ/2‖θ_i − w_i‖² ) + <π_i, w_i − w> + ρ/2 ‖w_i − w‖² ]                          (10)
    client in S_t:   θ_i ≈ argmin f_i(θ) + λ/2 ‖θ − w_i‖²                                                     (11)
                     w_i = (λα_i θ_i + ρ w − π_i) / (λα_i + ρ)                                                (12)
                     π_i = π_i + ρ (w_i − w),      send u_i = w_i + π_i/ρ                                     (13)
    server:          w = (1/m) Σ_i u_i over ALL clients, with the last u_i of those that sat out              (14)

The θ-step is anchored at the received w, as in the authors' code; `anchor="local"` anchors it at the client's own w_i,
as Algorithm 1 is written. Exact θ-steps lead to the same models either way. With a few gradient steps the received w,
which has heard of everybody, is the better place to be held at (validation data, docs/methods/flame.md). Local epochs
are the solver's, and (12), (13) run once a round. π_i = λα_i(θ_i − w_i) after every update (Lemma 3; it holds at the
start as θ_i = w_i), so only θ_i and w_i are kept, and (12), (13) are linear interpolations. A robust `aggregate` makes
FLAME inexact, even on clean data.

ρ has a natural unit, λα with α = 1/m: the `speed` λα/ρ says how fast w follows the clients, in a federation of any
size. From π = 0, w moves 2·speed/(1 + speed) of the way to their mean in a round. The paper has 1 in Table III, in its
robustness study and in Fig. 12, and up to 5 in Figs 9 and 10. `rho` gives ρ itself, as a paper prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Problem, Sent, Server, State
from ..couplings import Quadratic
from ..errors import one_of, positive
from ..solvers import SGD, Inexact, Solver
from .parts.admm_speed import penalty, same_penalty, set_speed
from .parts.diagnostics import prox_slope
from .parts.flame_facts import flame_facts, flame_warnings
from .parts.last_messages import mean_of_last, remembering


@dataclass(frozen=True)
class FLAME(Method):
    """ADMM on the Moreau-envelope objective: a personal, a local and a global model.

    For example:

        >>> result = st.fit(st.FLAME(lam=0.5, solver=st.SGD(lr=0.05)), model, clients, rounds=2)
    """

    lam: float = 0.3
    speed: float | None = None  # λα/ρ; none: 3, or what `rho` makes it
    rho: float | None = None  # ρ itself, in place of the speed
    anchor: str = "global"
    weighting: str = "uniform"  # α_i = 1/m, or "size": n_i / Σ n
    solver: Solver = SGD()
    aggregate: Aggregator = mean
    columns: ClassVar[tuple[str, ...]] = ("lam", "speed", "rho")
    keeps_last: ClassVar[bool] = True
    sends = (Sent("u", against="last"),)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("FLAME", lam=self.lam)
        set_speed(self, "FLAME", usual=3.0)
        one_of("FLAME", "anchor", self.anchor, ["local", "global"])

    def init(self, problem: Problem) -> tuple[Server, State]:
        w = problem.start
        gap = {"gap": w.new_zeros(1)} if isinstance(self.solver, Inexact) else {}
        return remembering(problem.clients, w, self.aggregate), {"theta": w, "w": w} | gap

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w, la, rho = down["w"], self.lam_alpha(local), self.penalty(local.clients)
        coupling = Quadratic(self.lam, state["w"] if self.anchor == "local" else w)
        theta = self.solver.minimise(local, state["theta"], coupling)  # (11)
        w_i = local_model(theta, w, state, la, rho)  # (12)
        u = message(theta, w_i, la, rho)  # (13)
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

    def penalty(self, m: int) -> float:
        """ρ among m clients."""
        return penalty(self, m)

    def with_lam(self, lam: Any) -> Method:
        return same_penalty(super().with_lam(lam), self)

    def exposes(self) -> str:
        return "" if self.weighting == "uniform" else "its share of all samples; use weighting=uniform"

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        rho = self.penalty(local.clients)
        return flame_facts(state, down["w"], local, self.lam, rho, self.lam_alpha(local), self.solver)

    def warnings(self, server: Server, round: int, facts: Mapping[str, float]) -> list[str]:
        m = len(server["u"])
        return flame_warnings(self.lam, self.lam / m / self.penalty(m), self.solver, facts)


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
    "personal": "θ_i after the client's last local training",
    "names": {"flame": {"line": "ADMM on Moreau envelopes; personal, local and global model"}},
    "settings": {
        "speed": (
            "λα/ρ with α = 1/clients: how fast the global model follows the clients. In its first round it moves "
            "2·speed/(1 + speed) of the way to their mean: all of it at 1, 6% at 0.03. 3 unless `rho` is given"
        ),
        "rho": "ρ itself, the penalty of the ADMM, as papers give it; not beside `speed`",
        "anchor": (
            "where the θ-step is held: `global`, the received w (the authors' code), or `local`, the client's own w_i "
            "(the paper's Algorithm 1)"
        ),
    },
    "tune": {"lam": "log(0.01, 10)", "speed": "log(0.1, 5)", "anchor": "oneof(local, global)"},
    "convex": {"solver.kind": "newton"},
    "cite": ["zhu2024flame"],
    "cold_start": (
        "θ from w: each visit a proximal step anchored at w (with `anchor=local` at its own w_i, which begins at w "
        "with π = 0); the visits converge to the proximal point of w"
    ),
    "privacy": {
        "sends": "u_i = w_i + π_i/ρ, clipped against w; θ_i and π_i stay",
        "server": (
            "yes, and a client that sat out counts with w itself; `weighting=size` is refused, as Σn would be known"
        ),
        "client": "yes; `weighting=size` is refused, too",
    },
}
