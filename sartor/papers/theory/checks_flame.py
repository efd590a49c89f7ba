"""FLAME on linear regression: its solutions and their distribution, and its losses under attack."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...core import Task
from ...data.clients import Clients
from ...methods import FLAME
from ...seeds import stream
from ...solvers import Exact
from . import flame, flame_attacks, one_round
from .federations import least_squares, regression
from .findings import Finding, RandomProblems, Row, holds, scatter, tally
from .one_round import attack_of, random_regression
from .replicas import Play, estimate

PAPER = "FLAME"


@dataclass(frozen=True)
class Solutions(RandomProblems):
    """FLAME's solutions (135) to (137), their distribution (138) and their test losses (143), (144)."""

    name: ClassVar[str] = "flame-solution"
    paper: ClassVar[str] = PAPER
    replicas: int = 300

    def look(self) -> Finding:
        rows: list[Row] = []
        for seed in self.seeds():
            rows += solutions(seed) + distribution(seed, self.replicas)
        of_135, of_144 = ([r for r in rows if r.erratum and eq in r.what] for eq in ("(135)", "(144)"))
        verdict = (
            f"{holds(rows)}: (135) without the second λ, (136) to (138), (143), and (144) with (b + λ)²: "
            f"{tally(rows)}. "
            f"As printed, (144) with b + λ² disagrees in {_wrong(of_144)}, e.g. {of_144[0].theory:.4g} where "
            f"{of_144[0].measured:.4g} is measured, and (135) in {_wrong(of_135)}: its second mean has a λ too many, "
            "which (136) does not have."
        )
        return Finding(rows, [scatter(rows)], verdict)


def _wrong(rows: list[Row]) -> str:
    return f"{sum(not r.agrees for r in rows)} of {len(rows)} settings"


def solutions(seed: int) -> list[Row]:
    """FLAME run to its end against (135) and (136): the largest difference of a coordinate."""
    draw = stream(seed, "solutions")
    m, d, n, lam = int(draw.integers(3, 7)), int(draw.integers(1, 5)), 9, float(draw.uniform(0.1, 0.5))
    X, y = draw.normal(0, 1, (m, n, d)), draw.normal(0, 1, (m, n))
    A = X.transpose(0, 2, 1) @ X / n
    local = np.linalg.solve(A, (X.transpose(0, 2, 1) @ y[..., None] / n))[..., 0]
    made = least_squares(X, y)
    found = _end_of_flame(made, lam)
    rows = [
        _gap("(135), corrected", flame.solution(A, local, lam), found, lam),
        _gap("(135)", flame.solution_as_printed(A, local, lam), found, lam, erratum=True),
    ]
    scale = draw.uniform(0.5, 2.0, m)
    X = np.stack([np.linalg.qr(x)[0] for x in X]) * np.sqrt(n * scale)[:, None, None]
    local = draw.normal(0, 1, (m, d))
    found = _end_of_flame(least_squares(X, np.einsum("ijk,ik->ij", X, local)), lam)
    return [*rows, _gap("(136)", flame.solution_scaled(scale, local, lam), found, lam)]


def _end_of_flame(made: tuple[Task, Clients], lam: float) -> tuple[np.ndarray, np.ndarray]:
    play = Play(FLAME(lam=lam, rho=lam / len(made[1]), anchor="global", solver=Exact()), *made).rounds(140)
    return play.globals_of()[0].numpy(), play.state("theta")[0].numpy()


def _gap(
    name: str,
    theory: tuple[np.ndarray, np.ndarray],
    found: tuple[np.ndarray, np.ndarray],
    lam: float,
    erratum: bool = False,
) -> Row:
    apart = max(float(np.abs(t - f).max()) for t, f in zip(theory, found, strict=True))
    m, d = theory[1].shape
    what = f"{name}: largest distance of w*, θ* from FLAME's, m = {m}, d = {d}, λ = {lam:.2g}"
    return Row(what, 0.0, apart, absolute=1e-8, erratum=erratum)


def distribution(seed: int, replicas: int) -> list[Row]:
    """(138), (143), (144) on a random problem, by playing FLAME to its end in many federations."""
    p, lam, _, _ = random_regression(seed, attackers=False)
    lam = min(lam, 1.5 * p.b)
    told = f"m = {p.m}, d = {p.d}, N = {p.N}, λ = {lam:.2g}"
    ends = math.ceil(-9 * math.log(10) / math.log(lam / (p.b + lam)))  # rounds to 1e-9: it shrinks by λ/(b + λ)
    play = Play(
        FLAME(lam=lam, rho=lam / p.m, anchor="global", solver=Exact()), *regression(p, replicas, seed), replicas
    )
    play.rounds(ends)
    w, theta = play.globals_of().numpy(), play.state("theta").numpy()
    ahead = stream(seed, "direction").standard_normal((p.m, p.d))
    spread_w = ((w - flame.mean_global(p)) ** 2).mean(1)
    spread_theta = ((theta - flame.mean_personal(p, lam)) ** 2).mean((1, 2))
    shift = ((theta - flame.mean_personal(p, lam)) * ahead).mean((1, 2))
    loss_w = play.losses("global").mean(1) + p.sigma**2 / 2
    loss_theta = play.losses("personal").mean(1) + p.sigma**2 / 2
    return [
        Row(f"{told}: mean of θ* in a random direction, less (138)", 0.0, *estimate(shift)),
        Row(f"{told}: variance of w* (138)", flame.variance_global(p), *estimate(spread_w)),
        Row(f"{told}: variance of θ* (138)", flame.variance_personal(p, lam), *estimate(spread_theta)),
        Row(f"{told}: loss of w* (143)", flame.loss_global(p), *estimate(loss_w)),
        Row(f"{told}: loss of θ* (144), corrected", flame.loss_personal(p, lam), *estimate(loss_theta)),
        Row(f"{told}: loss of θ* (144)", flame.loss_personal_as_printed(p, lam), *estimate(loss_theta), erratum=True),
    ]


@dataclass(frozen=True)
class FlameAttacks(RandomProblems):
    """Losses after one round under same-value, sign-flipping and Gaussian attacks: (148), (151), (161), (165)."""

    name: ClassVar[str] = "flame-attacks"
    paper: ClassVar[str] = PAPER

    def look(self) -> Finding:
        rows = [r for seed in self.seeds() for r in attacked(seed, self.replicas)]
        verdict = (
            f"{holds(rows)}: (148), (151), (161) and (165), for FLAME and with q = 1 for pFedMe and Ditto: "
            f"{tally(rows)}. "
            "In (157) to (161) we read σ²/(bN) for σ²/(bm) and a sum over benign clients for one over S_a."
        )
        return Finding(rows, [scatter(rows)], verdict)


def attacked(seed: int, replicas: int) -> list[Row]:
    """All attacks and methods on one random problem."""
    p, lam, rho, gamma = random_regression(seed)
    data = regression(p, replicas, seed)
    q = flame_attacks.q(lam, 1 / p.m, rho, p.b)
    methods = {
        f"FLAME, q = {q:.2g}": (one_round.flame(lam, rho), q),
        "pFedMe": (one_round.pfedme(lam, p.b), 1.0),
        "Ditto": (one_round.ditto(lam), 1.0),
    }
    rows = []
    for attack in flame_attacks.ATTACKS:
        for who, (method, share) in methods.items():
            found = one_round.one_round(p, method, *data, replicas, attack_of(attack, gamma), seed)
            assert found.of_global is not None
            told = f"m = {p.m}, m_a = {p.m_a}, d = {p.d}, {attack}, {who}"
            gm, pm = estimate(found.of_global.mean(1)), estimate(found.of_personal.mean(1))
            rows += [
                Row(f"{told}: global loss", flame_attacks.loss_global(p, attack, share, gamma), *gm),
                Row(f"{told}: personal loss", flame_attacks.loss_personal(p, attack, lam, share, gamma), *pm),
            ]
    return rows
