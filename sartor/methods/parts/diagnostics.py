"""Facts about a client's inner problem min_θ f_i(θ) + λ·g(θ, anchor), and warnings in plain words made from them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ...core import ClientStack, Coupling, State
from ...seeds import stream
from ...solvers import SGD, Inexact, Solver


def prox_slope(local: ClientStack, theta: Tensor, coupling: Coupling) -> Tensor:
    """∇h [c, d] of the inner problem h = f_i + λg, over all of each client's data."""
    slope = local.full_grad(theta)
    coupling.add_grad_(slope, theta)
    return slope


def prox_facts(local: ClientStack, theta: Tensor, coupling: Coupling, solver: Solver) -> State:
    """How well the inner problem h = f_i + λg is solved at θ, ‖∇h‖ [c], and whether the solver's step fits it.

    `smoothness` is the data loss's curvature L; `overshoot` is 1 where one full gradient step of the solver's size
    raises h: a network trained near its limit has lr·L about 2 and does well, so L alone would be a false alarm.
    """
    slope = local.full_grad(theta)
    L = curvature(local, theta, slope)
    coupling.add_grad_(slope, theta)
    facts = {"prox_residual": slope.norm(dim=1), "smoothness": L}
    if isinstance(solver, SGD | Inexact):
        stepped = theta - solver.lr * slope
        rise = local.full_loss(stepped) + coupling.value(stepped) - local.full_loss(theta) - coupling.value(theta)
        facts["overshoot"] = (rise > 0).to(theta.dtype)
    return facts


def curvature(local: ClientStack, theta: Tensor, slope: Tensor, steps: int = 3) -> Tensor:
    """The largest curvature of f_i near θ, [c], by Lanczos steps from slope = ∇f_i(θ), which lies mostly
    along the largest ones; a lower bound of L. A step costs a pass over all samples."""
    anywhere = torch.as_tensor(stream(0, "curvature").standard_normal(theta.shape[1])).to(theta)
    v = slope / slope.norm(dim=1, keepdim=True).clamp(min=1e-12) + 0.1 * anywhere / anywhere.norm()
    v = v / v.norm(dim=1, keepdim=True)
    before, beta = torch.zeros_like(v), v.new_zeros(len(v), 1)
    small = 1e-3 if theta.dtype == torch.float32 else 1e-5
    T = theta.new_zeros(len(theta), steps, steps)  # the Hessian among the directions that were looked at
    for k in range(steps):
        Hv = local.full_grad(theta + small * v).sub_(slope).div_(small)
        alpha = (Hv * v).sum(1, keepdim=True)
        T[:, k, k] = alpha[:, 0]
        if k + 1 < steps:
            Hv.sub_(alpha * v).sub_(beta * before)
            beta = Hv.norm(dim=1, keepdim=True)
            T[:, k + 1, k] = T[:, k, k + 1] = beta[:, 0]
            before, v = v, Hv / beta.clamp(min=1e-12)
    finite = torch.isfinite(T).flatten(1).all(1)
    found = torch.linalg.eigvalsh(torch.where(finite[:, None, None], T, 0)).abs().amax(1)
    return torch.where(finite, found, torch.nan)


def inner_loop_warnings(owner: str, solver: Solver, lam: float, facts: Mapping[str, float]) -> list[str]:
    """Whether gradient steps of this size can converge: lr·(λ + L) < 2, or 2(1 + momentum) with momentum."""
    L = facts.get("smoothness_max")
    if L is None or not isinstance(solver, SGD | Inexact):
        return []
    bound = 2 * (1 + (solver.momentum if isinstance(solver, SGD) else 0.0))
    if solver.lr * (lam + L) < bound or not facts.get("overshoot_max"):
        return []
    return [
        f"{owner}: lr·(λ + L) = {solver.lr:g}·({lam:g} + {L:.3g}) >= {bound:g}: the inner loop diverges "
        f"for the most curved client; take lr < {bound / (lam + L):.2g}."
    ]
