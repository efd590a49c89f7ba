"""Plain gradient steps of linear models, all of a client's in one go, compiled (optional: the extra `fast`, Numba).

A linear model's step is so small that most of its time goes into copying batches and calling operations. Here a
client's model stays in the first-level cache while its steps run through its samples where they lie. Used for one
linear layer with cross-entropy, squared or hinge loss, if Numba is installed; tests hold it equal to dense.py.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ..core import Number
from .compiled import compiled

LOSSES = {"cross-entropy": 0, "squared": 1, "hinge": 2}
_FAST = frozenset({"reassoc", "contract", "nsz", "arcp"})  # NaN and Inf stay what they are


def descend_(
    loss: str,
    bias: bool,
    theta: Tensor,  # [c, d]
    x: Tensor,  # [n, features...]
    rows: Tensor,  # [T, c, b]
    y: Tensor,  # [T, c, b]
    weight: Tensor,  # [T, c, b]
    takes: np.ndarray,  # [c] how many of the T batches
    repeats: int,
    lr: Number,
    lam: Number,
    anchor: Tensor | None,
) -> None:
    """theta −= lr (∇loss + λ(theta − anchor)) on each client's batches in turn, `repeats` times on each; in place."""
    kappa = np.empty(len(theta), dtype=_numpy(theta).dtype)
    kappa[:] = _each(lr) * _each(lam) if anchor is not None else 0.0
    if isinstance(lr, Tensor):  # a step is linear in the weights
        weight, lr = weight * lr, 1.0
    to = theta[:1] if anchor is None else anchor[:1] if anchor.stride(0) == 0 else anchor
    compiled(_steps, _FAST)(
        LOSSES[loss], bias, _numpy(theta), _numpy(x.flatten(1) if x.dim() > 1 else x[:, None]), _numpy(rows), _numpy(y),
        _numpy(weight), takes, repeats, lr, kappa, _numpy(to),
    )  # fmt: skip


def _each(value: Number) -> float | np.ndarray:
    """A number, or [c] of a column."""
    found: float | np.ndarray = value[:, 0].numpy() if isinstance(value, Tensor) else value
    return found


def _numpy(value: Tensor) -> np.ndarray:
    return value.contiguous().numpy()


def _steps(  # type: ignore[no-untyped-def]  # compiled: plain loops, four samples at a time to use a loaded row of W for each
    loss, bias, theta, X, rows, y, weight, takes, repeats, lr, kappa, anchor
):
    _, clients, size = rows.shape
    d = X.shape[1]
    k = theta.shape[1] // (d + bias)
    zero = theta.dtype.type(0)
    rate = theta.dtype.type(lr)
    slope = np.empty((size, k), theta.dtype)
    no_bias = np.zeros(k, theta.dtype)
    fours = size // 4 * 4
    for i in range(clients):
        flat = theta[i]
        W = flat[: k * d].reshape(k, d)
        b = flat[k * d :] if bias else no_bias
        a, pull = anchor[min(i, len(anchor) - 1)], kappa[i]
        for t in range(takes[i]):
            r = rows[t, i]
            for _ in range(repeats):
                for s in range(0, fours, 4):
                    x0, x1, x2, x3 = X[r[s]], X[r[s + 1]], X[r[s + 2]], X[r[s + 3]]
                    for o in range(k):
                        w = W[o]
                        z0, z1, z2, z3 = zero, zero, zero, zero
                        for j in range(d):
                            z0 += w[j] * x0[j]
                            z1 += w[j] * x1[j]
                            z2 += w[j] * x2[j]
                            z3 += w[j] * x3[j]
                        slope[s, o], slope[s + 1, o] = z0 + b[o], z1 + b[o]
                        slope[s + 2, o], slope[s + 3, o] = z2 + b[o], z3 + b[o]
                for s in range(fours, size):
                    x0 = X[r[s]]
                    for o in range(k):
                        w = W[o]
                        z0 = zero
                        for j in range(d):
                            z0 += w[j] * x0[j]
                        slope[s, o] = z0 + b[o]
                for s in range(size):
                    out, target, scale = slope[s], y[t, i, s], -rate * weight[t, i, s]
                    if loss == 0:
                        top = out[0]
                        for o in range(1, k):
                            top = max(top, out[o])
                        total = zero
                        for o in range(k):
                            out[o] = np.exp(out[o] - top)
                            total += out[o]
                        for o in range(k):
                            out[o] *= scale / total
                        out[int(target)] -= scale
                    elif loss == 1:
                        out[0] = scale * (out[0] - target)
                    else:
                        out[0] = -scale * target if target * out[0] < 1 else zero
                if pull != 0:
                    for j in range(len(flat)):
                        flat[j] += pull * (a[j] - flat[j])
                for s in range(0, fours, 4):
                    x0, x1, x2, x3 = X[r[s]], X[r[s + 1]], X[r[s + 2]], X[r[s + 3]]
                    for o in range(k):
                        w = W[o]
                        g0, g1, g2, g3 = slope[s, o], slope[s + 1, o], slope[s + 2, o], slope[s + 3, o]
                        for j in range(d):
                            w[j] += (g0 * x0[j] + g1 * x1[j]) + (g2 * x2[j] + g3 * x3[j])
                        if bias:
                            b[o] += (g0 + g1) + (g2 + g3)
                for s in range(fours, size):
                    x0 = X[r[s]]
                    for o in range(k):
                        w = W[o]
                        g0 = slope[s, o]
                        for j in range(d):
                            w[j] += g0 * x0[j]
                        if bias:
                            b[o] += g0
