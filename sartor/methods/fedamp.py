"""FedAMP and HeurFedAMP (Huang et al., "Personalized federated learning: an attentive collaboration approach").

    min_W  Σ_i F_i(w_i) + λ Σ_{i<j} A(‖w_i − w_j‖²)                                                            (1)
    server:  u_i = Σ_j ξ_ij w_j,   ξ_ij = α A'(‖w_i − w_j‖²) for j ≠ i,   ξ_ii = 1 − Σ_{j≠i} ξ_ij             (4)
    client:  w_i ≈ argmin F_i(w) + 1/(2β) ‖w − u_i‖²,  started at u_i                                          (5)
    HeurFedAMP: ξ_ij ∝ exp(σ cos(w_i, w_j)) for j ≠ i, with a self weight ξ_ii and a β of each client's own (10), (11)

Two modes. `alpha` gives (4) exactly; its fixed point is a stationary point of (1) with λ = α/(2β): the derivative of
A(‖·‖²) has a factor 2 that the paper drops. `self_weight` gives every client ξ_ii = self_weight and shares the rest in
proportion to A', as the paper's experiments do (they weigh the others by τ = 1 − self_weight, often 0.95). A' is scaled
to A'(0) = 1/σ ("sqrt": 1/(2σ), as printed); "exp" has −‖·‖²/σ, the paper's eq. (9) has 2σ. σ's unit is a
squared distance between models, which grows with their size: `reach` is σ over the mean of these distances. The start
of (5) is not in the paper; from w_i nothing would be shared at its β = 10⁴. The server sees every personal model.
Algorithm 2 lets clients choose their own τ_i and β_i: `self_weight` and `beta` are a number, or one for each client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..aggregators import gram, regram
from ..client_table import Rows
from ..core import ClientStack, Method, Number, Problem, Sent, Server, State
from ..couplings import Quadratic
from ..errors import SartorError, need, one_of, positive
from ..solvers import SGD, Solver
from .parts.attention import KINDS, attention
from .parts.diagnostics import prox_facts


@dataclass(frozen=True)
class FedAMP(Method):
    """Attentive message passing: each client gets its own mixture of the others' models.

    For example:

        >>> result = st.fit(st.FedAMP(), model, clients, rounds=2)
    """

    attention: str = "exp"  # A: "exp", "sqrt" (tamed square root), "scad", "mcp"; or "cosine" (HeurFedAMP)
    reach: float | None = None  # σ over the mean squared distance between models; none: 1, or what `sigma` makes it
    sigma: float | None = None  # σ itself, in place of it; `cosine` and `alpha` have no other (none: 10)
    self_weight: float | tuple[float, ...] = 0.8  # 1 − τ_i: one number, or one for each client
    alpha: float | None = None  # none: the constant self weight
    among: str = "all"  # whom a client may attend to; "cohort": those asked in the same round (large federations)
    beta: float | tuple[float, ...] = 10.0  # β_i: the same
    beta_decay: float = 1.0
    beta_every: int = 30
    solver: Solver = SGD()
    columns: ClassVar[tuple[str, ...]] = ("reach", "sigma", "self_weight", "alpha", "beta", "beta_decay")
    sends = (Sent("w", "u", "last"),)

    def __post_init__(self) -> None:
        positive("FedAMP", beta_decay=self.beta_decay, beta_every=self.beta_every)
        for beta in _each(self.beta):
            positive("FedAMP", beta=beta)
        one_of("FedAMP", "attention", self.attention, KINDS)
        self._set_reach()
        one_of("FedAMP", "among", self.among, ["all", "cohort"])
        for own in _each(self.self_weight):
            need(0 <= own <= 1, f"FedAMP needs self_weight in [0, 1]; got {own}.")
        if self.alpha is not None:
            positive("FedAMP", alpha=self.alpha)
            one = not isinstance(self.beta, tuple)
            need(one, "FedAMP with alpha solves (1) with λ = α/(2β), so it takes one beta for all clients.")
            need(self.attention != "cosine", "HeurFedAMP has no alpha: eq. (11) has a constant self_weight.")

    def _set_reach(self) -> None:
        """Refuse both; where neither is given take σ = 10 if it has to be a number, else a reach of 1."""
        both = self.reach is not None and self.sigma is not None
        need(not both, f"FedAMP takes reach, or sigma itself, not both; got {self.reach} and {self.sigma}.")
        number = "cosine attention" if self.attention == "cosine" else "alpha" if self.alpha is not None else ""
        need(
            not number or self.reach is None, f"FedAMP with {number} takes sigma, not reach; got reach = {self.reach}."
        )
        if self.reach is None and self.sigma is None:
            object.__setattr__(self, *(("sigma", 10.0) if number else ("reach", 1.0)))
        positive("FedAMP", **{name: v for name in ("reach", "sigma") if (v := getattr(self, name)) is not None})

    def init(self, problem: Problem) -> tuple[Server, State]:
        w, m = problem.start, problem.clients
        for name, own in (("self_weight", self.self_weight), ("beta", self.beta)):
            count = len(own) if isinstance(own, tuple) else m
            need(count == m, f"FedAMP needs one {name} for all, or one for each of the {m} clients; got {count}.")
        products = {} if self.among == "cohort" else {"products": w.double().square().sum().expand(m, m)}
        return {"w": Rows(m, w)} | products, {"w": w}

    def downlink(self, server: Server, ids: Tensor, round: int) -> State:
        if self.among == "cohort":
            W, places = server["w"][ids], torch.arange(len(ids))
            G = gram(W)
        else:
            W, places, G = server["w"].whole(), ids, server["products"]
        xi = self.weights(G[places], G.diagonal(), places, self.scale(*_sums(G)), _of(self.self_weight, ids, G))
        return {"u": xi.to(W) @ W}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        u = down["u"]
        w = self.solver.minimise(local, u, self.near(u, local))
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

    def near(self, u: Tensor, local: ClientStack) -> Quadratic:
        """1/(2β_k,i) ‖w − u_i‖²."""
        beta = _of(self.beta, local.ids, u) * self.beta_decay ** (local.round // self.beta_every)
        return Quadratic(1 / beta, u)

    def scale(self, total: float, spread: float, m: int) -> float:
        """σ, where Σ‖w_i‖² = total and ‖Σ w_i‖² = spread of m models: their mean squared distance is its unit."""
        if self.sigma is not None:
            return self.sigma
        assert self.reach is not None
        mean = 2 * (m * total - spread) / (m * max(m - 1, 1))
        unit = self.reach * mean if mean > 1e-12 * total else 1.0  # 1: all models are alike
        return unit**0.5 if self.attention == "sqrt" else unit

    def weights(
        self, products: Tensor, squares: Tensor, places: Tensor, sigma: float, own: Number, shrink: bool = False
    ) -> Tensor:
        """ξ [c, m]: how much of every model goes into u_i of the clients at these places. Rows sum to 1.

        `products` [c, m] are the inner products of these clients' models with all, `squares` [m] those of each with
        itself, `own` their self weights. An α that is too large is refused, or (`shrink`) made smaller where it is.
        """
        A = attention(self.attention, sigma, products, squares, places, ratios=self.alpha is None)
        total = A.sum(1, keepdim=True)
        if self.alpha is None:
            xi = A * ((1 - own) / total.clamp(min=1e-30))
        else:
            most = float(self.alpha * total.max())
            if shrink:
                A = A / (self.alpha * total).clamp(min=1)
            elif most > 1 + 1e-9:
                raise SartorError(
                    f"FedAMP's weights leave the simplex: α ΣA' = {most:.3g} > 1 for client "
                    f"{int(places[total.argmax()])}; take alpha <= {self.alpha / most:.3g} or a larger sigma."
                )
            xi = self.alpha * A
        xi[torch.arange(len(places)), places] = (1 - xi.sum(1)).clamp(min=0)
        return xi

    def fresh(self, problem: Problem, server: Server) -> State:
        return {"w": server["w"].whole().mean(0)}

    def welcome(self, server: Server, state: State, local: ClientStack) -> State:
        """Attention over the known models: each newcomer shows its own and gets its mixture, as (4) has it.

        Where clients have their own self weight or β, it has their mean.
        """
        self_weight = float(np.mean(self.self_weight))
        W, m = server["w"].whole(), torch.tensor([len(server["w"])])
        squares = W.double().square().sum(1)
        sigma = self.scale(float(squares.sum()), float(W.double().sum(0).square().sum()), len(W))
        mixed = []
        for w in state["w"]:
            known, own = torch.cat([W, w[None]]), w.double()
            products, with_own = known.double() @ own, torch.cat([squares, (own @ own)[None]])
            mixed.append(self.weights(products[None], with_own, m, sigma, self_weight, shrink=True).to(known) @ known)
        return {"u": torch.cat(mixed)}

    def join(self, state: State, down: State, local: ClientStack) -> State:
        return replace(self, beta=float(np.mean(self.beta))).client(state, down, local)[0]

    def collaboration(self, server: Server) -> Tensor | None:
        if self.among == "cohort":
            return None
        G, everyone = server["products"], torch.arange(len(server["products"]))
        return self.weights(G, G.diagonal(), everyone, self.scale(*_sums(G)), _of(self.self_weight, everyone, G))

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        facts = prox_facts(local, state["w"], self.near(down["u"], local), self.solver)
        return {"message_gap": (state["w"] - down["u"]).norm(dim=1)} | facts

    def warnings(self, server: Server, round: int, facts: Mapping[str, float]) -> list[str]:
        if round == 0 or len(server["w"]) == 1:
            return []
        xi = self.collaboration(server)
        if xi is None or float(xi.diagonal().min()) < 1 - 1e-3:
            return []
        how = "raise reach, sigma or alpha, or lower self_weight"
        return [f"FedAMP's weights are one-hot: this equals local training; {how}."]


def _sums(G: Tensor) -> tuple[float, float, int]:
    """Σ‖w_i‖², ‖Σ w_i‖² and m, from the inner products [m, m]."""
    return float(G.diagonal().sum()), float(G.sum()), len(G)


def _each(value: float | tuple[float, ...]) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,)


def _of(value: float | tuple[float, ...], ids: Tensor | np.ndarray, like: Tensor) -> Number:
    """A setting of the clients `ids`: the number for all, or [c, 1] where every client has its own."""
    return like.new_tensor(value)[ids][:, None] if isinstance(value, tuple) else value


def HeurFedAMP(**settings: object) -> FedAMP:
    """FedAMP with cosine attention (eqs (10), (11)).

    For example:

        >>> result = st.fit(st.HeurFedAMP(self_weight=0.5), model, clients, rounds=2)
    """
    if "attention" in settings:
        raise SartorError("HeurFedAMP's attention is the cosine; use FedAMP to choose another.")
    return FedAMP(attention="cosine", **settings)  # type: ignore[arg-type]


ABOUT = {
    "class": "FedAMP",
    "factories": ["HeurFedAMP"],
    "title": "FedAMP, HeurFedAMP",
    "order": 60,
    "paper": "FedAMP",
    "personal": "w_i after the client's last local training",
    "names": {
        "fedamp": {
            "line": "attentive message passing; one cloud model per client",
            "tune": {"reach": "log(0.03, 10)", "self_weight": "flat(0.05, 0.95)"},
        },
        "heurfedamp": {
            "line": "FedAMP with cosine attention",
            "preset": {"attention": "cosine"},
            "tune": {"sigma": "log(1, 100)", "self_weight": "flat(0.05, 0.95)"},
        },
    },
    "settings": {
        "attention": "A: `exp`, `sqrt`, `scad`, `mcp`; or `cosine`, which is HeurFedAMP",
        "reach": (
            "σ over the mean squared distance between the clients' models, as it is in each round: the smaller, the "
            "more only the nearest models count"
        ),
        "sigma": (
            "σ itself, as papers give it, not beside `reach`; its unit is a squared distance (`cosine`: a factor, and "
            "the larger, the more only the nearest count)"
        ),
        "self_weight": (
            "ξ_ii, the weight of a client's own model; the rest goes to the others. One number, or one for each client "
            "(`0.2,0.5,0.2`, in the clients' order). Not used with `alpha`"
        ),
        "alpha": (
            "eq. (4)'s α, as in the paper's theory; weights that would leave the simplex are refused. None: "
            "`self_weight`"
        ),
        "among": (
            "whom a client may attend to: `all`, or `cohort`, those asked in the same round (for large federations)"
        ),
        "beta": (
            "β: the client's model is held at u with 1/(2β), so small β means strong. One number, or one for each "
            "client"
        ),
        "beta_decay": "β is multiplied by this every `beta_every` rounds",
        "beta_every": "see `beta_decay`",
    },
    "convex": {"solver.kind": "newton"},
    "cite": ["huang2021fedamp"],
    "cold_start": (
        "attention over the known models: its model, at first their mean, is compared with all of them and it is "
        "sent u = Σ_j ξ_j w_j with eq. (4)'s (or (10)'s) weights, itself included; then a proximal step from u. "
        "An α too large for one more client is scaled down; where clients have their own `self_weight` or `beta`, it "
        "has their mean. The newcomer shows the server its model"
    ),
    "privacy": {
        "sends": "its personal model, clipped against u_i",
        "server": "no: there is no mean, everyone gets a mixture of its own",
        "client": "yes: attention is paid to noisy models",
    },
}
