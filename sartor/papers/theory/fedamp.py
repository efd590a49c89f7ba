"""FedAMP: the objective (1), its gradient with the factor 2, and the bounds of Theorems 1 and 2."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...errors import one_of
from ...methods.parts.attention import slope


def attention_value(kind: str, sigma: float, t: Tensor) -> Tensor:
    """A(t): 1 − e^{−t/σ}, or the tamed square root, t/(2σ) up to t = σ² and √t − σ/2 beyond."""
    one_of("FedAMP's objective", "attention", kind, ["exp", "sqrt"])
    if kind == "exp":
        return 1 - torch.exp(-t / sigma)
    return torch.where(t <= sigma**2, t / (2 * sigma), t.clamp(min=sigma**2).sqrt() - sigma / 2)


def coupling(kind: str, sigma: float, W: Tensor) -> float:
    """D(W) = Σ_{i<j} A(‖w_i − w_j‖²)  (1)."""
    return float(attention_value(kind, sigma, _squared(W)).triu(1).sum())


def coupling_gradient(kind: str, sigma: float, W: Tensor) -> Tensor:
    """∇_i D = 2 Σ_j A'(‖w_i − w_j‖²)(w_i − w_j). The 2 is the derivative of the square, which (4) leaves out."""
    weight = 2 * slope(kind, sigma, _squared(W))
    return weight.sum(1, keepdim=True) * W - weight @ W


def step_size(lam: float, rounds: int, factor: float = 2.0) -> tuple[float, float]:
    """(α, β) of the library's FedAMP for Theorems 1, 2: (2) with α_k = λ/√K takes 2λ/√K in (4); β_k = 1/√K.

    `factor` 1 is (4) as printed: it then solves (1) with λ/2.
    """
    return factor * lam / math.sqrt(rounds), 1 / math.sqrt(rounds)


def bound_convex(distance2: float, B: float, rounds: int) -> float:
    """(13): min_k G(W^k) − G* ≤ (‖W⁰ − W*‖² + 5B²)/√K. (Its proof gives half of it.)"""
    return (distance2 + 5 * B**2) / math.sqrt(rounds)


def bound_smooth(gap: float, L: float, B: float, rounds: int) -> float:
    """(14) without its O(1/K): min_k ‖∇G(W^k)‖² ≤ 18(G(W⁰) − G* + 20LB²)/√K."""
    return 18 * (gap + 20 * L * B**2) / math.sqrt(rounds)


def power_on_a_flat_bowl(p: float) -> float:
    """On |t|^p, p > 2, K steps of length 1/√K leave a gap of K^{−p/(2(p−2))}: towards 1/√K for large p."""
    return p / (2 * (p - 2))


def _squared(W: Tensor) -> Tensor:
    apart = W[:, None] - W[None]
    found: Tensor = (apart**2).sum(-1)
    return found
