"""FedADMM: consensus ADMM for one global model (Zhou, Li, "Federated learning via inexact ADMM", TPAMI 2023).

    min Σ_i α_i f_i(w_i)  with  w_i = w
    L = Σ_i [ α_i f_i(w_i) + <π_i, w_i − w> + ρ/2 ‖w_i − w‖² ]
    client:  w_i ≈ argmin f_i(w) + ρ/(2α_i) ‖w − (w^t − π_i/ρ)‖²;   π_i = π_i + ρ (w_i − w^t)
             send u_i = w_i + π_i/ρ
    server:  w = (1/m) Σ_i u_i over ALL clients, with the last u_i of those that sat out

FLAME as λ → ∞. α_i is 1/m or n_i/Σn; `rho` is ρ/α for α = 1/m, that is ρ·m, so that the same value suits federations
of any size. The solve starts at the received w^t, or (`start="local"`) at the client's last w_i; an exact one does not
care, a short one gets further from w^t. There is no personal model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..aggregators import Aggregator, mean
from ..core import ClientStack, Method, Problem, Sent, Server, State
from ..couplings import Quadratic
from ..errors import one_of, positive
from ..solvers import SGD, Solver
from .parts.diagnostics import prox_facts
from .parts.last_messages import mean_of_last, remembering


@dataclass(frozen=True)
class FedADMM(Method):
    """One global model by consensus ADMM: duals correct for what clients' data differ in.

    For example:

        >>> result = st.fit(st.FedADMM(rho=1.0), model, clients, rounds=2)
        >>> everybody = result.shared()  # one model for all
    """

    rho: float = 0.3  # m times the paper's ρ
    start: str = "global"
    weighting: str = "uniform"
    solver: Solver = SGD()
    aggregate: Aggregator = mean
    columns: ClassVar[tuple[str, ...]] = ("rho",)
    keeps_last: ClassVar[bool] = True
    sends = (Sent("u", against="last"),)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("FedADMM", rho=self.rho)
        one_of("FedADMM", "start", self.start, ["global", "local"])

    def init(self, problem: Problem) -> tuple[Server, State]:
        w = problem.start
        return remembering(problem.clients, w, self.aggregate), {"w": w, "scaled": 0 * w}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w, scaled = down["w"], state["scaled"]
        start = w if self.start == "global" else state["w"]
        w_i = self.solver.minimise(local, start, self.coupling(w, scaled, local))
        scaled = scaled + (w_i - w)
        return {"w": w_i, "scaled": scaled}, {"u": w_i + scaled}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        return mean_of_last(server, ids, messages, self.aggregate)

    def coupling(self, w: Tensor, scaled: Tensor, local: ClientStack) -> Quadratic:
        """ρ/(2α_i) ‖w_i − (w − π_i/ρ)‖²; `scaled` is π_i/ρ."""
        rho = self.rho if self.weighting == "uniform" else self.rho / (local.clients * local.share)
        return Quadratic(rho, w - scaled)

    def exposes(self) -> str:
        return "" if self.weighting == "uniform" else "its share of all samples; use weighting=uniform"

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        facts = {"primal_residual": (state["w"] - down["w"]).norm(dim=1)}
        return facts | prox_facts(local, state["w"], self.coupling(down["w"], state["scaled"], local), self.solver)


ABOUT = {
    "class": "FedADMM",
    "order": 190,
    "paper": "Zhou, Li 2023",
    "names": {"fedadmm": {"line": "one global model by consensus ADMM"}},
    "settings": {
        "rho": "m times the paper's ρ, so that one value suits federations of any size",
        "start": "where the local solve starts: `global`, at the received model, or `local`, at the client's last one",
    },
    "tune": {"rho": "log(0.001, 1)"},
    "cite": ["zhou2023fedadmm"],
    "cold_start": "the global model",
    "privacy": {
        "sends": "u_i = w_i + π_i/ρ, clipped against w; w_i and π_i stay",
        "server": (
            "yes, and a client that sat out counts with w itself; `weighting=size` is refused, as Σn would be known"
        ),
        "client": "yes; `weighting=size` is refused, too",
    },
}
