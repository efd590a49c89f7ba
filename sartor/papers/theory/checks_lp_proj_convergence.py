"""Lp-Proj with p = 2: how far an inexact gradient of F_k is from the exact one (Lemma 1), and where ‖∇F‖² and the
personal models end (Theorem 1). Linear models whose data lie in col(Pᵀ), as Assumption 4's example has them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np

from ...errors import need, positive
from ...methods import LpProj
from ...seeds import stream
from ...solvers import Inexact
from .checks_lp_proj import PAPER, projection
from .checks_pfedme_lemmas import L_LOG, log_slope
from .federations import least_squares, log_regression
from .findings import Check, Curve, Finding, Panel, Row, holds, tally
from .lp_proj_convergence import delta2, delta2_in_z, diversity_F, largest_eta, prox, smoothness
from .replicas import Play, estimate

EXACT = 1e-20  # ν of a step that is solved to the end
L_OF = {"squared": 1.0, "log": L_LOG}  # of a sample's loss: ‖ξ‖ = 1


def slope_of(loss: str, t: np.ndarray) -> np.ndarray:
    """l' of ½t² or log(1 + t²)."""
    return log_slope(t) if loss == "log" else t


@dataclass(frozen=True)
class LinearModels:
    """l(ξᵀx − y) with ξ = Pᵀa of length 1: only z = Px counts."""

    P: np.ndarray  # [k, d]
    a: np.ndarray  # [m, n, k]
    y: np.ndarray  # [m, n]
    loss: str
    lam: float
    seed: int

    @classmethod
    def draw(cls, d: int, d_sub: int, clients: int, samples: int, loss: str, lam: float, seed: int) -> LinearModels:
        P = projection(d_sub, d, seed, "gaussian")
        a = stream(seed, "lp-proj inputs").standard_normal((clients, samples, d_sub))
        a /= np.linalg.norm(a @ P, axis=-1, keepdims=True)
        own = 1 + 0.5 * stream(seed, "lp-proj models").standard_normal((clients, 1, d_sub))
        noise = stream(seed, "lp-proj noise").standard_normal((clients, samples))
        return cls(P, a, (a * own).sum(-1) + noise / 2, loss, lam, seed)

    @property
    def L(self) -> float:
        return L_OF[self.loss]

    @property
    def edges(self) -> tuple[float, float]:
        """The smallest and the largest singular value of P."""
        s = np.linalg.svd(self.P, compute_uv=False)
        return float(s[-1]), float(s[0])

    def near(self, w: np.ndarray) -> np.ndarray:
        """Px̂_k(w) [..., m, k] of every client, for w [..., k]."""
        each = np.broadcast_to(w[..., None, :], (*w.shape[:-1], len(self.a), w.shape[-1]))
        return prox(self.a, self.y, each, self.lam, lambda t: slope_of(self.loss, t), self.L)

    def F(self, w: np.ndarray) -> float:
        """The mean of F_k(w) for w [k]."""
        z = self.near(w)
        t = (self.a * z[:, None]).sum(-1) - self.y
        losses = np.log1p(t**2) if self.loss == "log" else t**2 / 2
        return float(losses.mean() + self.lam / 2 * ((w - z) ** 2).sum(-1).mean())

    def on_minibatches(self, w: np.ndarray, size: int) -> float:
        """E‖Px̃ − Px̂‖², the mean over clients and over every minibatch of that size, each solved to the end."""
        sets = np.array(list(combinations(range(self.y.shape[1]), size)))
        a, y = self.a[:, sets], self.y[:, sets]  # [m, sets, size, k]
        each = np.broadcast_to(w, (*y.shape[:2], len(w)))
        z = prox(a, y, each, self.lam, lambda t: slope_of(self.loss, t), self.L)
        return float(((z - self.near(w)[:, None]) ** 2).sum(-1).mean())

    def gamma2(self, w: np.ndarray) -> float:
        """The mean over clients of E‖∇f̃_k − ∇f_k‖² at x̂_k(w), where the proof needs it."""
        rest = slope_of(self.loss, (self.a * self.near(w)[:, None]).sum(-1) - self.y)
        each = (rest[..., None] * self.a) @ self.P  # [m, n, d]
        return float(((each - each.mean(1, keepdims=True)) ** 2).sum(-1).mean())

    def play(self, solver: Inexact, replicas: int, eta: float = 0.1, beta: float = 1.0) -> Play:
        """The library's Lp-Proj in so many federations that all have these data."""
        m, n = self.y.shape
        X = np.broadcast_to(self.a @ self.P, (replicas, m, n, self.P.shape[1])).reshape(replicas * m, n, -1)
        y = np.broadcast_to(self.y, (replicas, m, n)).reshape(-1, n)
        task, data = log_regression(X, y) if self.loss == "log" else least_squares(X, y)
        method = LpProj(lam=self.lam, eta=eta, beta=beta, d_sub=len(self.P), projection_seed=self.seed, solver=solver)
        return Play(method, task, data, replicas, seed=self.seed)

    def solver(self, size: int | None, nu: float) -> Inexact:
        """Line 7 of Algorithm 1: gradient descent on a minibatch until ‖∇h̃‖² ≤ ν."""
        return Inexact(lr=1 / (self.edges[1] ** 2 * self.lam + self.L), eps=nu, shrink=1.0, batch=size)


@dataclass(frozen=True)
class LpProjLemma1(Check):
    """An inexact gradient of F_k is within λ²δ² of the exact one, for any d_sub (Lemma 1)."""

    name: ClassVar[str] = "lp-proj-lemma1"
    paper: ClassVar[str] = PAPER
    d: int = 400
    lam: float = 10.0
    clients: int = 6
    samples: int = 10
    replicas: int = 150
    seed: int = 0

    def __post_init__(self) -> None:
        need(self.lam > 4 * L_LOG, f"Lemma 1 needs λ > 4L = {4 * L_LOG:g}; got {self.lam:g}.")
        need(4 <= self.samples <= 16, f"{self.name} needs 4 to 16 samples; got {self.samples}.")
        need(self.d >= 400, f"{self.name} needs d >= 400, large against d_sub up to 16; got {self.d}.")
        need(self.clients >= 2 and self.replicas >= 2, f"{self.name} needs clients >= 2 and replicas >= 2.")

    def look(self) -> Finding:
        rows = []
        for loss in ("squared", "log"):
            for size in (1, 4):
                for nu in (EXACT, 0.05):
                    rows += self.error(loss, 3, size, nu)[0]
        dims = (2, 4, 8, 16)
        found = []
        for d_sub in dims:
            own, numbers = self.error("log", d_sub, 2, EXACT)
            rows += own
            found.append(numbers)
        measured, printed, sharp = (np.array(v) for v in zip(*found, strict=True))  # for noise of size 1
        low, high = 29 / 30, 31 / 30
        edge = delta2(1.0, self.lam, L_LOG, low, high) / delta2(1.0, self.lam, L_LOG, 1.0, 1.0)
        rows.append(Row("mild: δ² with singular values 1 ± 1/30 is at most twice δ² with 1", 2.0, edge, relation="<="))
        curves = [
            Curve("δ² with P's singular values", dims, printed, colour=1),
            Curve("our bound in z", dims, sharp, colour=2),
            Curve("measured", dims, measured[:, 0], measured[:, 1], dots=True),
        ]
        verdict = (
            f"{holds(rows)}: every bound holds, and without ν the error is the mean over all minibatches. "
            f"From d_sub = {dims[0]} to {dims[-1]} of d = {self.d} the error goes from {measured[0, 0]:.2g} to "
            f"{measured[-1, 0]:.2g} of γ²/|D|, δ² with P's own singular values from {printed[0]:.2g} to "
            f"{printed[-1]:.2g}, our bound in z from {sharp[0]:.2g} to {sharp[-1]:.2g}: the mild dependence is the "
            f"method's, and δ²'s within C√(d_sub/d) < 1/30 (at most a factor {edge:.2f}; as singular values are about "
            f"1 ± √(d_sub/d), that needs d > 900 d_sub); {tally(rows)}."
        )
        title = "Lemma 1 against d_sub (log, |D| = 2)"
        panel = Panel(title, "d_sub", "E‖Px̃ − Px̂‖² over γ²/|D|", curves, log="xy")
        return Finding(rows, [panel], verdict)

    def error(
        self, loss: str, d_sub: int, size: int, nu: float
    ) -> tuple[list[Row], tuple[tuple[float, float], float, float]]:
        """The rows of one setting at w = Px₀ = 0. Then, over the real γ²/|D| at x̂ and for ν = 0: the error with its
        standard error, Lemma 1's δ² and our bound."""
        p = LinearModels.draw(self.d, d_sub, self.clients, self.samples, loss, self.lam, self.seed)
        w = np.zeros(d_sub)
        play = p.play(p.solver(size, nu), self.replicas).rounds(1)
        z = play.state("x").numpy() @ p.P.T  # [R, m, k]
        away = estimate(((z - p.near(w)) ** 2).sum(-1).mean(1))  # ‖∇F_k − λ(w − Px)‖²/λ²
        low, high = p.edges
        gamma2 = 1.0 if loss == "log" else p.gamma2(w)  # slopes and inputs are at most 1
        noise = gamma2 / size + nu
        printed, sharp = delta2(noise, self.lam, p.L, low, high), delta2_in_z(noise, self.lam, p.L, low)
        which = f"{loss}, d_sub = {d_sub}, |D| = {size}, ν = {nu:g}"
        rows = [
            Row(f"{which}: E‖∇F_k − λ(w − Px)‖²/λ² ≤ δ²", printed, *away, relation="<="),
            Row(f"{which}: our bound in z", sharp, *away, relation="<="),
        ]
        if nu == EXACT:
            rows.append(Row(f"{which}: the mean over all minibatches", p.on_minibatches(w, size), *away))
        real = p.gamma2(w) / size
        bounds = delta2(1.0, self.lam, p.L, low, high), delta2_in_z(1.0, self.lam, p.L, low)
        return rows, ((away[0] / real, away[1] / real), *bounds)


@dataclass(frozen=True)
class LpProjTheorem1(Check):
    """The mean of ‖∇F‖² falls to a floor of the size of λ²δ², and personal models stay near w (Theorem 1)."""

    name: ClassVar[str] = "lp-proj-theorem1"
    paper: ClassVar[str] = PAPER
    d: int = 200
    d_sub: int = 2
    lam: float = 10.0
    eta: float = 0.1
    beta: float = 3.0
    clients: int = 5
    samples: int = 20
    rounds: int = 120
    replicas: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        positive(self.name, eta=self.eta, d_sub=self.d_sub)
        need(self.beta >= 1, f"Theorem 1 needs β >= 1; got {self.beta:g}.")
        least = max((10 * L_LOG**2 + 1) ** 0.5, 4 * L_LOG)
        need(self.lam > least, f"Theorem 1 needs λ ≥ max(√(10L² + 1), 4L) = {least:.4g}, here above; got {self.lam:g}.")
        need(50 * self.d_sub <= self.d, f"{self.name} needs d_sub small against d: 50 d_sub <= d = {self.d}.")
        need(self.samples >= 11 and self.rounds >= 40, f"{self.name} needs samples >= 11 and rounds >= 40.")
        need(self.clients >= 2 and self.replicas >= 2, f"{self.name} needs clients >= 2 and replicas >= 2.")

    @property
    def step(self) -> float:
        """β·η: with R = 1 a round is w ← w − βη ∇F(w)."""
        return self.beta * self.eta

    def look(self) -> Finding:
        p = LinearModels.draw(self.d, self.d_sub, self.clients, self.samples, "log", self.lam, self.seed)
        bent = smoothness(self.lam, p.L, p.edges[0])
        need(self.step * bent <= 1, f"{self.name} needs β·η·{bent:.3g} <= 1; got β·η = {self.step:g}.")
        rows, slopes, curves = self.exactly(p)
        noise, floors, told = [], [], []
        cases: list[tuple[int | None, float]] = [
            (1, EXACT),
            (2, EXACT),
            (4, EXACT),
            (10, EXACT),
            (None, 0.01),
            (2, 0.01),
        ]
        for i, (size, nu) in enumerate(cases, start=1):
            w, z = self.play(p, size, nu, self.replicas if size else 1)
            near = p.near(w)
            grads = self.lam * (w - near.mean(-2))  # ∇F [R, T, k]
            square = (grads**2).sum(-1)
            floor = self.mean(square[:, self.rounds // 2 :])
            d2 = delta2(1 / size + nu if size else nu, self.lam, p.L, *p.edges)
            which = f"{f'|D| = {size}' if size else 'all samples'}{f', ν = {nu:g}' if nu != EXACT else ''}"
            curves.append(Curve(which, np.arange(self.rounds), square.mean(0), colour=i))
            rows.append(Row(f"{which}: late ‖∇F‖² ≤ λ²δ²", self.lam**2 * d2, *floor, relation="<="))
            rows.append(Row(f"{which}: late ‖∇F‖² below the first", float(slopes[0]), *floor, relation="<="))
            apart = self.mean(((z - w[..., None, :]) ** 2).sum(-1).mean(-1))
            bound = self.near_w(float(square.mean()), d2)
            rows.append(Row(f"{which}: mean ‖Px_k − w‖² up to T", bound, *apart, relation="<="))
            if size and nu == EXACT:
                noise.append(float(((z - near)[:, self.rounds // 2 :] ** 2).sum(-1).mean()))
                floors.append(floor)
                told.append(self.lam**2 * d2)
        low = np.array([f[0] for f in floors])
        grow = float(np.polyfit(np.log(noise), np.log(low), 1)[0])
        rows.append(Row("power of E‖Px̃ − Px̂‖² in the floor", 1.0, grow, within=0.2))
        fall = float(slopes[-1] / slopes[0])
        verdict = (
            f"{holds(rows)}: with minibatches or ν the mean of ‖∇F‖² falls to a floor below λ²δ² (|D| = 1: "
            f"{told[0] / low[0]:.0f} times) that grows with E‖Px̃ − Px̂‖² to the power {grow:.2f}; with all samples and "
            f"exact steps it falls to {fall:.0e} of the first; personal models keep within the bound; {tally(rows)}."
        )
        limit = largest_eta(self.lam, self.beta)
        outside = [f"Theorem 1 asks for η ≤ η̂₀/(βR) = {limit:.2g}; got {self.eta:g}"] if self.eta > limit else []
        at = np.array(noise)
        panels = [
            Panel(f"Not convex, {self.d_sub} of {self.d} dimensions", "round", "mean of ‖∇F(w)‖²", curves, log="y"),
            Panel(
                "The floor",
                "E‖Px̃ − Px̂‖²",
                "late ‖∇F‖²",
                [
                    Curve("measured", at, low, [f[1] for f in floors], dots=True),
                    Curve("in proportion", at, low[0] * at / at[0], dashed=True, colour=6),
                    Curve("λ²δ²", at, told, colour=1),
                ],
                log="xy",
            ),
        ]
        return Finding(rows, panels, verdict, outside)

    def exactly(self, p: LinearModels) -> tuple[list[Row], np.ndarray, list[Curve]]:
        """All samples and exact steps: w is gradient descent on F. ‖∇F(w_t)‖² [T] by NumPy."""
        w = self.play(p, None, EXACT, 1)[0][0]
        grads = self.lam * (w - p.near(w).mean(-2))
        square = (grads**2).sum(-1)
        moves = -np.diff(w, axis=0) / self.step  # the library's ∇F
        far = square[:-2] > 1e-12  # what comes later is rounding
        steps, turns = (np.linalg.norm(np.diff(v, axis=0), axis=-1)[far] for v in (w[:-1], moves))
        bend = float((turns / steps).max())
        drop = p.F(w[0]) - p.F(w[-1])
        off = float(np.abs(moves - grads[:-1]).max())
        mean, bound = float(square[:-1].mean()), 2 * drop / (self.step * (len(w) - 1))
        rows = [
            Row("all samples: ∇F by NumPy and by Lp-Proj's step differ", 0.0, off, absolute=1e-7),
            Row("all samples: ‖∇F‖² in the last round", 0.0, float(square[-1]), absolute=1e-6),
            Row("all samples: mean ‖∇F‖² ≤ 2Δ_F/(βηT)", bound, mean, relation="<="),
            Row("largest curvature of F on the way ≤ L_F = λ", self.lam, bend, relation="<="),
            Row("the same, our bound in z", smoothness(self.lam, p.L, p.edges[0]), bend, relation="<="),
        ]
        return rows, square, [Curve("all samples", np.flatnonzero(far), square[:-2][far])]

    def play(self, p: LinearModels, size: int | None, nu: float, replicas: int) -> tuple[np.ndarray, np.ndarray]:
        """w_t [R, T, k], and Px_k [R, T, m, k] that were solved at it."""
        play = p.play(p.solver(size, nu), replicas, self.eta, self.beta)
        w, z = [], []
        for _ in range(self.rounds):
            w.append(play.globals_of().numpy())
            z.append(play.rounds(1).state("x").numpy() @ p.P.T)
        return np.stack(w, axis=1), np.stack(z, axis=1)

    def near_w(self, square: float, d2: float) -> float:
        """A bound of mean ‖Px_k − w‖²: 2δ² + 2/λ² mean ‖∇F_k‖², whose spread is at most 10L²/(λ² − 10L²) ‖∇F‖² + 2σ_F²
        (pFedMe's Lemma 2 with this paper's 10L²); slopes of at most 1 make σ_f² ≤ 1."""
        spread = 10 * L_LOG**2 / (self.lam**2 - 10 * L_LOG**2) * square + 2 * diversity_F(1.0, self.lam, L_LOG)
        return 2 * d2 + 2 / self.lam**2 * (square + spread)

    def mean(self, values: np.ndarray) -> tuple[float, float]:
        """Over rounds and federations [R, T]; one federation has no chance in it."""
        return estimate(values.mean(1)) if len(values) > 1 else (float(values.mean()), 0.0)
