"""RSA (Li et al., "RSA: Byzantine-robust stochastic aggregation methods for distributed learning", AAAI 2019).

    min Σ_i E F(x_i, ξ_i) + f_0(x_0) + λ Σ_i ‖x_i − x_0‖_p                                                          (3)
    client:  x_i = x_i − α ( ∇F(x_i, ξ_i) + λ ∂‖x_i − x_0‖_p )
    server:  x_0 = x_0 − α ( ∇f_0(x_0) + λ Σ_i ∂‖x_0 − x_i‖_p ) over those that answered;   p = 1: ∂‖x‖_1 = sign(x)

With p = 1 a hostile client moves each coordinate of x_0 by at most αλ. `server_lr` is the server's α; `pace` is αλ
times the clients that answered, so that few are as quick as many. The solver holds the clients' α; they may take many
steps a round (the paper: one). f_0 = `decay`/2 ‖x_0‖². `norm=False` takes (λ/p)‖·‖_p^p in place of the norm: the same
at p = 1; at p = 2 the fixed point is pFedMe's and L2SGD's. ∂ is 0 at 0. The paper's server takes only sums, no mean, so
there is no aggregator to choose. Personal models are the x_i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..core import ClientStack, Method, Problem, Sent, Server, State
from ..couplings import LpNorm
from ..errors import need, not_negative, positive
from ..solvers import SGD, Solver
from .parts.diagnostics import prox_facts


@dataclass(frozen=True)
class RSA(Method):
    """Personal models tied to the server's by an Lp norm; the server adds up signs, so no client counts for more.

    For example:

        >>> some = st.Attacked(st.attacks.SignFlip(), 0.2)
        >>> result = st.fit(st.RSA(lam=1e-3), model, clients, rounds=2, attack=some)
    """

    lam: float = 3e-4
    p: float = 1.0
    norm: bool = True
    pace: float | None = None
    server_lr: float | None = None
    decay: float = 0.0
    solver: Solver = SGD()
    columns: ClassVar[tuple[str, ...]] = ("lam", "pace", "server_lr", "decay")
    sends = (Sent("x", against="last"),)

    def __post_init__(self) -> None:
        need(None in (self.pace, self.server_lr), f"RSA takes pace or server_lr; got {self.pace} and {self.server_lr}.")
        if self.server_lr is None and self.pace is None:
            object.__setattr__(self, "pace", 0.1)
        positive("RSA", lam=self.lam, **{k: v for k in ("pace", "server_lr") if (v := getattr(self, k)) is not None})
        not_negative("RSA", decay=self.decay)
        need(self.p >= 1, f"RSA needs p >= 1 (a norm); got {self.p}.")

    def init(self, problem: Problem) -> tuple[Server, State]:
        return {"w": problem.start}, {"x": problem.start}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        x = self.solver.minimise(local, state["x"], LpNorm(self.lam, down["w"], self.p, self.norm))
        return {"x": x}, {"x": x}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        x_0, x = server["w"], messages["x"]
        votes = LpNorm(self.lam, x, self.p, self.norm).slope(x_0.expand_as(x)).sum(0)
        return {"w": x_0 - self.step(len(ids)) * (self.decay * x_0 + self.lam * votes)}

    def step(self, answered: int) -> float:
        """The server's α."""
        return self.server_lr if self.pace is None else self.pace / (self.lam * answered)  # type: ignore[return-value]

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return state["x"]

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        return prox_facts(local, state["x"], LpNorm(self.lam, down["w"], self.p, self.norm), self.solver)


ABOUT = {
    "class": "RSA",
    "order": 170,
    "paper": "Li et al. 2019",
    "personal": "x_i after the client's last local training",
    "names": {"rsa": {"line": "personal models tied to the server's by an Lp norm; robust by signs"}},
    "settings": {
        "lam": "λ, the weight of the norm that ties models to the server's",
        "p": "which norm: with 1 the server adds up signs",
        "norm": "`true` takes the norm ‖·‖_p, `false` its power (1/p)‖·‖_p^p",
        "pace": (
            "`server_lr`·λ times the clients that answer: with p = 1 how far a coordinate of x_0 moves in a round in "
            "which all agree; one client moves it by no more than its share of that. 0.1 unless `server_lr` is given"
        ),
        "server_lr": "the server's step α itself, as the paper gives it; not beside `pace`",
        "decay": "weight decay of the server's model",
    },
    "tune": {"lam": "log(1e-5, 0.01)", "pace": "log(0.01, 0.5)"},
    "cite": ["li2019rsa"],
    "cold_start": "x from x_0, drawn back to it by the norm",
    "privacy": {"sends": "x_i", "server": "no: the server adds up signs, not vectors", "client": "yes"},
}
