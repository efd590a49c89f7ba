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

from ..aggregators import gram, regram
from ..client_table import Rows
from ..core import ClientStack, Method, Problem, Sent, Server, State
from ..couplings import Quadratic
from ..errors import SartorError, need, one_of, positive
from ..solvers import SGD, Solver
from .parts.attention import KINDS, attention
from .parts.diagnostics import prox_facts


@dataclass(frozen=True)
class FedAMP(Method):
    """Attentive message passing: each client gets its own mixture of the others' models."""

    attention: str = "exp"  # A: "exp", "sqrt" (tamed square root), "scad", "mcp"; or "cosine" (HeurFedAMP)
    sigma: float = 10.0
    self_weight: float = 0.8
    alpha: float | None = None  # none: the constant self weight
    among: str = "all"  # whom a client may attend to; "cohort": those asked in the same round (large federations)
    beta: float = 10.0
    beta_decay: float = 1.0
    beta_every: int = 30
    solver: Solver = SGD()
    sends = (Sent("w", "u", "last"),)

    def __post_init__(self) -> None:
        positive("FedAMP", sigma=self.sigma, beta=self.beta, beta_decay=self.beta_decay, beta_every=self.beta_every)
        one_of("FedAMP", "attention", self.attention, KINDS)
        one_of("FedAMP", "among", self.among, ["all", "cohort"])
        need(0 <= self.self_weight <= 1, f"FedAMP needs self_weight in [0, 1]; got {self.self_weight}.")
        if self.alpha is not None:
            positive("FedAMP", alpha=self.alpha)
            need(self.attention != "cosine", "HeurFedAMP has no alpha: eq. (11) has a constant self_weight.")

    def init(self, problem: Problem) -> tuple[Server, State]:
        w, m = problem.start, problem.clients
        products = {} if self.among == "cohort" else {"products": w.double().square().sum().expand(m, m)}
        return {"w": Rows(m, w)} | products, {"w": w}

    def downlink(self, server: Server, ids: Tensor, round: int) -> State:
        if self.among == "cohort":
            W = server["w"][ids]
            G, ids = gram(W), torch.arange(len(ids))
        else:
            W, G = server["w"].whole(), server["products"]
        xi = self.weights(G[ids], G.diagonal(), ids)
        return {"u": xi.to(W) @ W}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        u = down["u"]
        w = self.solver.minimise(local, u, Quadratic(1 / self.beta_k(local.round), u))
        return {"w": w}, {"w": w}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        W = server["w"].replaced(ids, messages["w"])
        if self.among == "cohort":
            return {"w": W}
        return {"w": W, "products": regram(server["products"], W.whole(), ids)}

    def shared(self, server: Server) -> None:
        return None

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor:
        return state["w"]

    def beta_k(self, k: int) -> float:
        return self.beta * self.beta_decay ** (k // self.beta_every)

    def weights(self, products: Tensor, squares: Tensor, ids: Tensor, shrink: bool = False) -> Tensor:
        """ξ [c, m]: how much of every model goes into u_i of the clients `ids`. Rows sum to 1.

        `products` [c, m] are the inner products of these clients' models with all, `squares` [m] those of each with
        itself. An α that is too large is refused, or (`shrink`) made smaller where it is.
        """
        A = attention(self.attention, self.sigma, products, squares, ids, ratios=self.alpha is None)
        total = A.sum(1, keepdim=True)
        if self.alpha is None:
            xi = A * ((1 - self.self_weight) / total.clamp(min=1e-30))
        else:
            most = float(self.alpha * total.max())
            if shrink:
                A = A / (self.alpha * total).clamp(min=1)
            elif most > 1 + 1e-9:
                raise SartorError(
                    f"FedAMP's weights leave the simplex: α ΣA' = {most:.3g} > 1 for client "
                    f"{int(ids[total.argmax()])}; take alpha <= {self.alpha / most:.3g} or a larger sigma."
                )
            xi = self.alpha * A
        xi[torch.arange(len(ids)), ids] = (1 - xi.sum(1)).clamp(min=0)
        return xi

    def fresh(self, problem: Problem, server: Server) -> State:
        return {"w": server["w"].whole().mean(0)}

    def welcome(self, server: Server, state: State, local: ClientStack) -> State:
        """Attention over the known models: each newcomer shows its own and gets its mixture, as (4) has it."""
        W, m = server["w"].whole(), torch.tensor([len(server["w"])])
        squares = W.double().square().sum(1)
        mixed = []
        for w in state["w"]:
            known, own = torch.cat([W, w[None]]), w.double()
            products, with_own = known.double() @ own, torch.cat([squares, (own @ own)[None]])
            mixed.append(self.weights(products[None], with_own, m, shrink=True).to(known) @ known)
        return {"u": torch.cat(mixed)}

    def collaboration(self, server: Server) -> Tensor | None:
        if self.among == "cohort":
            return None
        G = server["products"]
        return self.weights(G, G.diagonal(), torch.arange(len(G)))

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        facts = prox_facts(local, state["w"], Quadratic(1 / self.beta_k(local.round), down["u"]), self.solver)
        return {"message_gap": (state["w"] - down["u"]).norm(dim=1)} | facts

    def warnings(self, server: Server, round: int, facts: Mapping[str, float]) -> list[str]:
        if round == 0 or len(server["w"]) == 1:
            return []
        xi = self.collaboration(server)
        if xi is None or float(xi.diagonal().min()) < 1 - 1e-3:
            return []
        return ["FedAMP's weights are one-hot: this equals local training; raise sigma or alpha, or lower self_weight."]


def HeurFedAMP(**settings: object) -> FedAMP:
    """FedAMP with cosine attention (eqs (10), (11))."""
    if "attention" in settings:
        raise SartorError("HeurFedAMP's attention is the cosine; use FedAMP to choose another.")
    return FedAMP(attention="cosine", **settings)  # type: ignore[arg-type]


ABOUT = {
    "class": "FedAMP",
    "factories": ["HeurFedAMP"],
    "title": "FedAMP, HeurFedAMP",
    "order": 60,
    "paper": "FedAMP",
    "names": {
        "fedamp": {
            "line": "attentive message passing; one cloud model per client",
            "tune": {"sigma": "log(0.1, 1000)", "self_weight": "flat(0.05, 0.95)"},
        },
        "heurfedamp": {
            "line": "FedAMP with cosine attention",
            "preset": {"attention": "cosine"},
            "tune": {"sigma": "log(1, 100)", "self_weight": "flat(0.05, 0.95)"},
        },
    },
    "settings": {
        "attention": "A: `exp`, `sqrt`, `scad`, `mcp`; or `cosine`, which is HeurFedAMP",
        "sigma": (
            "σ, the scale of squared distances: the smaller, the more only the nearest models count (`cosine`: "
            "the larger)"
        ),
        "self_weight": "ξ_ii, the weight of a client's own model; the rest goes to the others. Not used with `alpha`",
        "alpha": (
            "eq. (4)'s α, as in the paper's theory; weights that would leave the simplex are refused. None: "
            "`self_weight`"
        ),
        "among": (
            "whom a client may attend to: `all`, or `cohort`, those asked in the same round (for large federations)"
        ),
        "beta": "β: the client's model is held at u with 1/(2β), so small β means strong",
        "beta_decay": "β is multiplied by this every `beta_every` rounds",
        "beta_every": "see `beta_decay`",
    },
    "cite": ["huang2021fedamp"],
    "cold_start": (
        "attention over the known models: its model, at first their mean, is compared with all of them and it is "
        "sent u = Σ_j ξ_j w_j with eq. (4)'s (or (10)'s) weights, itself included; then a proximal step from u. "
        "An α too large for one more client is scaled down. The newcomer shows the server its model"
    ),
    "privacy": {
        "sends": "its personal model, clipped against u_i",
        "server": "no: there is no mean, everyone gets a mixture of its own",
        "client": "yes: attention is paid to noisy models",
    },
}
