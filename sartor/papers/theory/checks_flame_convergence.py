"""FLAME's convergence: Theorem 1's conditions, the Lagrangian's descent, and the rates of Theorems 3 and 4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from ...core import Task
from ...data.clients import Clients
from ...errors import need, positive
from ...methods import FLAME
from ...methods.parts.flame_facts import flame_theorem1
from ...seeds import stream
from ...solvers import Exact, Inexact, Solver
from . import flame
from . import flame_convergence as theory
from .federations import bowls, least_squares
from .findings import Check, Curve, Finding, Panel, Row, holds, tally
from .rates import factor, power
from .replicas import Play

PAPER = "FLAME"
_EVERY = 3  # rounds between two looks at a curve


def lagrangian(play: Play) -> np.ndarray:
    """L (10) of every federation [R], as the library's FLAME reports it."""
    found: np.ndarray = play.facts()["lagrangian"].mean(1)
    return found


def rises(values: np.ndarray) -> np.ndarray:
    """[T + 1, R] → [R] in how many rounds L rises, beyond the rounding of its values."""
    slack = 1e-12 * np.maximum(1.0, np.abs(values[:-1]))
    found: np.ndarray = (np.diff(values, axis=0) > slack).sum(0)
    return found


def descent(
    method: FLAME, made: tuple[Task, Clients], rounds: int, replicas: int = 1, cohort: int | None = None
) -> np.ndarray:
    """[T + 1, R] L before the first round and after each."""
    play = Play(method, *made, replicas, cohort=cohort)
    return np.stack([lagrangian(play), *(lagrangian(play.rounds(1)) for _ in range(rounds))])


def random_quadratics(seed: int, replicas: int, m: int = 5, d: int = 3) -> tuple[Task, Clients]:
    """Least squares of any shape, some of them flat in a direction."""
    draw = stream(seed, "random quadratics")
    X = draw.normal(0, 1, (replicas * m, 6, d)) * draw.uniform(0, 2, (replicas * m, 1, d))
    return least_squares(X, 3 * draw.normal(0, 1, (replicas * m, 6)))


@dataclass(frozen=True)
class Theorem1(Check):
    """For which λα, ρ and Lα the three conditions of FLAME's Theorem 1 hold together."""

    name: ClassVar[str] = "flame-theorem1"
    paper: ClassVar[str] = PAPER
    m: int = 100
    L: float = 1.0
    points: int = 400
    rounds: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        positive("flame-theorem1", m=self.m, L=self.L)
        need(self.points >= 50 and self.rounds >= 2, "flame-theorem1 needs points >= 50 and rounds >= 2.")

    def look(self) -> Finding:
        t = np.linspace(1e-3, 0.5, 200_001)
        allowed = np.asarray(theory.largest_L_alpha(t))
        best = int(allowed.argmax())
        top, rho = float(allowed[best]), float(theory.smallest_rho(t[best]))
        last = float(t[allowed > 0][-1])
        rows = [
            Row("largest Lα by search of all λα, ρ", top, self.search(), within=0.02),
            Row("smallest ρ/(λα) where they hold for some Lα > 0", theory.RATIO, 1 / last, within=1e-4),
        ]
        for where, x, r in (
            ("Table III (λ = 1, m = 10, ρ = 0.1)", 0.1, 0.1),
            ("the robustness runs (λ = 1, m = 50, ρ = 0.02)", 0.02, 0.02),
        ):
            rows.append(Row(f"conditions that hold at {where} for Lα = 0", 3.0, self.count(x, r, 0.0), erratum=True))
        La = self.L / self.m
        x = float(t[best]) * rho
        said = f"with L = {self.L:g} and m = {self.m}, Lα = {La:.3g} is "
        if top > La:
            rows.append(
                Row(f"conditions that hold at ρ = {rho:.3g}, λα = {x:.3g}, Lα = {La:.3g}", 3.0, self.count(x, rho, La))
            )
            rows.append(Row("rounds in which L rises there", 0.0, self.rising(x, rho)))
            said += f"small enough, at λ = {x * self.m:.3g} and ρ = {rho:.3g} for instance, and there L does decrease"
            outside = []
        else:
            said += f"too large for any λ and ρ; it would take m ≥ {int(np.ceil(self.L / top))} clients"
            outside = [f"Lα ≤ {top:.4f} is needed; got {La:.4g}"]
        verdict = (
            f"True but nearly empty: the conditions have no common point beyond Lα = {top:.4f} (reached at ρ = "
            f"{rho:.3g}, "
            f"λα = {x:.3g}), none of the paper's own settings satisfies them, and {said}. Every common point has "
            f"ρ > {theory.RATIO:.4f} λα, which alone makes L decrease for convex losses (see lyapunov); "
            f"{tally(rows)}."
        )
        keep = allowed > -0.01
        curve = [Curve("largest Lα", t[keep], allowed[keep]), Curve("zero", [0, 0.45], [0, 0], colour=6, dashed=True)]
        marks = [(float(t[best]), f"Lα = {top:.4f}"), (1 / theory.RATIO, "1/2.5616")]
        return Finding(rows, [Panel("Largest Lα that Theorem 1 allows", "λα/ρ", "Lα", curve, marks)], verdict, outside)

    def search(self) -> float:
        """The largest Lα on a grid of (λα, ρ) for which the library's own test of C1 to C3 says yes, by bisection."""
        grid = np.linspace(0, 0.5, self.points + 1)[1:]  # beyond, C1 and C3 exclude each other
        r, t = map(torch.from_numpy, map(np.ravel, np.meshgrid(grid, grid)))
        x = t * r
        low, high = 0.0, 1.0
        for _ in range(24):
            middle = (low + high) / 2
            holding = flame_theorem1(x, r, torch.full_like(x, middle)).all(1).any()  # type: ignore[arg-type]
            low, high = (middle, high) if bool(holding) else (low, middle)
        return low

    def count(self, x: float, rho: float, L_alpha: float) -> float:
        return float(flame_theorem1(x, rho, torch.tensor([L_alpha], dtype=torch.float64)).sum())

    def rising(self, x: float, rho: float) -> float:
        """In how many rounds L rises on parabolas with curvature at most L, at this λα and ρ."""
        draw = stream(self.seed, "theorem 1")
        made = bowls(draw.normal(0, 1, (self.m, 2)), draw.uniform(0, self.L, self.m))
        method = FLAME(lam=x * self.m, rho=rho, anchor="local", solver=Exact())
        return float(rises(descent(method, made, self.rounds))[0])


@dataclass(frozen=True)
class Lyapunov(Check):
    """From which ρ on FLAME's Lagrangian cannot increase: ρ ≥ 2.5616 λα for convex losses and exact steps."""

    name: ClassVar[str] = "lyapunov"
    paper: ClassVar[str] = PAPER
    lam: float = 1.0
    problems: int = 20
    rounds: int = 30
    seed: int = 0

    def __post_init__(self) -> None:
        positive("lyapunov", lam=self.lam, problems=self.problems)
        need(self.rounds >= 2, f"lyapunov needs at least 2 rounds; got {self.rounds}.")

    def look(self) -> Finding:
        ratios = [0.3, 0.6, 1.0, 1.5, 2.0, 2.3, 2.5, 2.54, 2.58, 2.7, 3.0, 4.0]
        worst = {r: self.worst(r) for r in ratios if r > 1}  # up to ρ = λα there is no worst: L can rise at will
        rows = [
            Row(f"worst state: rise of L in a round at ρ = {r:g} λα", *pair, within=1e-3, absolute=1e-4)
            for r, pair in worst.items()
        ]
        crossing = _crossing(list(worst), [v[1] for v in worst.values()])
        rows.append(Row("worst state: ρ/(λα) where the rise ends", theory.RATIO, crossing, within=0.02))
        shares: dict[str, list[float]] = {}
        for who, cohort in (("everybody", 1.0), ("40% of clients", 0.4)):
            shares[who] = [self.share(r, cohort) for r in ratios]
            for r, share in zip(ratios, shares[who], strict=True):
                if r >= theory.RATIO:
                    rows.append(Row(f"{who}: share of random convex runs in which L rises at ρ = {r:g} λα", 0.0, share))
            low = shares[who][0]
            rows.append(Row(f"{who}: the same at ρ = {ratios[0]:g} λα", 0.0, low, relation=">=", note="some do"))
        L, lam = 2.0, 3.0  # log(1 + t²) has curvature between −1/4 and 2
        enough = theory.enough_rho(1.0, L, lam)
        rows.append(
            Row(f"log(1 + t²), λ = 1.5 L: share that rises at ρ = {enough:.3g} λα", 0.0, self.nonconvex(lam, enough))
        )
        lines = []
        for place, r in enumerate((0.3, 1.0, 2.6)):
            values = descent(self.method(r), random_quadratics(self.seed, 1), self.rounds)[:, 0]
            lines.append(Curve(f"ρ = {r:g} λα", np.arange(len(values)), values, colour=place))
        panels = [
            Panel(
                "One round from the worst state",
                "ρ/(λα)",
                "rise of L / (λα‖Δθ‖²)",
                [
                    Curve("theory", list(worst), [v[0] for v in worst.values()]),
                    Curve("measured", list(worst), [v[1] for v in worst.values()], dots=True),
                    Curve("zero", [min(worst), max(worst)], [0, 0], colour=6, dashed=True),
                ],
                [(theory.RATIO, "2.5616")],
            ),
            Panel(
                "Random convex runs from the ordinary start",
                "ρ/(λα)",
                "share of runs in which L rises",
                [Curve(who, ratios, v, dots=True, colour=i) for i, (who, v) in enumerate(shares.items())],
                [(theory.RATIO, "2.5616")],
            ),
            Panel("L over the rounds of one run", "round", "L", lines),
        ]
        quiet = max((r for r, s in zip(ratios, shares["everybody"], strict=True) if s > 0), default=0.0)
        verdict = (
            f"{holds(rows)}: with exact steps and convex losses L never rises for ρ ≥ 2.5616 λα, with "
            f"everybody or only "
            f"some taking part, and the number is sharp: from the worst state L rises up to ρ = {crossing:.3f} "
            f"λα. From the "
            f"ordinary start, random runs rise up to ρ = {quiet:g} λα only; {tally(rows)}."
        )
        return Finding(rows, panels, verdict)

    def worst(self, r: float) -> tuple[float, float]:
        """(theory, measured) rise of L for λα = 1, Δθ = 1: two clients with opposite, almost linear losses.

        Client i's state is θ = 0 and w_i such that Δw_i is the worst for its Δθ; w = 0 stays.
        """
        x = self.lam / 2
        rho = r * x
        b = theory.worst_direction(x, rho)
        sides, far = np.array([[1.0], [-1.0]]), 1e5  # a parabola is almost linear so far from its centre
        w_i = (x - b * (x + rho)) / rho  # from (12): b(x + ρ) = x·1 − ρw_i
        slope = self.lam * (w_i - 1.0)  # from (11): θ' = w_i − slope/λ = 1
        task, data = bowls(-np.sign(slope) * far * sides, np.full(2, abs(slope) / far))
        play = Play(FLAME(lam=self.lam, rho=rho, anchor="local", solver=Exact()), task, data)
        state = play.engine.save()
        start = {"theta": np.zeros((2, 1)), "w": sides * w_i}
        play.engine.restore({"visits": state["visits"]} | {f"state/{k}": torch.from_numpy(v) for k, v in start.items()})
        before = lagrangian(play)[0]
        after = lagrangian(play.rounds(1))[0]
        return 2 * theory.increase(x, rho, 1.0, b) / x, float(after - before) / x

    def method(self, r: float) -> FLAME:
        return FLAME(lam=self.lam, rho=r * self.lam / 5, anchor="local", solver=Exact())

    def share(self, r: float, cohort: float) -> float:
        """The share of random problems in which L rises in some round; `cohort` is the share of clients asked."""
        R = self.problems
        made = random_quadratics(self.seed, R)
        values = descent(self.method(r), made, self.rounds, R, max(1, round(cohort * len(made[1]))))
        return float((rises(values) > 0).mean())

    def nonconvex(self, lam: float, r: float) -> float:
        centre = 4 * stream(self.seed, "log bowls").standard_normal((4 * self.problems, 2))
        made = bowls(centre, np.ones(len(centre)), shape="log", start=1.0)
        solver = Inexact(lr=1.6 / (lam + 2), eps=1e-20, shrink=0.999)
        method = FLAME(lam=lam, rho=r * lam / 4, anchor="local", solver=solver)
        values = descent(method, made, self.rounds, self.problems)
        return float((rises(values) > 0).mean())


def _crossing(x: list[float], y: list[float]) -> float:
    """Where y falls through 0 for the last time, by a line between neighbours."""
    for i in range(len(x) - 1, 0, -1):
        if y[i - 1] > 0 >= y[i]:
            return x[i - 1] + (x[i] - x[i - 1]) * y[i - 1] / (y[i - 1] - y[i])
    return float("nan")


@dataclass(frozen=True)
class FlameRate(Check):
    """How fast FLAME converges: linearly on parabolas, as t^−p/(p−2) on |t|^p, and Theorem 3's 1/T in general."""

    name: ClassVar[str] = "flame-rate"
    paper: ClassVar[str] = PAPER
    lam: float = 2.0
    ratio: float = 3.0  # ρ/(λα)
    rounds: int = 250
    seed: int = 0

    def __post_init__(self) -> None:
        positive("flame-rate", lam=self.lam, ratio=self.ratio)
        need(self.rounds >= 60, f"flame-rate needs at least 60 rounds; got {self.rounds}.")

    def look(self) -> Finding:
        m, t = 4, np.arange(_EVERY, self.rounds + 1, _EVERY)
        rows: list[Row] = []
        steep = np.array([0.5, 1.0, 2.0])
        centre = stream(self.seed, "flame rate").standard_normal((len(steep), m, 3))
        made = bowls(centre.reshape(-1, 3), np.repeat(steep, m))
        values, slopes = self.trace(made, Exact(), len(steep))
        linear = []
        for place, (b, c) in enumerate(zip(steep, centre, strict=True)):
            w, theta = flame.solution_scaled(np.full(m, b), c, self.lam)
            least = (b / 2 * ((theta - c) ** 2).sum(1) + self.lam / 2 * ((theta - w) ** 2).sum(1)).mean()
            gap = np.abs(values[:, place] - least)
            told = theory.rate(float(b), self.lam, 1 / m, self.ratio * self.lam / m) ** 2
            got = factor(gap, 1e-13) ** (1 / _EVERY)
            rows.append(Row(f"parabolas, b = {b:g}: factor of L − L* per round", told, got, within=0.02))
            keep = gap > 1e-13
            linear.append(Curve(f"b = {b:g}", t[keep], gap[keep], colour=place))
        panels = [Panel("Parabolas (τ = 1/2): linear", "round", "|L − L*|", linear, log="y")]
        means = {"strongly convex": slopes[:, 0]}
        flat = []
        for place, p in enumerate((4.0, 6.0)):
            solver = Inexact(lr=1.8 / (self.lam + 1.4 * (p - 1)), eps=1e-14, shrink=0.995)
            made = bowls(np.zeros((m, 1)), np.array([0.6, 0.8, 1.2, 1.4]), p=p, start=1.0)
            gap, slopes = (v[:, 0] for v in self.trace(made, solver))
            means |= {"convex, |t|⁴": slopes} if p == 4 else {}
            told = theory.power_of_theorem4(p)
            what = f"|t|^{p:g} (τ = {theory.kl_exponent(p):.3g}): power of L − L*"
            rows.append(Row(what, told, power(gap, t), within=0.1))
            flat += [
                Curve(f"|t|^{p:g}", t, gap, colour=place),
                Curve(f"t^-{told:.3g}", t, gap[-1] * (t / t[-1]) ** -told, colour=place, dashed=True),
            ]
        panels.append(Panel("Flat bowls (τ > 1/2): Theorem 4 c)", "round", "L − L*", flat, log="xy"))
        centre = 3 * stream(self.seed, "flame log").standard_normal((m, 2))
        solver = Inexact(lr=1.6 / (self.lam + 2), eps=1e-14, shrink=0.98)
        made = bowls(centre, np.ones(m), shape="log", start=0.5)
        means["not convex, log(1 + t²)"] = self.trace(made, solver)[1][:, 0]
        stationary = []
        for place, (case, each) in enumerate(means.items()):
            mean = _EVERY * np.cumsum(each) / t
            fall = power(each, t, 1e-12)  # more than 1: the sum stays bounded, and the mean up to T falls as 1/T
            rows.append(Row(f"{case}: power of ‖∇L‖², more than 1", 1.0, fall, relation=">="))
            stationary.append(Curve(case, t, mean, colour=place))
        stationary.append(Curve("1/T", t, stationary[0].y[-1] * t[-1] / t, colour=6, dashed=True))
        panels.append(Panel("Theorem 3: mean of ‖∇L‖² up to T", "T", "running mean", stationary, log="xy"))
        p4, p6 = (next(r for r in rows if f"|t|^{p}" in r.what) for p in (4, 6))
        verdict = (
            f"{holds(rows)}: linear on parabolas with the factor that the iteration's matrix has, "
            f"t^-{p4.measured:.2f} "
            f"on |t|⁴ (Theorem 4: {p4.theory:.3g}) and t^-{p6.measured:.2f} on |t|⁶ ({p6.theory:.3g}), so the "
            f"exponent "
            "1/(2τ − 1) is attained; the mean of ‖∇L‖² up to T falls as 1/T, also without convexity; "
            f"{tally(rows)}."
        )
        outside = [
            f"its conditions C1 to C3 do not hold here (Lα ≤ 0.0146 is needed, see flame-theorem1); ρ = "
            f"{self.ratio:g} λα"
        ]
        return Finding(rows, panels, verdict, outside)

    def trace(self, made: tuple[Task, Clients], solver: Solver, replicas: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """[T, R] L and ‖∇L‖² after every third round."""
        rho = self.ratio * self.lam * replicas / len(made[1])
        play = Play(FLAME(lam=self.lam, rho=rho, anchor="local", solver=solver), *made, replicas)
        values, slopes = [], []
        for _ in range(self.rounds // _EVERY):
            facts = play.rounds(_EVERY).facts()
            values.append(facts["lagrangian"].mean(1))
            slopes.append(self.stationarity(play, facts, rho))
        return np.stack(values), np.stack(slopes)

    def stationarity(self, play: Play, facts: dict[str, np.ndarray], rho: float) -> np.ndarray:
        """[R] ‖∇L‖² over θ_i, w_i, π_i and w; with Lemma 3 the slope in w_i is ρ(w_i − w)."""
        apart = facts["primal_residual"]  # ‖w_i − w‖
        inner = facts["prox_residual"] / play.m  # α‖∇f + λ(θ − w_i)‖
        w_i, w = play.state("w").numpy(), play.globals_of().numpy()[:, None]
        of_w = ((facts["dual_mean"] + rho * (w_i - w)).sum(1) ** 2).sum(1)
        found: np.ndarray = (inner**2).sum(1) + ((1 + rho**2) * apart**2).sum(1) + of_w
        return found
