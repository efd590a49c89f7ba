"""pFedMe: the Moreau envelope's curvature (Proposition 1), the linear rate, and the floor that grows with δ²."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...errors import need, positive
from ...methods import PFedMe
from ...seeds import stream
from ...solvers import SGD, Exact, Inexact, Solver
from . import pfedme
from .federations import bowls, least_squares
from .findings import Check, Curve, Finding, Panel, Row, holds, tally
from .rates import factor, power
from .replicas import Play, estimate

PAPER = "Dinh et al. 2020 (pFedMe)"


@dataclass(frozen=True)
class Envelope(Check):
    """The Moreau envelope is λ-smooth, and μ-strong convexity becomes λμ/(λ + μ), measured from pFedMe's messages."""

    name: ClassVar[str] = "pfedme-envelope"
    paper: ClassVar[str] = PAPER
    lam: float = 5.0
    low: float = 0.05
    high: float = 500.0
    points: int = 9

    def __post_init__(self) -> None:
        positive("pfedme-envelope", lam=self.lam, low=self.low)
        need(self.high > self.low and self.points >= 2, "pfedme-envelope needs high > low and points >= 2.")

    def gradients(self, w: float, centre: np.ndarray, steep: np.ndarray, solver: Solver, shape: str) -> np.ndarray:
        """∇F_i(w) [m] from one round: client i goes from w to w − η∇F_i(w)."""
        eta = 0.1
        task, data = bowls(centre[:, None], steep, shape=shape, start=w)
        play = Play(PFedMe(lam=self.lam, eta=eta, R=1, solver=solver), task, data).rounds(1)
        found: np.ndarray = (w - play.state("w")[0, :, 0].numpy()) / eta
        return found

    def look(self) -> Finding:
        a = np.geomspace(self.low, self.high, self.points)
        zero = np.zeros(self.points)
        curvature = self.gradients(1.0, zero, a, Exact(), "power") - self.gradients(0.0, zero, a, Exact(), "power")
        told = [pfedme.envelope_curvature(float(x), self.lam) for x in a]
        rows = [
            Row(f"curvature of F for f of curvature {x:.3g}", t, float(c))
            for x, t, c in zip(a, told, curvature, strict=True)
        ]
        rows.append(
            Row("strong convexity μ_F = λμ/(λ + μ)", pfedme.strong_convexity(self.low, self.lam), curvature.min())
        )
        rows.append(Row("smoothness L_F = λ", pfedme.smoothness(self.lam), curvature.max(), relation="<="))
        outside = []
        if self.lam >= 4.0:  # log(1 + t²): L = 2, least curvature −1/4 at t = √3
            steps = Inexact(lr=1 / (self.lam + 2), eps=1e-24)
            theta = np.linspace(0, 4, 9)
            slope, bend = 2 * theta / (1 + theta**2), 2 * (1 - theta**2) / (1 + theta**2) ** 2
            w, h = theta + slope / self.lam, 1e-4  # θ̂(w) = θ; clients are shifted so that one w serves all
            ahead = self.gradients(h, -w, np.ones(9), steps, "log") - self.gradients(-h, -w, np.ones(9), steps, "log")
            for x, c, found in zip(theta, bend, ahead / (2 * h), strict=True):
                expected = pfedme.envelope_curvature(float(c), self.lam)
                rows.append(
                    Row(f"log(1 + t²) at θ = {x:g}: curvature of F", expected, float(found), within=1e-3, absolute=1e-3)
                )
        else:
            outside = [f"λ ≥ 2L = 4 for log(1 + t²); got λ = {self.lam:g}, so that part is left out"]
        fine = np.geomspace(self.low, self.high, 200)
        curves = [
            Curve("λa/(λ + a)", fine, [pfedme.envelope_curvature(float(x), self.lam) for x in fine]),
            Curve("measured", a, curvature, dots=True),
            Curve("λ", fine, np.full(200, self.lam), colour=6, dashed=True),
        ]
        verdict = (
            f"{holds(rows)}: F has curvature λa/(λ + a) where f has a, so μ_F = λμ/(λ + μ) is attained and L_F "
            f"= λ is an upper "
            f"bound that is approached ({curvature.max():.4g} of {self.lam:g}); {tally(rows)}."
        )
        return Finding(
            rows,
            [Panel("Curvature of the envelope", "curvature a of f", "curvature of F", curves, log="xy")],
            verdict,
            outside,
        )


@dataclass(frozen=True)
class PFedMeRate(Check):
    """pFedMe converges linearly to a neighbourhood whose size is proportional to δ² (Theorem 1)."""

    name: ClassVar[str] = "pfedme-rate"
    paper: ClassVar[str] = PAPER
    N: int = 5
    d: int = 2
    mu: float = 1.0
    lam: float = 5.0
    eta: float = 0.3
    samples: int = 20
    rounds: int = 40
    replicas: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        positive("pfedme-rate", N=self.N, d=self.d, mu=self.mu, lam=self.lam, eta=self.eta)
        need(self.samples >= 10, f"pfedme-rate needs at least 10 samples a client; got {self.samples}.")
        need(self.rounds >= 10 and self.replicas >= 2, "pfedme-rate needs rounds >= 10 and replicas >= 2.")
        need(
            self.eta * pfedme.strong_convexity(self.mu, self.lam) < 2,
            f"pfedme-rate needs η·μ_F < 2 to converge; got η = {self.eta:g}.",
        )

    def look(self) -> Finding:
        rows: list[Row] = []
        gaps, told = self.linear()
        rows.append(Row("least squares, exact steps: factor of F − F* per round", told, factor(gaps), within=0.02))
        slopes = self.nonconvex()
        mean = np.cumsum(slopes) / np.arange(1, len(slopes) + 1)
        fall = power(slopes, floor=1e-14)  # more than 1: the mean up to T falls as 1/T
        rows.append(Row("log(1 + t²), exact steps: power of ‖∇F‖², more than 1", 1.0, fall, relation=">="))
        sizes = [b for b in (1, 2, 4, 7, 10) if b < self.samples]
        centre = stream(self.seed, "pfedme rate").standard_normal((self.N, 1, self.d)) + stream(
            self.seed, "pfedme samples"
        ).standard_normal((self.N, self.samples, self.d))
        deltas, floors = [], []
        for size in sizes:
            noise = np.mean([pfedme.batch_variance(float(x.var(0).sum()), self.samples, size) for x in centre])
            real = (self.mu / (self.lam + self.mu)) ** 2 * float(noise)  # E‖θ̃ − θ̂‖²
            floor = pfedme.floor(self.mu, self.lam, self.eta, self.N, real)
            gamma2 = self.mu**2 * max(float(x.var(0).sum()) for x in centre)
            delta2 = pfedme.delta2(gamma2, size, 0.0, self.lam, self.mu)
            found = self.floor(centre, size)
            rows.append(Row(f"floor of F − F* with |D| = {size}", floor, *found))
            bound = pfedme.neighbourhood(self.lam, delta2, self.mu)
            rows.append(Row(f"the same against λ²δ²/μ_F, δ² = {delta2:.3g}", bound, *found, relation="<="))
            deltas.append(real)
            floors.append(found)
        values = np.array(floors)
        grow = float(np.polyfit(np.log(deltas), np.log(values[:, 0]), 1)[0])
        rows.append(Row("power of δ² in the floor", 1.0, grow, within=0.1))
        fine = np.geomspace(min(deltas), max(deltas), 50)
        t = np.arange(1, len(gaps) + 1)
        keep = gaps > 1e-24
        panels = [
            Panel("Exact steps: linear", "round", "F − F*", [Curve("measured", t[keep], gaps[keep])], log="y"),
            Panel(
                "Minibatches: the floor",
                "E‖θ̃ − θ̂‖²",
                "F − F* at the end",
                [
                    Curve("theory", fine, [pfedme.floor(self.mu, self.lam, self.eta, self.N, float(v)) for v in fine]),
                    Curve("measured", deltas, values[:, 0], values[:, 1], dots=True),
                ],
                log="xy",
            ),
            Panel(
                "Not convex: mean of ‖∇F‖² up to T",
                "T",
                "running mean",
                [Curve("log(1 + t²)", np.arange(1, len(mean) + 1), mean)],
                log="xy",
            ),
        ]
        limit = pfedme.largest_eta(self.mu, self.lam)
        outside = [f"Theorem 1 asks for η ≤ η̂₁/(βR) = {limit:.2g}; got {self.eta:g}"] if self.eta > limit else []
        verdict = (
            f"{holds(rows)}: linear with factor {factor(gaps):.4f} per round down to rounding with exact "
            f"steps; with minibatches "
            f"down to a floor proportional to δ² (power {grow:.3f}), equal to our exact form and "
            f"{pfedme.neighbourhood(self.lam, delta2, self.mu) / values[-1, 0]:.0f} times below λ²δ²/μ_F; "
            f"{tally(rows)}."
        )
        return Finding(rows, panels, verdict, outside)

    def linear(self) -> tuple[np.ndarray, float]:
        """F − F* on least squares after each round, and the square of the largest |1 − η·curvature|."""
        draw = stream(self.seed, "pfedme quadratics")
        X, y = draw.normal(0, 1, (self.N, 8, 3)), draw.normal(0, 1, (self.N, 8))
        A = X.transpose(0, 2, 1) @ X / 8
        b = np.einsum("ijk,ij->ik", X, y) / 8
        inverse = np.linalg.inv(A + self.lam * np.eye(3))
        H = self.lam * np.einsum("ijk,ikl->jl", inverse, A) / self.N
        w_star = np.linalg.solve(H, self.lam * np.einsum("ijk,ik->j", inverse, b) / self.N)
        play = Play(PFedMe(lam=self.lam, eta=self.eta, R=1, solver=Exact()), *least_squares(X, y))
        gaps = []
        for _ in range(3 * self.rounds):
            away = play.rounds(1).globals_of()[0].numpy() - w_star
            gaps.append(float(away @ H @ away) / 2)
        return np.array(gaps), max(pfedme.contraction(float(h), self.eta) ** 2 for h in np.linalg.eigvalsh(H))

    def floor(self, centre: np.ndarray, batch: int) -> tuple[float, float]:
        """F − F* in the last quarter of the rounds, over independent federations with the same data."""
        R = self.replicas
        many = np.broadcast_to(centre, (R, *centre.shape)).reshape(-1, *centre.shape[1:])
        task, data = bowls(many, np.full(len(many), self.mu))
        solver = SGD(lr=1 / (self.lam + self.mu), steps=1, batch=batch)  # lands on the minibatch's own minimum
        play = Play(PFedMe(lam=self.lam, eta=self.eta, R=1, solver=solver), task, data, R, seed=self.seed)
        play.rounds(self.rounds)
        w_star, found = centre.mean((0, 1)), []
        for _ in range(self.rounds // 4):
            away = play.rounds(1).globals_of().numpy() - w_star
            found.append(pfedme.strong_convexity(self.mu, self.lam) / 2 * (away**2).sum(1))
        return estimate(np.mean(found, axis=0))

    def nonconvex(self) -> np.ndarray:
        """‖∇F(w)‖² after each round on log bowls, with steps solved to the end."""
        centre = 3 * stream(self.seed, "pfedme log").standard_normal((self.N, 2))
        task, data = bowls(centre, np.ones(self.N), shape="log", start=0.5)
        solver = Inexact(lr=1.6 / (self.lam + 2), eps=1e-18, shrink=0.99)
        play = Play(PFedMe(lam=self.lam, eta=self.eta, R=1, solver=solver), task, data)
        found, before = [], np.full(2, 0.5)
        for _ in range(3 * self.rounds):
            after = play.rounds(1).globals_of()[0].numpy()
            found.append(float(((before - after) ** 2).sum()) / self.eta**2)
            before = after
        return np.array(found)
