"""How a FLAME run is doing: its Lagrangian, the residuals of its fixed point, and warnings in plain words."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ...core import ClientStack, State
from ...couplings import Quadratic
from ...solvers import Inexact, Solver
from .diagnostics import inner_loop_warnings, prox_facts

_SLOW, _FAST = 0.1, 5.0  # of λα/ρ: what the paper plays lies between


def flame_facts(
    state: State, w: Tensor, local: ClientStack, lam: float, rho: float, la: float | Tensor, solver: Solver
) -> State:
    """L as the mean over clients, the residuals of (16), and how far (17) was met."""
    theta, w_i, m = state["theta"], state["w"], local.clients
    pi, coupling = la * (theta - w_i), Quadratic(lam, w_i)
    alpha = la / lam
    alpha = alpha[:, 0] if isinstance(alpha, Tensor) else alpha
    away = w_i - w
    L = alpha * (local.full_loss(theta) + coupling.value(theta)) + (pi * away).sum(1) + rho / 2 * (away**2).sum(1)
    facts = {"lagrangian": m * L, "primal_residual": away.norm(dim=1), "dual_mean": pi}
    facts["dual_residual"] = (pi - la * (theta - w)).norm(dim=1)
    facts |= prox_facts(local, theta, coupling, solver)
    holds = flame_theorem1(alpha * lam, rho, alpha * facts["smoothness"])
    facts["theorem1_holds"] = holds.all(1).to(w.dtype)
    if isinstance(solver, Inexact):
        missed = state["gap"][:, 0] > solver.tolerance(local.visits) * (1 + 1e-6)
        facts |= {"inexact_gap": state["gap"][:, 0], "inexact_missed": missed.to(w.dtype)}
    return facts


def flame_warnings(lam: float, speed: float, solver: Solver, facts: Mapping[str, float]) -> list[str]:
    """What is going wrong, at this λα/ρ."""
    said = inner_loop_warnings("FLAME", solver, lam, facts)
    moves = 2 * speed / (1 + speed)
    if speed < _SLOW:
        said.append(
            f"FLAME: at λα/ρ = {speed:.2g} the global model moves {moves:.0%} of the way to the clients' mean in a "
            "round; take speed = 1, or many more rounds."
        )
    elif speed > _FAST:
        said.append(f"FLAME: at λα/ρ = {speed:.2g} the global model overshoots the clients' mean; take speed <= 5.")
    if facts.get("inexact_missed_mean", 0) > 0:
        said.append(
            f"FLAME: {facts['inexact_missed_mean']:.0%} of clients did not reach ‖∇‖² <= ε (17); raise max_steps."
        )
    return said


def flame_theorem1(x: float | Tensor, rho: float, L_alpha: Tensor) -> Tensor:
    """[c, 3] whether the conditions of FLAME's Theorem 1, C1, C2, C3, hold for x = λα and the clients' Lα.

    They hold together only for Lα <= 0.0146, so practically never: to report, not to enforce.
    """
    x = torch.as_tensor(x, dtype=L_alpha.dtype).expand_as(L_alpha)
    C1 = x**2 * (1 + rho) / rho**2 < (x + rho) / 2
    C2 = rho >= x
    C3 = (1 - rho**2) * x**2 / rho**2 > (L_alpha + rho) / 2
    return torch.stack([C1, C2, C3], dim=1)
