"""Local training: every client on its own data, nothing sent. What federating has to beat.

Every client trains in every round, whatever the cohort: training alone needs nobody's invitation.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..core import ClientStack, Method, Problem, Server, State
from ..couplings import Free
from ..solvers import SGD, Solver


@dataclass(frozen=True)
class LocalOnly(Method):
    """Each client trains alone; nothing is sent.

    For example:

        >>> alone = st.fit(st.LocalOnly(), model, clients, rounds=2)
        >>> alone.summary["bytes_up"]
        0
    """

    solver: Solver = SGD()
    train_all = True
    sends = ()

    def init(self, problem: Problem) -> tuple[Server, State]:
        return {}, {"theta": problem.start}

    def downlink(self, server: Server, ids: Tensor, round: int) -> State:
        return {}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        return {"theta": self.solver.minimise(local, state["theta"], Free())}, {}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        return server

    def shared(self, server: Server) -> None:
        return None

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return state["theta"]

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        return {"gradient": local.full_grad(state["theta"]).norm(dim=1)}


ABOUT = {
    "class": "LocalOnly",
    "title": "Local training",
    "order": 990,
    "paper": "-",
    "personal": "θ_i after the client's last local training",
    "names": {"local": {"line": "each client alone; what federating has to beat"}},
    "convex": {"solver.kind": "newton"},
    "cold_start": "training alone",
    "privacy": {"sends": "nothing", "server": "ε = 0", "client": "ε = 0"},
}
