"""FedAMP and HeurFedAMP (Huang et al., "Personalized federated learning: an attentive collaboration approach").

    min_W  Σ_i F_i(w_i) + λ Σ_{i<j} A(‖w_i − w_j‖²)                                                            (1)
    server:  u_i = Σ_j ξ_ij w_j,   ξ_ij = α A'(‖w_i − w_j‖²) for j ≠ i,   ξ_ii = 1 − Σ_{j≠i} ξ_ij             (4)
    client:  w_i ≈ argmin F_i(w) + 1/(2β) ‖w − u_i‖²,  started at u_i                                          (5)
    HeurFedAMP: ξ_ij ∝ exp(σ cos(w_i, w_j)) for j ≠ i, with a constant self weight ξ_ii                  (10), (11)

Two modes. `alpha` gives (4) exactly; its fixed point is a stationary point of (1) with λ = α/(2β): the derivative of
A(‖·‖²) has a factor 2 that the paper drops. `self_weight` gives every client ξ_ii = self_weight and shares the rest in
proportion to A', as the paper's experiments do (they weigh the others by τ = 1 − self_weight, often 0.95). A' is scaled
to A'(0) = 1/σ ("sqrt": 1/(2σ), as printed); "exp" has −‖·‖²/σ, the paper's eq. (9) has 2σ. The start of (5) is not in
the paper; from w_i nothing would be shared at its β = 10⁴. The server sees every client's personal model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Local, Method, Problem, State
from ..couplings import Quadratic
from ..diagnostics import prox_facts
from ..errors import SartorError, need, one_of, positive
from ..solvers import SGD, Solver


@dataclass(frozen=True)
class FedAMP(Method):
    """Attentive message passing: each client gets its own mixture of the others' models."""

    attention: str = "exp"  # A: "exp", "sqrt" (tamed square root), "scad", "mcp"; or "cosine" (HeurFedAMP)
    sigma: float = 10.0
    self_weight: float = 0.8
    alpha: float | None = None  # none: the constant self weight
    beta: float = 10.0
    beta_decay: float = 1.0
    beta_every: int = 30
    solver: Solver = SGD()

    def __post_init__(self) -> None:
        positive("FedAMP", sigma=self.sigma, beta=self.beta, beta_decay=self.beta_decay, beta_every=self.beta_every)
        one_of("FedAMP", "attention", self.attention, ["exp", "sqrt", "scad", "mcp", "cosine"])
        need(0 <= self.self_weight <= 1, f"FedAMP needs self_weight in [0, 1]; got {self.self_weight}.")
        if self.alpha is not None:
            positive("FedAMP", alpha=self.alpha)
            need(self.attention != "cosine", "HeurFedAMP has no alpha: eq. (11) has a constant self_weight.")

    def slope(self, t: Tensor) -> Tensor:
        """A'(t) for squared distances t."""
        s = self.sigma
        if self.attention == "exp":
            return torch.exp(-t / s) / s
        if self.attention == "sqrt":
            return torch.where(t <= s**2, 1 / (2 * s), 1 / (2 * t.clamp(min=s**2).sqrt()))
        if self.attention == "scad":  # Fan and Li's a = 3.7
            return ((3.7 * s - t) / (2.7 * s)).clamp(0, 1) / s
        return (1 - t / (3 * s)).clamp(min=0) / s  # MCP with its usual factor 3

    def weights(self, W: Tensor, ids: Tensor) -> Tensor:
        """ξ [c, m]: how much of every model goes into u_i of the clients `ids`. Rows sum to 1."""
        rows, me = torch.arange(len(ids)), ids
        if self.attention == "cosine":
            unit = W / W.norm(dim=1, keepdim=True).clamp(min=1e-12)
            closeness = self.sigma * unit[ids] @ unit.T
            closeness[rows, me] = -torch.inf
            A = torch.softmax(closeness, dim=1) if W.shape[0] > 1 else torch.zeros_like(closeness)
        else:
            V = W - W.mean(0)  # the same distances, with less cancellation
            n = (V**2).sum(1)
            t = (n[ids, None] + n[None, :] - 2 * V[ids] @ V.T).clamp(min=0)
            if self.alpha is None and self.attention == "exp":  # only ratios count: keep the nearest from underflowing
                t[rows, me] = torch.inf
                t = t - t.min(1, keepdim=True).values.clamp(max=torch.finfo(t.dtype).max)
            A = self.slope(t)
            A[rows, me] = 0
        total = A.sum(1)
        if self.alpha is None:
            rest = torch.where(total > 0, 1 - self.self_weight, 0.0)
            xi = A * (rest / total.clamp(min=1e-30))[:, None]
        else:
            need(
                float(self.alpha * total.max()) <= 1 + 1e-9,
                f"FedAMP's weights leave the simplex: α ΣA' = {float(self.alpha * total.max()):.3g} > 1 for client "
                f"{int(ids[int(total.argmax())])}; take alpha <= {float(1 / total.max()):.3g} or a larger sigma.",
            )
            xi = self.alpha * A
        xi[rows, me] = (1 - xi.sum(1)).clamp(min=0)
        return xi

    def init(self, problem: Problem) -> tuple[State, State]:
        w = problem.start
        return {"w": w.expand(problem.clients, -1).clone()}, {"w": w}

    def downlink(self, server: State, ids: Tensor, round: int) -> State:
        return {"u": self.weights(server["w"], ids) @ server["w"]}

    def client(self, state: State, down: State, local: Local) -> tuple[State, State]:
        u = down["u"]
        beta = self.beta * self.beta_decay ** (local.round // self.beta_every)
        w = self.solver.minimise(local, u, Quadratic(1 / beta, u))
        return {"w": w}, {"w": w}

    def server(self, server: State, ids: Tensor, messages: State, round: int) -> State:
        w = server["w"].clone()
        w[ids] = messages["w"]
        return {"w": w}

    def shared(self, server: State) -> None:
        return None

    def personal(self, state: State, down: State, local: Local) -> Tensor:
        return state["w"]

    def collaboration(self, server: State) -> Tensor:
        return self.weights(server["w"], torch.arange(len(server["w"])))

    def diagnose(self, state: State, down: State, local: Local) -> State:
        beta = self.beta * self.beta_decay ** (local.round // self.beta_every)
        facts = prox_facts(local, state["w"], Quadratic(1 / beta, down["u"]), self.solver)
        return {"message_gap": (state["w"] - down["u"]).norm(dim=1)} | facts

    def warnings(self, server: State, round: int, facts: Mapping[str, float]) -> list[str]:
        if round == 0 or len(server["w"]) == 1:
            return []
        own = self.collaboration(server).diagonal()
        if bool((own > 1 - 1e-3).all()):
            return [
                "FedAMP's weights are one-hot: this equals local training; "
                "raise sigma (or alpha), or lower self_weight."
            ]
        return []


def HeurFedAMP(**settings: object) -> FedAMP:
    """FedAMP with cosine attention (eqs (10), (11))."""
    if "attention" in settings:
        raise SartorError("HeurFedAMP's attention is the cosine; use FedAMP to choose another.")
    return FedAMP(attention="cosine", **settings)  # type: ignore[arg-type]
