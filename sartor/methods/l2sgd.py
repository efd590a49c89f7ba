"""L2GD and L2SGD (Hanzely, Richtárik, "Federated learning of a mixture of global and local models", 2020).

    min_x  F(x) = f(x) + λ ψ(x),   f = (1/n) Σ_i f_i(x_i),   ψ = (1/2n) Σ_i ‖x_i − x̄‖²,   x̄ = (1/n) Σ_i x_i     (2)
    L2GD (Algorithm 1), loopless, one coin a step:
        with probability 1 − p:   x_i = x_i − α / (n(1 − p)) ∇f_i(x_i)
        with probability p:       x_i = x_i − αλ / (np) (x_i − x̄)
    L2SGD, as Ditto's authors solve (2) with partial participation (Ditto, Appendix C):
        client in S_t:            x_i ≈ argmin f_i(x) + λ/2 ‖x − x̄‖²,   x̄ the mean of ALL clients' last models

x̄ moves only when the coin changes from gradient to mean, so a round here is what lies between two communications: the
mean steps (at least one), then the gradient steps (at least one). The solver's lr is α / (n(1 − p)); minibatches make
it the paper's stochastic variant. Coins are a function of `coins` and the round, the same for all clients. L2GD asks
every client in every round; with a smaller cohort it runs too, and those that sat out keep their x_i. With a constant α
it settles near the minimum of F, not in it; L2SGD reaches it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Problem, Sent, Server, State
from ..couplings import Free, Quadratic
from ..errors import need, positive
from ..seeds import stream
from ..solvers import SGD, Solver
from .parts.diagnostics import prox_facts
from .parts.last_messages import mean_of_last, remembering


@dataclass(frozen=True)
class L2SGD(Method):
    """Personal models near their own mean; by proximal steps of the cohort, or (p) by loopless gradient descent.

    For example:

        >>> result = st.fit(st.L2SGD(lam=0.1), model, clients, rounds=2)
    """

    lam: float = 0.01
    p: float | None = None  # the coin of L2GD; none: L2SGD
    coins: int = 0
    solver: Solver = SGD()
    aggregate: Aggregator = mean
    keeps_last: ClassVar[bool] = True
    sends = (Sent("x", against="last"),)

    def __post_init__(self) -> None:
        positive("L2SGD", lam=self.lam)
        if self.p is not None:
            need(0 < self.p < 1, f"L2GD needs 0 < p < 1; got {self.p}.")
            need(isinstance(self.solver, SGD), "L2GD takes plain gradient steps; use the sgd solver.")

    def unsplit(self) -> str:
        return super().unsplit() if self.p is None else "L2GD's coin decides how many steps a round has"

    def init(self, problem: Problem) -> tuple[Server, State]:
        x = problem.start
        return remembering(problem.clients, x, self.aggregate), {"x": x}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        x, x_bar = state["x"], down["w"]
        if self.p is None:
            x = self.solver.minimise(local, x, Quadratic(self.lam, x_bar))
            return {"x": x}, {"x": x}
        assert isinstance(self.solver, SGD)
        means, gradients = self.steps(self.p, local.round)
        pull = 1 - (1 - self.solver.lr * (1 - self.p) * self.lam / self.p) ** means  # all of them to the same x̄
        x = x - pull * (x - x_bar)
        x = replace(self.solver, epochs=1, steps=gradients, reuse=False).minimise(local, x, Free())
        return {"x": x}, {"x": x}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        return mean_of_last(server, ids, messages | {"u": messages["x"]}, self.aggregate)

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return state["x"]

    def steps(self, p: float, round: int) -> tuple[int, int]:
        """How many mean steps, then how many gradient steps the coins give in this round."""
        draw = stream(self.coins, "coins of L2GD", round)
        return int(draw.geometric(1 - p)), int(draw.geometric(p))

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        return prox_facts(local, state["x"], Quadratic(self.lam, down["w"]), self.solver)


def L2GD(p: float = 0.1, **settings: Any) -> L2SGD:
    """The loopless solver: a coin decides between a gradient step and a step towards the mean.

    For example:

        >>> result = st.fit(st.L2GD(p=0.2), model, clients, rounds=2)
        >>> st.L2GD(p=0.2) == st.L2SGD(p=0.2)
        True
    """
    return L2SGD(p=p, **settings)


ABOUT = {
    "class": "L2SGD",
    "factories": ["L2GD"],
    "title": "L2SGD, L2GD",
    "order": 100,
    "paper": "Hanzely, Richtárik 2020",
    "personal": "x_i after the client's last local training",
    "names": {
        "l2sgd": {
            "line": "personal models near their mean; Ditto's authors' solver",
            "tune": {"lam": "log(0.01, 10)"},
        },
        "l2gd": {
            "line": "the same, loopless: a coin for each step",
            "preset": {"p": 0.1, "lam": 0.1},
            "tune": {"lam": "log(0.01, 10)", "p": "flat(0.05, 0.5)"},
        },
    },
    "settings": {
        "lam": "λ, how strongly personal models are held at their mean",
        "p": "the coin of the loopless L2GD: the chance of a step towards the mean. None: L2SGD, by proximal steps",
        "coins": "the seed of the coin",
    },
    "cite": ["hanzely2020mixture"],
    "cold_start": "x from x̄, drawn back to x̄",
    "privacy": {
        "sends": "x_i, its personal model itself, clipped against x̄",
        "server": "yes, and a client that sat out counts with x̄ itself",
        "client": "yes: what is sent is noisy",
    },
}
