"""SCAFFOLD (Karimireddy et al., "Stochastic controlled averaging for federated learning", ICML 2020), Algorithm 1.

    client in S:  y_i = x;   K steps:  y_i = y_i − η_l ( g_i(y_i) + c − c_i )
                  c_i⁺ = (I) ∇f_i(x)   or   (II) c_i − c + (x − y_i) / (K η_l);   send y_i − x and c_i⁺ − c_i
    server:       x = x + η_g/|S| Σ_S (y_i − x),   c = c + 1/N Σ_S (c_i⁺ − c_i)

The solver holds (K, η_l). Option I costs a pass over the client's data and goes with any solver; option II is free and
needs plain SGD: with momentum or decay (x − y_i)/(Kη_l) is no mean of gradients. With a given number of local steps it
is II. All clients weigh alike. The message holds y_i in place of y_i − x, so that an aggregator sees models. There is
no personal model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Problem, Sent, Server, State
from ..couplings import Linear
from ..errors import need, one_of, positive
from ..solvers import SGD, Solver


@dataclass(frozen=True)
class SCAFFOLD(Method):
    """One global model; control variates take out the drift of local steps.

    For example:

        >>> result = st.fit(st.SCAFFOLD(option="II"), model, clients, rounds=2)
    """

    option: str = "I"
    server_lr: float = 1.0
    solver: Solver = SGD()
    aggregate: Aggregator = mean
    columns: ClassVar[tuple[str, ...]] = ("server_lr",)
    lengths: ClassVar[tuple[str, ...]] = ("option",)
    sends = (Sent("w"), Sent("c", "c", "sum"))

    def __post_init__(self) -> None:
        positive("SCAFFOLD", server_lr=self.server_lr)
        one_of("SCAFFOLD", "option", self.option, ["I", "II"])
        plain = self.option == "I" or _plain(self.solver)
        need(plain, "SCAFFOLD's option II needs sgd without momentum or decay; use option I.")

    def unsplit(self) -> str:
        if self.option == "I" and not _plain(self.solver):
            return "option I takes a pass over the client's data, and option II needs sgd without momentum or decay"
        return super().unsplit()

    def split(self, steps: int) -> Method:
        """By option II, which is made of the steps: the pass of option I is longer at some clients than at others."""
        return replace(super().split(steps), option="II")  # type: ignore[type-var]

    def init(self, problem: Problem) -> tuple[Server, State]:
        x = problem.start
        return {"w": x, "c": 0 * x, "N": torch.tensor(problem.clients)}, {"c": 0 * x}

    def downlink(self, server: Server, ids: Tensor, round: int) -> State:
        return {k: server[k].expand(len(ids), -1) for k in ("w", "c")}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        x, c, c_i = down["w"], down["c"], state["c"]
        y = self.solver.minimise(local, x, Linear(c - c_i))
        if self.option == "I":
            new = local.full_grad(x.contiguous())
        else:
            s = self.solver
            assert isinstance(s, SGD)
            K = s.epochs * (local.samples + s.batch - 1).div(s.batch, rounding_mode="floor")[:, None]
            new = c_i - c + (x - y) / (s.lr * (K if s.steps is None else s.steps))
        return {"c": new}, {"w": y, "c": new - c_i}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        x, dc = server["w"], messages["c"]
        step = self.average(server, messages, weights) - x
        return server | {"w": x + self.server_lr * step, "c": server["c"] + dc.sum(0) / int(server["N"])}

    def exposes(self) -> str:
        return "the change of its control variate, a second vector of another scale; use fedavg or fedprox"

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        return {"gradient_mean": local.full_grad(down["w"].contiguous())}


def _plain(solver: Solver) -> bool:
    """Whether (x − y_i)/(Kη_l) is the mean of its gradients."""
    return isinstance(solver, SGD) and not (solver.momentum or solver.weight_decay or solver.reuse)


ABOUT = {
    "class": "SCAFFOLD",
    "order": 200,
    "paper": "Karimireddy et al. 2020",
    "names": {"scaffold": {"line": "one global model; control variates against drift"}},
    "settings": {
        "option": (
            "how the control variate is made: `I`, a pass over the data, or `II`, from the steps taken (plain SGD only)"
        ),
        "server_lr": "η_g, the server's step",
    },
    "cite": ["karimireddy2020scaffold"],
    "local_steps": "N steps, by option II",
    "cold_start": "the global model",
    "privacy": {
        "sends": "y_i and c_i⁺ − c_i",
        "server": "refused: two vectors of different scales",
        "client": "refused",
    },
}
