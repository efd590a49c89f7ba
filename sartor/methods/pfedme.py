"""pFedMe (Dinh et al., "Personalized federated learning with Moreau envelopes", NeurIPS 2020).

    F(w) = (1/N) Σ_i F_i(w),   F_i(w) = min_θ f_i(θ) + λ/2 ‖θ − w‖²,   ∇F_i(w) = λ (w − θ_i(w))
    client, R local rounds:   θ ≈ argmin f_i(θ; D) + λ/2 ‖θ − w_i‖²  (K steps on a fresh minibatch D)
                              w_i = w_i − ηλ (w_i − θ)
    server:                   w = (1 − β) w + (β/S) Σ_{i in S_t} w_i

As written, every client trains in every round and S of them are averaged (`train_all`); by default only the cohort
trains. The start of θ is not in the paper: "theta" goes on from the client's last θ, "w" starts at the received w. The
personal model is θ. The published scores are those of the local model w_i, by an aliasing slip in the authors' code;
sartor/papers/authors/ has it for the experiments that repeat them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Problem, Server, State
from ..couplings import Quadratic
from ..errors import need, one_of, positive
from ..solvers import SGD, Solver
from .parts.diagnostics import inner_loop_warnings, prox_facts
from .parts.split_steps import lasting, nested


@dataclass(frozen=True)
class PFedMe(Method):
    """Bi-level Moreau envelopes: a personal model near a global one.

    For example:

        >>> result = st.fit(st.PFedMe(lam=5.0), model, clients, rounds=2)
    """

    lam: float = 1.0
    eta: float = 1.0
    beta: float = 1.0
    R: int = 10
    start: str = "theta"
    train_all: bool = False
    weighting: str = "uniform"
    solver: Solver = SGD(steps=5, reuse=True)
    aggregate: Aggregator = mean
    columns: ClassVar[tuple[str, ...]] = ("lam", "eta", "beta")
    lengths: ClassVar[tuple[str, ...]] = ("R",)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("pFedMe", lam=self.lam, eta=self.eta, beta=self.beta)
        need(self.R >= 1, f"pFedMe needs R >= 1 local rounds; got {self.R}.")
        one_of("pFedMe", "start", self.start, ["theta", "w"])

    def split(self, steps: int) -> Method:
        R, K = nested(self.R, getattr(self.solver, "steps", None), steps)
        return replace(self, R=R, solver=lasting(self.solver, K))

    def init(self, problem: Problem) -> tuple[Server, State]:
        w = problem.start
        return {"w": w}, {"theta": w, "w": w}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w_i = down["w"]
        theta = state["theta"] if self.start == "theta" else w_i
        for r in range(self.R):
            theta = self.solver.minimise(local, theta, Quadratic(self.lam, w_i), start=r)
            w_i = w_i - self.eta * self.lam * (w_i - theta)
        return {"theta": theta, "w": w_i}, {"w": w_i}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        w = self.average(server, messages, weights)
        return server | {"w": (1 - self.beta) * server["w"] + self.beta * w}

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return state["theta"]

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        w, theta = down["w"], state["theta"]
        return {"envelope_gradient": self.lam * (w - theta)} | prox_facts(
            local, theta, Quadratic(self.lam, w), self.solver
        )

    def warnings(self, server: Server, round: int, facts: Mapping[str, float]) -> list[str]:
        said = inner_loop_warnings("pFedMe", self.solver, self.lam, facts)
        if self.eta * self.lam > 2:
            said.append(
                f"pFedMe: η·λ = {self.eta * self.lam:g} > 2: the outer step overshoots; take eta < {2 / self.lam:.3g}."
            )
        return said


ABOUT = {
    "class": "PFedMe",
    "title": "pFedMe",
    "order": 30,
    "paper": "pFedMe",
    "personal": "θ_i after the client's last local training, not its copy w_i of the global model",
    "names": {"pfedme": {"line": "bi-level Moreau envelopes; personal and global model"}},
    "settings": {
        "eta": "η, the step of the local w towards θ. η·λ above 2 overshoots",
        "beta": "β, the server's step: 1 takes the mean, more goes beyond it",
        "R": "local rounds: so often θ is found and w moved",
        "start": "where θ starts in a round: `theta`, its last value, or `w`, the received model",
    },
    "tune": {"lam": "log(0.1, 30)", "eta": "log(0.005, 1)"},
    "convex": {"R": 1, "solver.kind": "newton"},
    "cite": ["dinh2020pfedme"],
    "local_steps": "R·K = N: K is the divisor of N nearest to its own",
    "cold_start": "θ from w: each visit R rounds of proximal steps",
    "privacy": {"sends": "w_i; θ_i stays", "server": "yes", "client": "yes"},
}
