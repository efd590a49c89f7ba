"""Lp-Proj (Lin et al., "Personalized federated learning towards communication efficiency, robustness and fairness").

    P in R^{d_sub x d}: Gaussian rows of unit length, fixed and shared by its seed;   w in R^{d_sub};   c = w_k − Px
    client, R local rounds:   x ≈ argmin f_k(x) + (λ/p) ‖w_k − Px‖_p^p                                            (4)
                              w_k = w_k − ηλ sign(c)|c|^{p−1}                                                     (5)
    server:                   w = (1 − β) w + (β/S) Σ_{S_t} w_k

The same slope sign(c)|c|^{p−1}, with sign(0) = 0, is used in both steps (the authors' code has two that agree only at
p = 1). Only w travels: d_sub numbers. As written every client trains and S are averaged (`train_all`); by default only
the cohort trains. w starts at P x_0 (in the authors' code at 0). With p = 1 a step of (5) moves every coordinate by
exactly ηλ, so w settles only to that resolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Problem, Server, State
from ..couplings import Projected, Projection
from ..errors import need, positive
from ..solvers import SGD, Solver
from .parts.diagnostics import prox_facts
from .parts.split_steps import lasting, nested


@dataclass(frozen=True)
class LpProj(Method):
    """Personal models tied together in a shared random subspace by an Lp norm; messages of d_sub numbers.

    For example:

        >>> result = st.fit(st.LpProj(p=1.0, d_sub=10), model, clients, rounds=2)
        >>> result.summary["bytes_up"]  # 2 rounds of 6 clients that send 10 numbers of 4 bytes
        480
    """

    p: float = 2.0
    lam: float = 1.0
    eta: float = 0.5
    beta: float = 1.0
    R: int = 1
    d_sub: int = 20
    projection: str = "gaussian"
    projection_seed: int = 0
    train_all: bool = False
    solver: Solver = SGD()
    aggregate: Aggregator = mean
    columns: ClassVar[tuple[str, ...]] = ("lam", "eta", "beta")
    lengths: ClassVar[tuple[str, ...]] = ("R",)

    def __post_init__(self) -> None:
        need(self.p >= 1, f"Lp-Proj needs p >= 1 (a norm); got {self.p}.")
        positive("Lp-Proj", lam=self.lam, eta=self.eta, beta=self.beta, d_sub=self.d_sub)
        need(self.R >= 1, f"Lp-Proj needs R >= 1 local rounds; got {self.R}.")

    def split(self, steps: int) -> Method:
        R, K = nested(self.R, getattr(self.solver, "steps", None), steps)
        return replace(self, R=R, solver=lasting(self.solver, K))

    def init(self, problem: Problem) -> tuple[Server, State]:
        w = self.P(len(problem.start)).project(problem.start[None])[0]
        return {"w": w}, {"x": problem.start}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w, x = down["w"], state["x"]
        P = self.P(x.shape[1])
        for r in range(self.R):
            x = self.solver.minimise(local, x, Projected(self.lam, w, P, self.p), start=r)
            w = w - self.eta * self.lam * Projected(self.lam, w, P, self.p).slope(x)
        return {"x": x}, {"w": w}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        w = self.average(server, messages, weights)
        return {"w": (1 - self.beta) * server["w"] + self.beta * w}

    def shared(self, server: Server) -> None:
        return None  # w is a point of the subspace, not a model

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return state["x"]

    def P(self, d: int) -> Projection:
        return Projection(self.d_sub, d, self.projection_seed, self.projection)

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        x, d = state["x"], state["x"].shape[1]
        coupling = Projected(self.lam, down["w"], self.P(d), self.p)
        facts = {
            "envelope_gradient": self.lam * coupling.slope(x),
            "tied_directions": x.new_full((len(x),), self.d_sub / d),
        }
        return facts | prox_facts(local, x, coupling, self.solver)

    def warnings(self, server: Server, round: int, facts: Mapping[str, float]) -> list[str]:
        found = []
        if self.p == 2 and self.eta * self.lam > 2:
            found.append(
                f"Lp-Proj: η·λ = {self.eta * self.lam:g} > 2: the w-step overshoots; take eta < {2 / self.lam:.3g}."
            )
        if (tied := facts.get("tied_directions_mean", 1.0)) < 0.01:
            found.append(
                f"Lp-Proj ties models together in {self.d_sub} of {self.d_sub / tied:.0f} directions and leaves them "
                "free in all others: this is close to local training. Raise d_sub, which costs bytes, for more."
            )
        return found


ABOUT = {
    "class": "LpProj",
    "title": "Lp-Proj",
    "order": 50,
    "paper": "Lp-Proj",
    "personal": "x_i after the client's last local training",
    "names": {
        "lp-proj-1": {
            "line": "L1 coupling in a random subspace; tiny messages, robust",
            "preset": {"p": 1.0, "lam": 0.05},
            "tune": {"lam": "log(0.0001, 1)", "eta": "log(0.01, 1)"},
        },
        "lp-proj-2": {
            "line": "L2 coupling in a random subspace; tiny messages",
            "preset": {"p": 2.0},
            "tune": {"lam": "log(0.01, 10)", "eta": "log(0.01, 1)"},
        },
    },
    "settings": {
        "p": "which norm ties Px to w: 2 (a quadratic), 1 (robust), or anything from 1 on",
        "lam": "λ, how strongly Px is held at w",
        "eta": "η, the step of w. With p = 1 every coordinate of w moves by exactly ηλ",
        "beta": "β, the server's step",
        "R": "local rounds",
    },
    "cite": ["lin2022lpproj"],
    "local_steps": "R·K = N: R is the divisor of N nearest to its own",
    "cold_start": (
        "x from the first model (w is a point of the subspace, no model): each visit steps on f + (λ/p) ‖w − Px‖_p^p"
    ),
    "privacy": {
        "sends": "its point of the subspace, d_sub numbers: less noise in all than for d; x stays, P is no data",
        "server": "yes",
        "client": "yes",
    },
}
