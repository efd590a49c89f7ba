"""The gradient of fully connected networks for a stack of clients, written out.

Small networks spend most of a training step in the machinery of automatic differentiation. For the plain ones (linear
layers with ReLU between them; cross-entropy, squared, hinge or squared hinge loss) the chain rule is short enough to
write down, as batched matrix products that land directly in the flat gradient. Tests hold it equal to autograd's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..core import Batch, Dense, Pull
from .frozen import Given

LOSSES = ("cross-entropy", "squared", "hinge", "squared-hinge")
_NARROW = 16  # below so many outputs W·xᵀ is the faster product (by a third at 10), above x·Wᵀ is


class Layer(NamedTuple):
    """One layer of a stack of networks, as views of their flat vectors."""

    W: Tensor  # [a, o, i]
    WT: Tensor  # [a, i, o]
    b: Tensor | None  # [a, 1, o]


@dataclass(frozen=True)
class DenseNet(Dense):
    """A fully connected model with its gradient."""

    @classmethod
    def of(cls, model: nn.Module, loss: str) -> DenseNet | None:
        """The model as a dense network, or None if it is anything else."""
        model = nn.Sequential(model) if type(model) is nn.Linear else model
        if not all(p.requires_grad for p in model.parameters()):
            return None
        if not isinstance(model, nn.Sequential) or loss not in LOSSES:
            return None
        chain = [m for m in model if not isinstance(m, nn.Flatten | nn.Identity | Given)]
        linear, between = chain[0::2], chain[1::2]
        plain = all(type(m) is nn.Linear for m in linear) and all(type(m) is nn.ReLU for m in between)
        if not plain or len(linear) != len(between) + 1:
            return None
        if any(isinstance(m, nn.Flatten) and (i > 0 or m.start_dim != 1) for i, m in enumerate(model)):
            return None
        found = [m for m in linear if isinstance(m, nn.Linear)]
        sizes = (found[0].in_features, *(m.out_features for m in found))
        return cls(tuple(m.bias is not None for m in found), sizes, loss)

    def layers(self, params: list[Tensor]) -> list[Layer]:
        """The network's layers as views of a flat vector's parts `params`, each [a, ...]."""
        found, at = [], 0
        for biased in self.biases:
            found.append(Layer(params[at], params[at].mT, params[at + 1][:, None] if biased else None))
            at += 1 + biased
        return found

    def forward(self, layers: list[Layer], x: Tensor) -> Tensor:
        """[a, b, i] → [a, b, k]."""
        for i, layer in enumerate(layers):
            x = _forward(layer, x.relu() if i else x)
        return x

    def scored(self, layers: list[Layer], x: Tensor) -> Tensor:
        """[a, b, ...] → [a, b, k], to score: the products that vectorised nn.Linear layers take, to the bit."""
        h = _samples(x)
        for i, (_, WT, b) in enumerate(layers):
            h = h.relu_() if i else h
            h = torch.bmm(h, WT)
            h = h if b is None else h.add_(b)
        return h

    def grad(self, layers: list[Layer], batch: Batch, out: list[Layer]) -> None:
        """Write the gradients of every client's weighted loss into `out`, views like `layers`."""
        for into, (slope, h) in zip(reversed(out), self._products(layers, batch), strict=True):
            torch.bmm(slope.mT, h, out=into.W)
            if into.b is not None:
                torch.sum(slope, 1, keepdim=True, out=into.b)

    def descend_(self, theta: Tensor, layers: list[Layer], batch: Batch, lr: float, pull: Pull) -> None:
        """theta −= lr · gradient, without a gradient in between: the products are added to theta's views `layers`."""
        products = self._products(layers, batch)  # all of them before theta moves
        pull(theta, lr)
        for layer, (slope, h) in zip(reversed(layers), products, strict=True):
            layer.W.baddbmm_(slope.mT, h, alpha=-lr)
            if layer.b is not None:
                layer.b.sub_(slope.sum(1, keepdim=True), alpha=lr)

    def _products(self, layers: list[Layer], batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """A layer's gradient is slopeᵀ·input: (slope [a, b, o], input [a, b, i]) of each, the last layer first."""
        h = _samples(batch.x)
        inputs: list[Tensor] = []
        for i, layer in enumerate(layers):
            h = h.relu_() if i else h
            inputs.append(h)
            h = _forward(layer, h)
        slope = self._loss_slope(h, batch.y).mul_(batch.weight[..., None])
        products = [(slope, inputs[-1])]
        for i in range(len(layers) - 1, 0, -1):
            slope = torch.ops.aten.threshold_backward(torch.bmm(slope, layers[i].W), inputs[i], 0)  # ReLU's
            products.append((slope, inputs[i - 1]))
        return products

    def _loss_slope(self, output: Tensor, y: Tensor) -> Tensor:
        """∂loss/∂output of every sample, [a, b, k]."""
        target = y[..., None]
        if self.loss == "cross-entropy":
            slope = torch.softmax(output, -1)
            return slope.scatter_add_(2, target, _minus_one(slope.dtype, slope.device).expand_as(target))
        if self.loss == "squared":
            return output - target
        if self.loss == "hinge":
            return torch.where(target * output < 1, -target, 0.0)
        return -2 * target * (1 - target * output).clamp(min=0)


def _samples(x: Tensor) -> Tensor:
    """[a, b, ...] → [a, b, i]."""
    return x if x.dim() == 3 else x.flatten(2) if x.dim() > 3 else x[..., None]


def _forward(layer: Layer, h: Tensor) -> Tensor:
    """h Wᵀ + b: [a, b, i] → [a, b, o]."""
    W, WT, b = layer
    if W.shape[1] < _NARROW:
        return (torch.bmm(W, h.mT) if b is None else torch.baddbmm(b.mT, W, h.mT)).mT
    return torch.bmm(h, WT) if b is None else torch.baddbmm(b, h, WT)


@lru_cache
def _minus_one(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full((1, 1, 1), -1.0, dtype=dtype, device=device)
