"""The least-norm point of a convex hull, with bounds on the weights: a small quadratic programme."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .base import gram


def fair_direction(g: Tensor, weights: Tensor, epsilon: float) -> Tensor:
    """[k] FedMGDA+'s d = Σ λ*_i g_i, for vectors g [n, k]."""
    return fair_weights(gram(g), weights, epsilon).to(g) @ g


def fair_weights(G: Tensor, weights: Tensor, epsilon: float) -> Tensor:
    """[n] FedMGDA+'s λ*: the shortest mixture of vectors with this Gram matrix, within ε of the weights' shares."""
    first = weights.double().cpu().numpy()
    first = first / first.sum()
    low, high = np.maximum(first - epsilon, 0.0), np.minimum(first + epsilon, 1.0)
    return torch.from_numpy(min_norm(G.cpu().numpy(), first, low, high)).to(weights)


def min_norm(
    G: np.ndarray, first: np.ndarray, low: np.ndarray, high: np.ndarray, tolerance: float = 1e-12, steps: int = 100_000
) -> np.ndarray:
    """[n] argmin λᵀGλ subject to Σλ = 1 and low <= λ <= high, started at `first`, which must be allowed.

    Weight moves between two clients at a time, the pair that breaks the optimality conditions most, by the exact
    minimum along that line. G is a matrix of inner products, so the point Σ λ_i g_i is unique even where λ is not.
    """
    lam = first.copy()
    slope = G @ lam
    enough = tolerance * max(1.0, float(np.abs(np.diagonal(G)).max(initial=0.0)))
    for _ in range(steps):
        i = int(np.where(lam > low, slope, -np.inf).argmax())  # gives weight away
        j = int(np.where(lam < high, slope, np.inf).argmin())  # takes it
        gap = slope[i] - slope[j]
        if not gap > enough:
            break
        curve = G[i, i] + G[j, j] - 2 * G[i, j]
        move = min(lam[i] - low[i], high[j] - lam[j], gap / curve if curve > 0 else np.inf)
        lam[i] = low[i] if move == lam[i] - low[i] else lam[i] - move
        lam[j] = high[j] if move == high[j] - lam[j] else lam[j] + move
        slope += move * (G[:, j] - G[:, i])
    return lam
