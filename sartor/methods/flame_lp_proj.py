"""FLAME on Lp-Proj-2 (FLAME paper, Appendix C): ADMM in a shared random subspace. w, w_i, π_i and u_i live in
R^{d_sub}.

    client:   θ_i ≈ argmin f_i(θ) + λ/2 ‖w_i − Pθ‖²
              w_i = (λα_i Pθ_i + ρ w − π_i) / (λα_i + ρ),   π_i = π_i + ρ (w_i − w),   send u_i = w_i + π_i/ρ
    server:   w = (1/m) Σ_i u_i

P is a function of the seed and never sent. As in FLAME, π_i = λα_i(Pθ_i − w_i), so it is not stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Problem, Sent, Server, State
from ..couplings import Projected, Projection
from ..errors import one_of, positive
from ..solvers import SGD, Solver
from .parts.admm_speed import penalty, same_penalty, set_speed
from .parts.diagnostics import prox_facts
from .parts.last_messages import mean_of_last, remembering


@dataclass(frozen=True)
class FlameLpProj(Method):
    """FLAME in a shared random subspace of d_sub dimensions: small messages, personal models.

    For example:

        >>> result = st.fit(st.FlameLpProj(d_sub=10), model, clients, rounds=2)
        >>> result.summary["bytes_up"]  # 2 rounds of 6 clients that send 10 numbers of 4 bytes
        480
    """

    lam: float = 1.0
    speed: float | None = None  # λα/ρ; none: 1, or what `rho` makes it
    rho: float | None = None  # ρ itself, in place of the speed
    d_sub: int = 20
    projection: str = "gaussian"
    projection_seed: int = 0
    anchor: str = "local"
    solver: Solver = SGD()
    aggregate: Aggregator = mean
    columns: ClassVar[tuple[str, ...]] = ("lam", "speed", "rho")
    keeps_last: ClassVar[bool] = True
    sends = (Sent("u", against="last"),)

    def __post_init__(self) -> None:
        positive("FLAME-Lp-Proj", lam=self.lam, d_sub=self.d_sub)
        set_speed(self, "FLAME-Lp-Proj")
        one_of("FLAME-Lp-Proj", "anchor", self.anchor, ["local", "global"])

    def init(self, problem: Problem) -> tuple[Server, State]:
        w = self.P(len(problem.start)).project(problem.start[None])[0]
        return remembering(problem.clients, w, self.aggregate), {"theta": problem.start, "w": w}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w, theta, w_i, rho = down["w"], state["theta"], state["w"], penalty(self, local.clients)
        P, la = self.P(theta.shape[1]), self.lam / local.clients
        pi = la * (P.project(theta) - w_i)
        theta = self.solver.minimise(local, theta, Projected(self.lam, w_i if self.anchor == "local" else w, P))
        w_i = (la * P.project(theta) + rho * w - pi) / (la + rho)
        pi = pi + rho * (w_i - w)
        return {"theta": theta, "w": w_i}, {"u": w_i + pi / rho}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        return mean_of_last(server, ids, messages, self.aggregate)

    def shared(self, server: Server) -> None:
        return None  # w is a point of the subspace, not a model

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return state["theta"]

    def with_lam(self, lam: Any) -> Method:
        return same_penalty(super().with_lam(lam), self)

    def P(self, d: int) -> Projection:
        return Projection(self.d_sub, d, self.projection_seed, self.projection)

    def fresh(self, problem: Problem, server: Server) -> State:
        return {"theta": problem.start, "w": server["w"]}  # anchored at the server's point of the subspace

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        theta, w_i = state["theta"], state["w"]
        coupling = Projected(self.lam, w_i, self.P(theta.shape[1]))
        return {"primal_residual": (w_i - down["w"]).norm(dim=1)} | prox_facts(local, theta, coupling, self.solver)


ABOUT = {
    "class": "FlameLpProj",
    "title": "FLAME in a subspace",
    "order": 20,
    "paper": "FLAME, Appendix C",
    "personal": "θ_i after the client's last local training",
    "names": {"flame-lp-proj": {"line": "FLAME in a shared random subspace; tiny messages"}},
    "settings": {
        "lam": "λ, how strongly Pθ is held at w_i",
        "speed": "λα/ρ with α = 1/clients: how fast the server's point follows the clients; 1 unless `rho` is given",
        "rho": "ρ itself, the penalty of the ADMM, as papers give it; not beside `speed`",
        "anchor": "where the θ-step is held: `local`, the client's own w_i, or `global`, the received w",
    },
    "tune": {"lam": "log(0.01, 10)", "speed": "log(0.1, 5)"},
    "cite": ["zhu2024flame", "lin2022lpproj"],
    "cold_start": (
        "θ from the first model (w is a point of the subspace, no model): each visit steps on f + λ/2 ‖w_i − "
        "Pθ‖², where w_i begins at the server's w"
    ),
    "privacy": {
        "sends": "u_i = w_i + π_i/ρ, a point of the subspace, clipped against w; θ_i and π_i stay",
        "server": "yes, and a client that sat out counts with w itself",
        "client": "yes",
    },
}
