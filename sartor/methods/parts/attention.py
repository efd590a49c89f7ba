"""Attention between clients' models: how much model j matters to client i (FedAMP's A', HeurFedAMP's cosine)."""

from __future__ import annotations

import torch
from torch import Tensor

KINDS = ("exp", "sqrt", "scad", "mcp", "cosine")


def slope(kind: str, sigma: float, t: Tensor) -> Tensor:
    """A'(t) for squared distances t: of 1 − e^{−t/σ}, the tamed square root, SCAD or MCP."""
    if kind == "exp":
        return torch.exp(-t / sigma) / sigma
    if kind == "sqrt":
        return torch.where(t <= sigma**2, 1 / (2 * sigma), 1 / (2 * t.clamp(min=sigma**2).sqrt()))
    if kind == "scad":  # Fan and Li's a = 3.7
        return ((3.7 * sigma - t) / (2.7 * sigma)).clamp(0, 1) / sigma
    return (1 - t / (3 * sigma)).clamp(min=0) / sigma  # MCP with its usual factor 3


def attention(kind: str, sigma: float, products: Tensor, squares: Tensor, ids: Tensor, ratios: bool) -> Tensor:
    """[c, m] attention that the clients `ids` pay to every model, 0 to their own, from the inner products [c, m] of
    their models with all and the squared norms [m].

    With `ratios` only the proportions within a row count, so rows may be scaled to keep small numbers from vanishing.
    """
    rows = torch.arange(len(ids))
    if kind == "cosine":
        norm = squares.sqrt().clamp(min=1e-12)
        close = sigma * products / (norm[ids, None] * norm)
        close[rows, ids] = -torch.inf
        return torch.softmax(close, dim=1) if len(squares) > 1 else torch.zeros_like(close)
    t = (squares[ids, None] + squares - 2 * products).clamp(min=0)
    if ratios and kind == "exp":
        t[rows, ids] = torch.inf
        t = t - t.min(1, keepdim=True).values.clamp(max=torch.finfo(t.dtype).max)
    A = slope(kind, sigma, t)
    A[rows, ids] = 0
    return A
