"""MOCHA (Smith, Chiang, Sanjabi, Talwalkar, "Federated multi-task learning", NeurIPS 2017), Algorithm 1.

    min_{W, Ω}  Σ_t Σ_i ℓ(w_t·x_ti, y_ti) + λ_1/2 tr(Ω⁻¹ (WᵀW + εI)) + λ_2/2 ‖W‖²,   Ω >= 0,  tr Ω = 1          (1), (3)
    dual of the W-part:  max_α  −Σ_t Σ_i ℓ*(−α_ti) − 1/2 Σ_{tt'} M_tt' v_t·v_t',    v_t = X_tᵀα_t
                         M = (λ_1 Ω⁻¹ + λ_2 I)⁻¹,   w_t(α) = Σ_t' M_tt' v_t'
    client:  Δα_t ≈ argmin Σ_i ℓ*(−α_ti − Δα_ti) + w_t·X_tᵀΔα_t + σ_t/2 ‖X_tᵀΔα_t‖²,   send Δv_t = X_tᵀΔα_t       (5)
    server:  v_t = v_t + Δv_t;  every `omega_every` rounds   Ω = (WᵀW + εI)^{1/2} / tr (WᵀW + εI)^{1/2}

Losses: squared ½(z − y)², −ℓ*(−α) = αy − α²/2; and hinge, −ℓ*(−α) = αy with αy in [0, 1]; summed over samples, as in
the paper. The subproblem is solved by `epochs` passes of exact coordinate steps in random order. σ_t = Σ_t' |M_tt'| is
safe for each client by itself (the paper takes one σ' for all). Ω starts at I/m; `omega_every=0` keeps it there. ε
keeps Ω from losing rank for good (Argyriou et al. 2008): a direction that W lacks once would else stay shut. A bias is
one more weight, regularised like the others. The server sees every v_t and keeps an m×m matrix. Clients that sat out
keep their α (the paper's dropped nodes). The personal models are w_t(α); there is no global model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..client_table import Rows
from ..core import ClientStack, Method, Problem, Sent, Server, State
from ..errors import need, not_negative, positive


@dataclass(frozen=True)
class MOCHA(Method):
    """Multi-task learning of linear models by dual coordinate steps, with learnt relations between clients.

    For example:

        >>> x, hospital = [[0.1 * i] for i in range(40)], ["north", "south"] * 20
        >>> table = st.data.from_arrays(x, [2 * a + 1 for (a,) in x], hospital, task="regression")
        >>> data = table.split("natural", seed=0)
        >>> result = st.fit(st.MOCHA(lam1=1.0), st.models.layers(1, 1), data, rounds=2, loss="squared")
    """

    lam1: float = 10.0
    lam2: float = 0.0
    epsilon: float = 1e-3
    epochs: int = 1
    omega_every: int = 1
    columns: ClassVar[tuple[str, ...]] = ("lam1", "lam2", "epsilon")
    lengths: ClassVar[tuple[str, ...]] = ("epochs",)
    models: ClassVar[str] = "one output"
    sends = (Sent("v", against="sum"),)

    def __post_init__(self) -> None:
        positive("MOCHA", lam1=self.lam1, epsilon=self.epsilon)
        not_negative("MOCHA", lam2=self.lam2, omega_every=self.omega_every)
        need(self.epochs >= 1, f"MOCHA needs epochs >= 1; got {self.epochs}.")

    def unsplit(self) -> str:
        return "MOCHA takes dual coordinate steps, a sample at a time, and no gradients"

    def init(self, problem: Problem) -> tuple[Server, State]:
        need(
            problem.linear and problem.loss in ("squared", "hinge"),
            "MOCHA is for convex problems: a linear model with one output, squared or hinge loss (linear, svm); got "
            f"{problem.loss} loss on {'a linear' if problem.linear else 'another'} model of {len(problem.start)} "
            "parameters. Use such a model, or ditto, flame or fedamp.",
        )
        start, m = problem.start, problem.clients
        Omega = torch.eye(m, dtype=start.dtype, device=start.device) / m
        return {"v": Rows(m, 0 * start), "Omega": Omega}, {"alpha": start.new_zeros(problem.largest)}

    def downlink(self, server: Server, ids: Tensor, round: int) -> State:
        rows = self.M(server["Omega"])[ids]
        return {"w": rows @ server["v"].whole(), "sigma": rows.abs().sum(1, keepdim=True)}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w, sigma, alpha = down["w"], down["sigma"], state["alpha"].clone()
        X, y, _ = local.design()
        s, dv = (sigma * X.square().sum(2)).clamp(min=torch.finfo(X.dtype).tiny), torch.zeros_like(w)
        everyone = torch.arange(len(w), device=w.device)
        for a, i in local.order(self.epochs):
            t = everyone[:a]
            x, y_i, s_i, old = X[t, i], y[t, i], s[t, i], alpha[t, i]
            z = (x * (w[:a] + sigma[:a] * dv[:a])).sum(1)
            if local.kind == "squared":
                new = old + (y_i - z - old) / (1 + s_i)
            else:
                new = y_i * (y_i * old + (1 - y_i * z) / s_i).clamp(0, 1)
            alpha[t, i] = new
            dv[:a].addcmul_((new - old)[:, None], x)
        return {"alpha": alpha}, {"v": dv}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        v, Omega = server["v"].replaced(ids, server["v"][ids] + messages["v"]), server["Omega"]
        if self.omega_every and (round + 1) % self.omega_every == 0:
            W = (self.M(Omega) @ v.whole()).double()
            values, U = torch.linalg.eigh(W @ W.T)
            root = (values.clamp(min=0) + self.epsilon).sqrt()
            Omega = ((U * (root / root.sum())) @ U.T).to(Omega.dtype)
        return {"v": v, "Omega": Omega}

    def shared(self, server: Server) -> None:
        return None

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return down["w"]

    def M(self, Omega: Tensor) -> Tensor:
        """(λ_1 Ω⁻¹ + λ_2 I)⁻¹, without inverting Ω."""
        values, U = torch.linalg.eigh(Omega)
        values = values.clamp(min=0)
        M: Tensor = (U * (values / (self.lam1 + self.lam2 * values))) @ U.T
        return M

    def fresh(self, problem: Problem, server: Server) -> State:
        return {"alpha": problem.start.new_zeros(problem.largest), "v": 0 * problem.start}

    def welcome(self, server: Server, state: State, local: ClientStack) -> State:
        """A newcomer's relations are not known: it is a task by itself, as all were at the start (Ω = I/m)."""
        alone = 1 / (self.lam1 * len(server["v"]) + self.lam2)
        return {"w": alone * state["v"], "sigma": torch.full_like(state["v"][:, :1], alone)}

    def join(self, state: State, down: State, local: ClientStack) -> State:
        new, message = self.client(state, down, local)
        return new | {"v": state["v"] + message["v"]}

    def exposes(self) -> str:
        return "v = Xᵀα, which must stay equal to what its duals α say, so noise cannot be added; use ditto or flame"

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        """Each client's part of the duality gap, Σ_i ℓ(z_i) + ℓ*(−α_i) + α_i z_i; every term is at least 0."""
        X, y, there = local.design()
        z, alpha = (X @ down["w"][..., None])[..., 0], state["alpha"][:, : y.shape[1]]
        if local.kind == "squared":
            gap = 0.5 * (z - y) ** 2 + 0.5 * alpha**2 - alpha * y + alpha * z
        else:
            gap = (1 - y * z).clamp(min=0) - alpha * y + alpha * z
        return {"duality_gap": (gap * there).sum(1)}


ABOUT = {
    "class": "MOCHA",
    "order": 180,
    "paper": "Smith et al. 2017",
    "personal": "w_i, as the server last made it of all duals",
    "names": {"mocha": {"line": "multi-task learning of linear models with learnt relations"}},
    "settings": {
        "lam1": "λ_1, the weight of the relations between clients",
        "lam2": "λ_2, plain weight decay",
        "epsilon": "ε keeps Ω invertible",
        "epochs": "passes of dual coordinate steps over a client's samples in a round",
        "omega_every": "rounds between updates of the relations Ω; 0 keeps them at the start",
    },
    "tune": {"lam1": "log(0.1, 100)", "lam2": "log(0.0001, 1)"},
    "cite": ["smith2017mocha"],
    "cold_start": (
        "a task by itself, as all were at the start (Ω = I/m): its relations to the others are not known; each "
        "visit passes of dual steps"
    ),
    "privacy": {
        "sends": "Δv = XᵀΔα",
        "server": "refused: noise would break v = Xᵀα, on which the method rests",
        "client": "refused",
    },
}
