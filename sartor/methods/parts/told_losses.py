"""Methods whose server weighs clients by their losses: TERM and q-FFL."""

from __future__ import annotations

from ...core import ClientStack, Method, State
from ...couplings import Free
from ...solvers import Solver


class TellsLoss(Method):
    """FedAvg's clients, which send F_k(w^t), over all of their training data, beside w_k."""

    solver: Solver

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w = down["w"]
        return {}, {"w": self.solver.minimise(local, w, Free()), "loss": local.full_loss(w)}

    def exposes(self) -> str:
        return "the loss F_k(w), by which it is weighed; use fedavg"
