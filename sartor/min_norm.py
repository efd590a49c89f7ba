"""The shortest vector that a few gradients can be mixed to: FedMGDA+'s subproblem, for the method and the aggregator.

    min_λ ‖Σ_i λ_i g_i‖²   with   Σ_i λ_i = 1,   λ_i >= 0,   |λ_i − λ0_i| <= ε

Only the Gram matrix G_ij = <g_i, g_j> is needed. Solved by accelerated projected gradient steps with restarts, until
the duality gap of a linear program over the same set says that nothing more is to be had.
"""

from __future__ import annotations

import torch
from torch import Tensor


def min_norm(gram: Tensor, first: Tensor, epsilon: float = 1.0, steps: int = 5000, tolerance: float = 1e-10) -> Tensor:
    """λ [n] for the Gram matrix [n, n]; `first` is λ0, a point of the simplex. ε = 1 leaves all of the simplex."""
    G, lam = gram.double(), first.double()
    low, high = (lam - epsilon).clamp(min=0), (lam + epsilon).clamp(max=1)
    top = float(torch.linalg.eigvalsh(G)[-1])
    if top <= 0:  # every gradient is zero
        return first
    ahead, t = lam, 1.0
    for _ in range(steps):
        slope = G @ lam
        if float(slope @ (lam - cheapest(slope, low, high))) <= tolerance * top:
            break
        new = onto_simplex(ahead - (G @ ahead) / top, low, high)
        if float((ahead - new) @ (new - lam)) > 0:  # the momentum points uphill: start it anew
            t, new = 1.0, onto_simplex(lam - slope / top, low, high)
        t_new = (1 + (1 + 4 * t * t) ** 0.5) / 2
        ahead, lam, t = new + ((t - 1) / t_new) * (new - lam), new, t_new
    return lam.to(first.dtype)


def onto_simplex(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The nearest point to x with low <= λ <= high and Σ λ = 1: clamp(x − τ), where the sum is 1.

    The sum falls with τ and is a straight line between the places where a coordinate meets a bound.
    """
    knots = torch.cat([x - low, x - high]).sort().values
    sums = torch.clamp(x - knots[:, None], low, high).sum(1)
    j = int((sums > 1).sum().clamp(1, len(knots) - 1))  # sums fall: between knots j − 1 and j the sum passes 1
    drop = sums[j - 1] - sums[j]
    tau = knots[j - 1] + (knots[j] - knots[j - 1]) * ((sums[j - 1] - 1) / drop if float(drop) > 0 else 0.0)
    return torch.clamp(x - tau, low, high)


def cheapest(cost: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """argmin <cost, λ> over the same set: fill up the cheapest first."""
    order = torch.argsort(cost)
    room = (high - low)[order]
    filled = (1 - low.sum() - (room.cumsum(0) - room)).clamp(min=0).minimum(room)
    out = low.clone()
    out[order] += filled
    return out
