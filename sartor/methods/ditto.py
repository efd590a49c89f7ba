"""Ditto (Li et al., "Ditto: Fair and robust federated learning through personalization", ICML 2021), Algorithm 2.

    min_{v_k}  F_k(v_k) + λ/2 ‖v_k − w*‖²    with   w* in argmin_w G(F_1(w), ..., F_K(w))
    client in S_t:   w_k <- w^t, r steps:   w_k = w_k − η_g ∇F_k(w_k)
                     s steps:               v_k = v_k − η_l ( ∇F_k(v_k) + λ (v_k − w^t) )
    server:          w^{t+1} = w^t + (1/|S_t|) Σ_{S_t} (w_k − w^t)

`global_solver` holds (r, η_g), `solver` holds (s, η_l). The anchor is the broadcast w^t. `joint=False` is the paper's
second solver: only w is trained, and v_k is found by fine-tuning from it. `shared_batches` steps v and w on the same
batches, as the authors' code does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ..aggregators import Aggregator, mean, weigh
from ..core import Local, Method, Problem, Server, State
from ..couplings import Free, Quadratic
from ..diagnostics import inner_loop_warnings, prox_facts
from ..errors import one_of, positive
from ..solvers import SGD, Solver


@dataclass(frozen=True)
class Ditto(Method):
    """A personal model regularised towards the global one that FedAvg trains beside it."""

    lam: float = 0.1
    joint: bool = True
    shared_batches: bool = False
    weighting: str = "uniform"
    solver: Solver = SGD()
    global_solver: Solver | None = None  # none: the same as `solver`
    aggregate: Aggregator = mean

    def __post_init__(self) -> None:
        positive("Ditto", lam=self.lam)
        one_of("Ditto", "weighting", self.weighting, ["uniform", "size"])

    def init(self, problem: Problem) -> tuple[Server, State]:
        server = {"w": problem.start, "share": problem.share}
        return server, {"v": problem.start} if self.joint else {}

    def client(self, state: State, down: State, local: Local) -> tuple[State, State]:
        w = down["w"]
        w_k = (self.global_solver or self.solver).minimise(local, w, Free())
        if not self.joint:
            return {}, {"w": w_k}
        stream = 0 if self.shared_batches else 1
        v = self.solver.minimise(local, state["v"], Quadratic(self.lam, w), stream=stream)
        return {"v": v}, {"w": w_k}

    def server(self, server: Server, ids: Tensor, messages: State, round: int) -> Server:
        weights = weigh(self.weighting, server["share"], ids)
        return server | {"w": self.aggregate(messages["w"], weights, server["w"], messages.get("loss"))}

    def personal(self, state: State, down: State, local: Local) -> Tensor:
        if self.joint:
            return state["v"]
        return self.solver.minimise(local, down["w"], Quadratic(self.lam, down["w"]), stream=1)

    def diagnose(self, state: State, down: State, local: Local) -> State:
        w, v = down["w"], self.personal(state, down, local)
        return {"envelope_gradient": self.lam * (w - v)} | prox_facts(local, v, Quadratic(self.lam, w), self.solver)

    def warnings(self, server: Server, round: int, facts: Mapping[str, float]) -> list[str]:
        return inner_loop_warnings("Ditto", self.solver, self.lam, facts)
