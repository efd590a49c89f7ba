"""Ditto (Li et al., "Ditto: Fair and robust federated learning through personalization", ICML 2021), Algorithm 2.

    min_{v_k}  F_k(v_k) + λ/2 ‖v_k − w*‖²    with   w* in argmin_w G(F_1(w), ..., F_K(w))
    client in S_t:   w_k <- w^t, r steps:   w_k = w_k − η_g ∇F_k(w_k)
                     s steps:               v_k = v_k − η_l ( ∇F_k(v_k) + λ (v_k − w^t) )
    server:          w^{t+1} = w^t + (1/|S_t|) Σ_{S_t} (w_k − w^t)

`global_solver` holds (r, η_g), `solver` holds (s, η_l). The anchor is the broadcast w^t. `joint=False` is the paper's
second solver: only w is trained, and v_k is found by fine-tuning from it. `shared_batches` steps v and w on the same
batches, as the authors' code does. G may be solved by any method that trains and sends a global model
(`global_method`), with its own solver, weights and aggregator; where it is left out it is FedAvg with Ditto's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Problem, Sent, Server, State, uncounted
from ..couplings import Quadratic
from ..errors import need, positive
from ..solvers import SGD, Solver
from .fedavg import FedAvg
from .parts.diagnostics import inner_loop_warnings, prox_facts
from .parts.split_steps import lasting, two_parts


@dataclass(frozen=True)
class Ditto(Method):
    """A personal model regularised towards the global one that another method trains beside it.

    For example:

        >>> result = st.fit(st.Ditto(lam=0.5), model, clients, rounds=2)
    """

    lam: float = 0.1
    joint: bool = True
    shared_batches: bool = False
    weighting: str = "uniform"
    solver: Solver = SGD()
    global_solver: Solver | None = None  # none: the same as `solver`
    global_method: Method | None = None  # none: FedAvg
    aggregate: Aggregator = mean

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("Ditto", lam=self.lam)
        own = self.weighting == "uniform" and self.global_solver is None and self.aggregate == mean
        need(
            self.global_method is None or own,
            "Ditto's weighting, global_solver and aggregate are those of its FedAvg; with a global_method give them to "
            "that one.",
        )

    @property
    def G(self) -> Method:
        """What trains the global model."""
        if self.global_method is not None:
            return self.global_method
        return FedAvg(weighting=self.weighting, solver=self.global_solver or self.solver, aggregate=self.aggregate)

    @property
    def train_all(self) -> bool:  # type: ignore[override]
        return self.G.train_all

    @property
    def sends(self) -> tuple[Sent, ...]:  # type: ignore[override]
        return self.G.sends

    def unsplit(self) -> str:
        return self.G.unsplit() or (uncounted(self.solver) if self.joint else "")

    def split(self, steps: int) -> Method:
        single = self.global_method is None
        first = (self.global_solver or self.solver) if single else None
        r, s = two_parts("Ditto", first, self.solver, steps) if self.joint else (steps, steps)
        G = self.G.spending(r)
        other = {"global_solver": getattr(G, "solver", None)} if single else {"global_method": G}
        return replace(self, solver=lasting(self.solver, s), **other)

    def init(self, problem: Problem) -> tuple[Server, State]:
        server, state = self.G.init(problem)
        down = self.G.downlink(server, torch.arange(1), 0)
        need(
            self.G.shared(server) is not None and down.get("w", problem.share[:0]).shape == (1, len(problem.start)),
            f"Ditto's global_method must train a global model and send it; {type(self.G).__name__} does not.",
        )
        own = {"v": problem.start} if self.joint else {}
        return server, own | {f"global.{k}": v for k, v in state.items()}

    def downlink(self, server: Server, ids: Tensor, round: int) -> State:
        return self.G.downlink(server, ids, round)

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        inner = {k.removeprefix("global."): v for k, v in state.items() if k.startswith("global.")}
        inner, message = self.G.client(inner, down, local)
        new = {f"global.{k}": v for k, v in inner.items()}
        if self.joint:
            stream = 0 if self.shared_batches else 1
            new["v"] = self.solver.minimise(local, state["v"], Quadratic(self.lam, down["w"]), stream=stream)
        return new, message

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        return self.G.server(server, ids, messages, weights, round)

    def shared(self, server: Server) -> Tensor | None:
        return self.G.shared(server)

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        if self.joint:
            return state["v"]
        return self.solver.minimise(local, down["w"], Quadratic(self.lam, down["w"]), stream=1)

    def averaging(self) -> Method | None:
        return self.G.averaging()

    def client_weights(self, share: Tensor) -> Tensor:
        return self.G.client_weights(share)

    def exposes(self) -> str:
        return self.G.exposes()

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        w, v = down["w"], self.personal(state, down, local)
        return {"envelope_gradient": self.lam * (w - v)} | prox_facts(local, v, Quadratic(self.lam, w), self.solver)

    def warnings(self, server: Server, round: int, facts: Mapping[str, float]) -> list[str]:
        return inner_loop_warnings("Ditto", self.solver, self.lam, facts)


ABOUT = {
    "class": "Ditto",
    "order": 40,
    "paper": "Ditto",
    "personal": "v_i after the client's last local training (`joint=false`: made of the latest w when it is asked for)",
    "names": {"ditto": {"line": "a personal model regularised towards FedAvg's"}},
    "settings": {
        "joint": "train v beside w in every round; `false` finds v by fine-tuning from the last w",
        "shared_batches": "v and w step on the same batches, as in the authors' code",
        "global_solver": "the solver of the global model; none: the same as `solver`",
        "global_method": "the method that trains the global model, with its own solver and aggregator; none: FedAvg",
    },
    "tune": {"lam": "log(0.01, 10)", "global_solver.lr": "log(0.005, 0.5)"},
    "convex": {"solver.kind": "newton", "global_method": "fednewton"},
    "cite": ["li2021ditto"],
    "local_steps": "r + s = N: w and v in the proportion of their own steps, or halves",
    "cold_start": "v from w: each visit the solver's steps on f + λ/2 ‖v − w‖²",
    "privacy": {
        "sends": "what its global method sends (FedAvg: the model w_k); v_k stays at home",
        "server": "as the global method",
        "client": "as the global method",
    },
}
