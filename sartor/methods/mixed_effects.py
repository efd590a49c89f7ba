"""Mixed effects: a common model w, and each client's own deviation u_i from it, whose variances the clients' data say.

    min  Σ_i [ n_i f_i(w + u_i)/φ + ½ Σ_j u_ij²/τ_j² ] + ridge/2 ‖weights of w‖²                       (linear models)
    client:  u_i = argmin,  given w, τ², φ;   g_i = n_i ∇f_i/φ,  A_i = n_i ∇²f_i/φ  at w + u_i,  V_i = (A_rr + 1/τ²)⁻¹
             sends g_i,  S_i = A_i − A_:r V_i A_r:,  u_ij²,  1 − V_i,jj/τ_j²,  n_i,  n_i f_i
    server:  w = w − (Σ S_i + ridge)⁻¹ (Σ g_i + ridge w)                       Newton's step over w and all u_i together
             τ_j² = Σ_i u_ij² / Σ_i (1 − V_i,jj/τ_j²)                          (Fellner and Schall; with m − 1 for m)
             φ = 2 Σ n_i f_i / (N − what was fitted)                           for squared error; else 1

u_i lives on the coordinates r: "all" (random intercept and slopes), "intercept", or "nothing". With nothing it is
Newton's method for the pooled model: what all data in one place would give (GLORE, Wu et al. 2012); with a given, large
`variance` every client has its own intercept, free. Otherwise it is the classical mixed model, for classes by penalised
quasi-likelihood (Breslow and Clayton 1993). Where clients are few, a τ_j² leans on the mean of all. Models must be
small, as d² numbers are sent. A step is cut where outputs would move by more than 1 or so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core import ClientStack, Method, Problem, Server, State, weights_of
from ..couplings import Quadratic
from ..errors import need, not_negative, one_of, positive
from ..solvers import DENSE, Newton, newton_step
from .parts.other_losses import ModelPart

_LEAN = 2.0  # clients' worth of evidence for the common variance behind each coordinate's own
_FLAT = 1e-8  # a variance below this is none
_STEPS = 5  # of many deviations L-BFGS takes ten times so many steps in a round; the next round goes on from there
LARGEST = 3000  # parameters: d² numbers are sent


@dataclass(frozen=True)
class MixedEffects(Method):
    """A common linear model and clients' deviations from it, with estimated variances; by Newton steps of all.

    For example:

        >>> table = st.data.load(([[0.0], [1.0]] * 20, [0, 1] * 20, ["north"] * 20 + ["south"] * 20))
        >>> result = st.fit(st.MixedEffects(), st.models.layers(1, 2), table.split("natural", seed=0), rounds=2)
    """

    random: str = "all"
    variance: float | None = None  # τ², where it is not to be estimated
    factor: float = 1.0  # what is estimated is taken so many times
    ridge: float = 1.0
    columns: ClassVar[tuple[str, ...]] = ("variance", "factor", "ridge")
    models: ClassVar[str] = "one layer"
    uncompressed: ClassVar[str] = "it sends curvatures and variances, which must stay positive"
    sends = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("mixed effects", "random", self.random, ["all", "intercept", "nothing"])
        not_negative("mixed effects", ridge=self.ridge)
        positive("mixed effects", factor=self.factor)
        if self.variance is not None:
            positive("mixed effects", variance=self.variance)

    def unsplit(self) -> str:
        return "its clients solve to the end and send curvatures"

    def exposes(self) -> str:
        return "the gradient and the curvature of its loss, d + d² numbers"

    def init(self, problem: Problem) -> tuple[Server, State]:
        w, d = problem.start, len(problem.start)
        need(
            problem.convex,
            "mixed effects are for linear models (linear, softmax, svm with squared-hinge loss); got "
            f"{problem.loss} loss on another model of {d} parameters. Use such a model, or ditto, mr-mtl or flame.",
        )
        need(d <= LARGEST, f"mixed effects send d² numbers, so d is at most {LARGEST}; got d = {d}. Use mr-mtl.")
        server = {"w": w, "tau": self._deviating(problem) * (self.variance or 1.0), "phi": w.new_ones(1)}
        server |= {
            "weights": weights_of(problem.blocks, w),
            "numbers": w.new_full((1,), float(problem.loss == "squared")),
        }
        return server, {"theta": w}

    def _deviating(self, problem: Problem) -> Tensor:
        """[d] 1 where clients deviate."""
        weights = weights_of(problem.blocks, problem.start)
        need(
            self.random != "intercept" or bool((weights == 0).any()),
            "a model without intercepts (bias) has none of its own; take random=all or nothing.",
        )
        return {"all": torch.ones_like(weights), "intercept": 1 - weights, "nothing": 0 * weights}[self.random]

    def downlink(self, server: Server, ids: Tensor, round: int) -> State:
        return {k: server[k].expand(len(ids), -1) for k in ("w", "tau", "phi")}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        w, tau, phi = (down[k].double() for k in ("w", "tau", "phi"))
        n, r = local.samples[:, None].double(), torch.nonzero(tau[0])[:, 0]
        theta = w.clone()
        if len(r):
            part = slice(int(r[0]), int(r[-1]) + 1)  # all coordinates, or the intercepts, which come last
            prior, own = Quadratic(phi / n / tau[:, part], w[:, part]), state["theta"].double()
            newton = Newton(ridge=0, max_steps=_STEPS) if len(r) > DENSE else Newton(ridge=0)
            theta[:, part] = newton.minimise(ModelPart(local, w, part), own[:, part], prior)
        f = local.objective()
        g, A = f.grad(theta) * n / phi, f.hessian(theta) * (n / phi)[..., None]
        T = 1 / tau[:, r]
        inner = A[:, r][:, :, r] + torch.diag_embed(T)
        if len(r) == len(tau[0]):  # where everything deviates, A − A (A + T)⁻¹ A = T − T V T: no large products
            V = torch.cholesky_inverse(torch.linalg.cholesky(inner))
            S = torch.diag_embed(T) - T[:, :, None] * V * T[:, None]
        else:
            V = torch.linalg.inv(inner)
            S = A - A[:, :, r] @ V @ A[:, r] if len(r) else A
        fitted = torch.zeros_like(w).index_copy(1, r, 1 - V.diagonal(dim1=1, dim2=2) * T)
        found = {"g": g, "S": S.flatten(1), "u2": (theta - w) ** 2, "fitted": fitted}
        found["sums"] = torch.cat([n, n * f.loss(theta)[:, None]], dim=1)
        kind = state["theta"].dtype
        return {"theta": theta.to(kind)}, {k: v.to(kind) for k, v in found.items()}

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        w, ridge, d = server["w"].double(), self.ridge * server["weights"].double(), len(server["w"])
        g, S, u2, fitted, (n, loss) = (messages[k].double().sum(0) for k in ("g", "S", "u2", "fitted", "sums"))
        g = g + ridge * w
        step = newton_step((S.view(d, d) + torch.diag(ridge))[None], g[None])[0]
        length = (n.sqrt() / (g @ step).clamp(min=_FLAT).sqrt()).clamp(max=1)  # outputs move by 1 or so at most
        new = {"w": w - length * step}
        if self.variance is None and self.random != "nothing":
            new["tau"] = self.factor * self._variances(server, u2, fitted, len(ids))
        if bool(server["numbers"]):
            new["phi"] = (2 * loss / (n - fitted.sum() - d).clamp(min=0.1 * n)).clamp(min=_FLAT)[None]
        return server | {k: v.to(server[k].dtype) for k, v in new.items()}

    def _variances(self, server: Server, u2: Tensor, fitted: Tensor, m: int) -> Tensor:
        """τ² [d]: each coordinate's own, leaning on the mean of its kind (weights or intercepts)."""
        fitted, out = fitted * (1 - 1 / m) if m > 1 else fitted, torch.zeros_like(u2)
        for kind in (server["weights"] > 0, server["weights"] == 0):
            at = (server["tau"] > 0) & kind
            common = u2[at].sum() / fitted[at].sum().clamp(min=_FLAT)
            out[at] = ((u2[at] + _LEAN * common) / (fitted[at] + _LEAN)).clamp(min=_FLAT)
        return out

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor | None:
        return None if self.random == "nothing" else state["theta"]


ABOUT = {
    "class": "MixedEffects",
    "title": "Mixed effects",
    "order": 66,
    "personal": "θ_i after the client's last visit: what all have in common, and its own deviation",
    "names": {
        "mixed-effects": {
            "paper": "Breslow and Clayton 1993",
            "line": "a linear model with random intercepts and slopes, variances estimated",
            "tune": {"factor": "oneof(0.5, 1, 2, 4)", "ridge": "log(0.1, 1000)"},
        },
        "random-intercept": {
            "paper": "Breslow and Clayton 1993",
            "line": "a linear model whose intercepts vary between clients, by an estimated variance",
            "preset": {"random": "intercept"},
            "tune": {"factor": "oneof(0.5, 1, 2, 4)", "ridge": "log(0.1, 1000)"},
        },
        "own-intercept": {
            "paper": "-",
            "line": "a pooled linear model with an intercept of each client's own",
            "preset": {"random": "intercept", "variance": 100.0},
        },
        "fednewton": {
            "paper": "Wu et al. 2012",
            "line": "the pooled linear model itself, by Newton steps of all",
            "preset": {"random": "nothing"},
        },
    },
    "settings": {
        "random": "what a client has of its own: `all` (intercept and slopes), `intercept` or `nothing`",
        "variance": "τ², how far clients' own parameters may be from the common ones; none: estimated",
        "factor": (
            "estimated variances are multiplied by this; of classes they come out too small where clients have few "
            "samples"
        ),
        "ridge": "the penalty ridge/2 of the common model's squared weights, against losses summed over all samples",
    },
    "tune": {"ridge": "log(0.1, 1000)"},
    "cite": ["breslow1993glmm", "schall1991glmm", "wu2012glore"],
    "cold_start": "its deviation from w, given the variances: the estimate that the mixed model has for a new client",
    "privacy": {
        "sends": "the gradient and the curvature of its loss, squares of its deviations, its summed loss, its samples",
        "server": "no: curvatures are not clipped",
        "client": "no: curvatures are not clipped",
    },
}
