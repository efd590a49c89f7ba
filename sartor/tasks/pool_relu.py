"""2 × 2 max pooling and ReLU in one pass over the image, compiled (optional: the extra `fast`, Numba).

PyTorch's backward pass of a pooling first fills the large image with zeros and then scatters into it by 64-bit
indices. Here a byte says which of the four pixels was the largest (or that ReLU took it), and every pixel is written
once. Finite numbers are the same to the bit, so it does not matter who has Numba. Only for models that run client by
client: it knows one image stack at a time, not a stack of clients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .compiled import compiled
from .frozen import shared_copy

_NONE = 4  # no pixel passes the ReLU
_ZERO = np.float32(0)  # of a type that no other is widened by


def fused(model: nn.Module) -> nn.Module:
    """A copy of the model in which nn.MaxPool2d(2) followed by nn.ReLU is one layer. Parameters keep their names."""
    model = shared_copy(model)
    for parent in [m for m in model.modules() if isinstance(m, nn.Sequential)]:
        for i in range(len(parent) - 1):
            if _is_half(parent[i]) and isinstance(parent[i + 1], nn.ReLU):
                parent[i], parent[i + 1] = PoolReLU(), nn.Identity()
    return model


def _is_half(layer: nn.Module) -> bool:
    """Whether a layer is 2 × 2 max pooling without overlap, padding or extras."""
    if not isinstance(layer, nn.MaxPool2d) or layer.return_indices or layer.ceil_mode:
        return False
    pairs = [v if isinstance(v, tuple) else (v, v) for v in (layer.kernel_size, layer.stride)]
    return pairs == [(2, 2), (2, 2)] and layer.padding in (0, (0, 0)) and layer.dilation in (1, (1, 1))


class PoolReLU(nn.Module):
    """relu(max_pool2d(x, 2)), with channels last in memory."""

    def forward(self, x: Tensor) -> Tensor:
        even = x.dim() == 4 and x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0
        if even and x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64):
            out: Tensor = _PoolReLU.apply(x)  # type: ignore[no-untyped-call]
            return out
        return F.relu(F.max_pool2d(x, 2))


class _PoolReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        image = x.detach().permute(0, 2, 3, 1).contiguous()  # [n, h, w, c]: no copy where channels lie last already
        y = image.new_empty(n, h // 2, w // 2, c)
        ctx.which = torch.empty(y.shape, dtype=torch.uint8)
        compiled(_pool)(image.numpy(), y.numpy(), ctx.which.numpy())
        return y.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        slope = slopes[0].permute(0, 2, 3, 1).contiguous()
        n, h, w, c = slope.shape
        out = slope.new_empty(n, 2 * h, 2 * w, c)
        compiled(_spread)(slope.numpy(), ctx.which.numpy(), out.numpy())
        return out.permute(0, 3, 1, 2)


def _pool(x: np.ndarray, y: np.ndarray, which: np.ndarray) -> None:
    """y = relu(max of each 2 × 2 window); which = its place in the window, the first of equals, or _NONE."""
    n, h, w, c = y.shape
    for i in range(n):
        for r in range(h):
            for q in range(w):
                best, place = y[i, r, q], which[i, r, q]
                upper, lower = x[i, 2 * r], x[i, 2 * r + 1]
                a, b, d, e = upper[2 * q], upper[2 * q + 1], lower[2 * q], lower[2 * q + 1]
                for k in range(c):
                    top, at = a[k], np.uint8(0)
                    at = np.uint8(1) if b[k] > top else at
                    top = b[k] if b[k] > top else top
                    at = np.uint8(2) if d[k] > top else at
                    top = d[k] if d[k] > top else top
                    at = np.uint8(3) if e[k] > top else at
                    top = e[k] if e[k] > top else top
                    together = (a[k] + b[k]) + (d[k] + e[k])
                    top = together if together != together else top  # NaN is passed on, never lost
                    best[k] = _ZERO if top <= _ZERO else top
                    place[k] = np.uint8(_NONE) if top <= _ZERO else at


def _spread(slope: np.ndarray, which: np.ndarray, out: np.ndarray) -> None:
    """Each slope to the pixel that was the largest, 0 to the others."""
    n, h, w, c = slope.shape
    for i in range(n):
        for r in range(h):
            for s in range(2):
                for q in range(w):
                    g, place = slope[i, r, q], which[i, r, q]
                    for p in range(2):
                        to, here = out[i, 2 * r + s, 2 * q + p], np.uint8(2 * s + p)
                        for k in range(c):
                            to[k] = g[k] if place[k] == here else _ZERO
