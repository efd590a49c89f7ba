"""Facts about a client's inner problem min_θ f_i(θ) + λ·g(θ, anchor), and warnings in plain words made from them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .core import Local, State
from .couplings import Coupling
from .seeds import stream
from .solvers import SGD, Inexact, Solver


def prox_facts(local: Local, theta: Tensor, coupling: Coupling) -> State:
    """How well the inner problem is solved, ‖∇f_i(θ) + λ∇g‖ [c], and the data loss's curvature L at θ [c]."""
    slope = local.full_grad(theta)
    L = curvature(local, theta, slope)
    coupling.add_grad_(slope, theta)
    return {"prox_residual": slope.norm(dim=1), "smoothness": L}


def curvature(local: Local, theta: Tensor, slope: Tensor, steps: int = 6) -> Tensor:
    """The largest curvature of f_i near θ, [c], by power iteration on gradient differences; a lower bound of L."""
    v = torch.as_tensor(stream(0, "curvature").standard_normal(theta.shape[1])).to(theta).expand_as(theta)
    v = v / v.norm(dim=1, keepdim=True)
    small = 1e-3 if theta.dtype == torch.float32 else 1e-5
    L = theta.new_zeros(len(theta))
    for _ in range(steps):
        Hv = (local.full_grad(theta + small * v) - slope) / small
        L = Hv.norm(dim=1)
        v = Hv / L.clamp(min=1e-12)[:, None]
    return L


def inner_loop_warnings(owner: str, solver: Solver, lam: float, facts: Mapping[str, float]) -> list[str]:
    """Whether gradient steps of this size can converge: lr·(λ + L) < 2, or 2(1 + momentum) with momentum."""
    L = facts.get("smoothness_max")
    if L is None or not isinstance(solver, SGD | Inexact):
        return []
    bound = 2 * (1 + (solver.momentum if isinstance(solver, SGD) else 0.0))
    if solver.lr * (lam + L) < bound:
        return []
    return [
        f"{owner}: lr·(λ + L) = {solver.lr:g}·({lam:g} + {L:.3g}) >= {bound:g}: the inner loop diverges "
        f"where the loss is this curved; take lr < {bound / (lam + L):.2g} if it does."
    ]
