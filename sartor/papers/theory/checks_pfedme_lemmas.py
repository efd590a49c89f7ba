"""pFedMe: how far an inexact θ is from the exact one (Lemma 1), how much the envelopes' gradients differ (Lemma 2), and
where ‖∇F‖² ends without convexity (Theorem 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...errors import need, positive
from ...methods import PFedMe
from ...seeds import stream
from ...solvers import Exact, Inexact, Solver
from . import pfedme
from .checks_pfedme import PAPER
from .federations import bowls
from .findings import Check, Curve, Finding, Panel, Row, holds, tally
from .replicas import Play, estimate

L_LOG = 2.0  # log(1 + t²): its slope 2t/(1 + t²) is at most 1, its curvature at most 2


def log_slope(t: np.ndarray) -> np.ndarray:
    """The slope of log(1 + t²)."""
    found: np.ndarray = 2 * t / (1 + t**2)
    return found


def log_prox(centres: np.ndarray, w: float | np.ndarray, lam: float) -> np.ndarray:
    """argmin of the mean of log(1 + (θ − c)²) over centres [..., n] and λ/2 (θ − w)², by bisection: its slope rises
    where λ > L."""
    low = np.broadcast_to(w - 1 / lam, centres.shape[:-1]).copy()  # slopes are within ±1
    high = np.broadcast_to(w + 1 / lam, centres.shape[:-1]).copy()
    for _ in range(80):
        middle = (low + high) / 2
        rises = log_slope(middle[..., None] - centres).mean(-1) + lam * (middle - w) > 0
        high, low = np.where(rises, middle, high), np.where(rises, low, middle)
    found: np.ndarray = (low + high) / 2
    return found


@dataclass(frozen=True)
class Lemmas(Check):
    """An inexact θ is within δ² of the exact one (Lemma 1), gradients of envelopes differ boundedly (Lemma 2)."""

    name: ClassVar[str] = "pfedme-lemmas"
    paper: ClassVar[str] = PAPER
    mu: float = 1.0
    lam: float = 8.0
    clients: int = 6
    samples: int = 12
    replicas: int = 400
    seed: int = 0

    def __post_init__(self) -> None:
        positive(self.name, mu=self.mu)
        need(self.lam > 8**0.5 * L_LOG, f"Lemma 2 (b) needs λ > 2√2 L = {8**0.5 * L_LOG:.4g}; got {self.lam:g}.")
        need(self.samples >= 8 and self.clients >= 2, "pfedme-lemmas needs samples >= 8 and clients >= 2.")
        need(self.replicas >= 2, "pfedme-lemmas needs replicas >= 2.")

    def look(self) -> Finding:
        rows = [*self.inexact("power"), *self.inexact("log"), *self.diversity_convex(), *self.diversity()]
        bounds = [(r.theory, r.measured) for r in rows if r.relation == "<="]
        x = np.arange(1, len(bounds) + 1)
        curves = [Curve("bound", x, [b for b, _ in bounds]), Curve("measured", x, [m for _, m in bounds], dots=True)]
        verdict = f"{holds(rows)}: every bound holds, and without ν the distance is our exact form; {tally(rows)}."
        return Finding(rows, [Panel("Lemmas 1 and 2", "row of the table", "bound and value", curves, log="y")], verdict)

    def centres(self) -> np.ndarray:
        """[clients, samples, 1]."""
        own = stream(self.seed, "pfedme lemmas").standard_normal((self.clients, 1, 1))
        return own + stream(self.seed, "pfedme lemma samples").standard_normal((self.clients, self.samples, 1))

    def inexact(self, shape: str) -> list[Row]:
        """Lemma 1: E‖θ̃ − θ̂‖² ≤ 2/(λ + μ)² (γ²/|D| + ν), or with λ − L without convexity. w = 0."""
        c, R = self.centres(), self.replicas
        many = np.broadcast_to(c, (R, *c.shape)).reshape(-1, *c.shape[1:])
        convex = shape == "power"
        steep = self.mu if convex else 1.0
        exact = self.mu * c.mean((1, 2)) / (self.lam + self.mu) if convex else log_prox(c[..., 0], 0.0, self.lam)
        variance = c[..., 0].var(1)
        gamma2 = self.mu**2 * float(variance.max()) if convex else 1.0
        margin = self.lam + self.mu if convex else self.lam - L_LOG
        lr = 0.3 / (self.lam + max(self.mu, L_LOG))
        rows = []
        for size in (1, 4):
            for nu in (1e-20, 0.05):
                task, data = bowls(many, np.full(len(many), steep), shape=shape)
                solver = Inexact(lr=lr, eps=nu, shrink=1.0, batch=size)
                play = Play(PFedMe(lam=self.lam, eta=0.1, R=1, solver=solver), task, data, R, seed=self.seed)
                away = (play.rounds(1).state("theta")[..., 0].numpy() - exact) ** 2
                bound = 2 / margin**2 * (gamma2 / size + nu)
                which = f"Lemma 1 ({'a' if convex else 'b'}), |D| = {size}, ν = {nu:g}"
                rows.append(Row(f"{which}: E‖θ̃ − θ̂‖² ≤ δ²", bound, *estimate(away.mean(1)), relation="<="))
                if convex and nu < 1e-10:
                    real = np.mean([pfedme.batch_variance(float(v), self.samples, size) for v in variance])
                    told = (self.mu / (self.lam + self.mu)) ** 2 * float(real)
                    rows.append(Row(f"{which}: our exact form", told, *estimate(away.mean(1))))
        return rows

    def gradients(self, w: float, centre: np.ndarray, steep: np.ndarray, solver: Solver, shape: str) -> np.ndarray:
        """∇F_i(w) [m], from the way that pFedMe's local models go in a round."""
        eta = 0.05
        task, data = bowls(centre[:, None], steep, shape=shape, start=w)
        play = Play(PFedMe(lam=self.lam, eta=eta, R=1, solver=solver), task, data).rounds(1)
        found: np.ndarray = (w - play.state("w")[0, :, 0].numpy()) / eta
        return found

    def diversity_convex(self) -> list[Row]:
        """Lemma 2 (a) on parabolas a_i/2 (θ − c_i)², whose envelopes are parabolas of curvature λa_i/(λ + a_i)."""
        draw = stream(self.seed, "pfedme diversity")
        c, a = 2 * draw.standard_normal(self.clients), self.mu * (1 + 4 * draw.random(self.clients))
        bend = np.array([pfedme.envelope_curvature(float(x), self.lam) for x in a])
        best = float((bend * c).sum() / bend.sum())

        def F(w: float) -> float:
            return float((bend * (w - c) ** 2).mean()) / 2

        at_best = float(((bend * (best - c)) ** 2).mean())
        rows = []
        for w in (best, best + 0.5, best - 2.0, best + 8.0):
            g = self.gradients(w, c, a, Exact(), "power")
            bound = 4 * pfedme.smoothness(self.lam) * (F(w) - F(best)) + 2 * at_best
            rows.append(Row(f"Lemma 2 (a) at w = {w:.3g}: mean ‖∇F_i − ∇F‖²", bound, float(g.var()), relation="<="))
        return rows

    def diversity(self) -> list[Row]:
        """Lemma 2 (b) on log(1 + (θ − c_i)²), with σ_f² the largest diversity of the f_i on a fine grid."""
        c = 2 * stream(self.seed, "pfedme log diversity").standard_normal(self.clients)
        grid = np.linspace(c.min() - 10, c.max() + 10, 20001)
        sigma2 = float(log_slope(grid[:, None] - c).var(1).max())
        room = self.lam**2 - 8 * L_LOG**2
        steps = Inexact(lr=1 / (self.lam + L_LOG), eps=1e-24)
        rows = []
        for w in (-4.0, -1.0, 0.0, 1.0, 4.0):
            g = self.gradients(w, c, np.ones(self.clients), steps, "log")
            exact = self.lam * (w - log_prox(c[:, None], w, self.lam))
            bound = 8 * L_LOG**2 / room * float(g.mean()) ** 2 + 2 * self.lam**2 / room * sigma2
            rows.append(Row(f"∇F by bisection at w = {w:g}", float(exact.mean()), float(g.mean()), absolute=1e-9))
            rows.append(Row(f"Lemma 2 (b) at w = {w:g}: mean ‖∇F_i − ∇F‖²", bound, float(g.var()), relation="<="))
        return rows


@dataclass(frozen=True)
class PFedMeTheorem2(Check):
    """Without convexity the mean of ‖∇F‖² falls to a floor of the size of λ²δ² (Theorem 2)."""

    name: ClassVar[str] = "pfedme-theorem2"
    paper: ClassVar[str] = PAPER
    lam: float = 8.0
    eta: float = 0.2
    clients: int = 5
    samples: int = 20
    rounds: int = 120
    replicas: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        positive(self.name, eta=self.eta)
        need(self.lam > 8**0.5 * L_LOG, f"Theorem 2 needs λ > 2√2 L = {8**0.5 * L_LOG:.4g}; got {self.lam:g}.")
        need(self.eta * self.lam < 2, f"{self.name} needs η·λ < 2; got {self.eta * self.lam:g}.")
        need(self.samples >= 11 and self.rounds >= 20, f"{self.name} needs samples >= 11 and rounds >= 20.")
        need(self.replicas >= 2, f"{self.name} needs replicas >= 2.")

    def look(self) -> Finding:
        own = 2 * stream(self.seed, "pfedme theorem 2").standard_normal((self.clients, 1))
        c = own + stream(self.seed, "pfedme theorem 2 samples").standard_normal((self.clients, self.samples))
        rows, curves, noise, floors = [], [], [], []
        for i, size in enumerate((1, 2, 4, 10, self.samples)):
            slopes, spread = self.play(c, size)  # ‖∇F(w_t)‖² [R, T], and E‖θ̃ − θ̂‖² at the end
            mean = slopes.mean(0)
            half = self.rounds // 2
            floor = estimate(slopes[:, half:].mean(1))
            delta2 = 2 / (self.lam - L_LOG) ** 2 / size
            curves.append(Curve(f"|D| = {size}", np.arange(1, self.rounds + 1), mean, colour=i))
            if size == self.samples:
                rows.append(Row("all samples: ‖∇F‖² in the last round", 0.0, float(mean[-1]), absolute=1e-6))
                continue
            rows.append(Row(f"|D| = {size}: late ‖∇F‖² ≤ λ²δ²", self.lam**2 * delta2, *floor, relation="<="))
            rows.append(Row(f"|D| = {size}: late ‖∇F‖² below the first", float(mean[0]), *floor, relation="<="))
            noise.append(spread)
            floors.append(floor[0])
        grow = float(np.polyfit(np.log(noise), np.log(floors), 1)[0])
        rows.append(Row("power of E‖θ̃ − θ̂‖² in the floor", 1.0, grow, within=0.2))
        verdict = (
            f"{holds(rows)}: with minibatches ‖∇F‖² falls to a floor below λ²δ² that grows with E‖θ̃ − θ̂‖² to the power "
            f"{grow:.2f}; with all samples it falls to nothing; {tally(rows)}."
        )
        return Finding(rows, [Panel("Not convex", "round", "mean of ‖∇F(w)‖²", curves, log="y")], verdict)

    def play(self, c: np.ndarray, size: int) -> tuple[np.ndarray, float]:
        """‖∇F(w_t)‖² after each round, F's gradient by bisection; and the real E‖θ̃ − θ̂‖² in the last round."""
        R = self.replicas
        many = np.broadcast_to(c[..., None], (R, *c.shape, 1)).reshape(-1, self.samples, 1)
        task, data = bowls(many, np.ones(len(many)), shape="log", start=3.0)
        solver = Inexact(lr=1 / (self.lam + L_LOG), eps=1e-18, shrink=1.0, batch=size)
        play = Play(PFedMe(lam=self.lam, eta=self.eta, R=1, solver=solver), task, data, R, seed=self.seed)
        found = []
        for _ in range(self.rounds):
            before = play.globals_of()[:, 0].numpy()
            play.rounds(1)
            w = play.globals_of()[:, 0].numpy()
            found.append(self.slope(c, w) ** 2)
        near = log_prox(np.broadcast_to(c, (R, *c.shape)), before[:, None], self.lam)
        spread = float(((play.state("theta")[..., 0].numpy() - near) ** 2).mean())
        return np.stack(found, axis=1), spread

    def slope(self, c: np.ndarray, w: np.ndarray) -> np.ndarray:
        """∇F(w) [R] = λ (w − mean θ̂_i(w))."""
        near = log_prox(np.broadcast_to(c, (len(w), *c.shape)), w[:, None], self.lam)
        found: np.ndarray = self.lam * (w - near.mean(1))
        return found
