"""The gradient of fully connected networks for a stack of clients, written out.

Small networks spend most of a training step in the machinery of automatic differentiation. For the plain ones (linear
layers with ReLU between them; cross-entropy, squared or hinge loss) the chain rule is short enough to write down, as
batched matrix products that land directly in the flat gradient. Tests hold it equal to autograd's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .core import Batch, Pull


@dataclass(frozen=True)
class DenseNet:
    """Linear layers with ReLU between them; `biases[l]` says whether layer l has a bias."""

    biases: tuple[bool, ...]
    loss: str

    @classmethod
    def of(cls, model: nn.Module, loss: str) -> DenseNet | None:
        """The model as a dense network, or None if it is anything else."""
        if not isinstance(model, nn.Sequential) or loss not in ("cross-entropy", "squared", "hinge"):
            return None
        chain = [m for m in model if not isinstance(m, nn.Flatten | nn.Identity)]
        linear, between = chain[0::2], chain[1::2]
        plain = all(type(m) is nn.Linear for m in linear) and all(type(m) is nn.ReLU for m in between)
        if not plain or len(linear) != len(between) + 1:
            return None
        if any(isinstance(m, nn.Flatten) and (i > 0 or m.start_dim != 1) for i, m in enumerate(model)):
            return None
        return cls(tuple(m.bias is not None for m in linear if isinstance(m, nn.Linear)), loss)

    def grad(self, params: list[Tensor], batch: Batch, out: list[Tensor]) -> None:
        """Write the gradients of every client's weighted loss into `out`, views like `params`, each [a, ...]."""
        for at, biased, slope, h in self._products(params, batch):
            torch.bmm(slope.mT, h, out=out[at])
            if biased:
                torch.sum(slope, 1, out=out[at + 1])

    def descend_(self, theta: Tensor, params: list[Tensor], batch: Batch, lr: float, pull: Pull) -> None:
        """theta −= lr · gradient, without a gradient in between: the products are added to theta's views `params`."""
        products = self._products(params, batch)  # all of them before theta moves
        pull(theta, lr)
        for at, biased, slope, h in products:
            params[at].baddbmm_(slope.mT, h, alpha=-lr)
            if biased:
                params[at + 1].sub_(slope.sum(1), alpha=lr)

    def _products(self, params: list[Tensor], batch: Batch) -> list[tuple[int, bool, Tensor, Tensor]]:
        """A layer's gradient is slopeᵀ·input: (place of its weight, has a bias, slope [a, b, o], input [a, b, i])."""
        h, at = batch.x.flatten(2) if batch.x.dim() > 2 else batch.x[..., None], 0
        inputs: list[tuple[int, bool, Tensor]] = []
        for i, biased in enumerate(self.biases):
            h = h.relu_() if i else h
            inputs.append((at, biased, h))
            W = params[at]
            h = torch.baddbmm(params[at + 1][:, None], h, W.mT) if biased else torch.bmm(h, W.mT)
            at += 1 + biased
        slope = self._loss_slope(h, batch.y).mul_(batch.weight[..., None])
        products = []
        for i in reversed(range(len(inputs))):
            at, biased, h = inputs[i]
            products.append((at, biased, slope, h))
            if i:
                slope = torch.bmm(slope, params[at]).mul_(h > 0)
        return products

    def _loss_slope(self, output: Tensor, y: Tensor) -> Tensor:
        """∂loss/∂output of every sample, [a, b, k]."""
        if self.loss == "cross-entropy":
            slope = torch.softmax(output, -1)
            return slope.scatter_add_(2, y[..., None], slope.new_full((1, 1, 1), -1.0).expand(*y.shape, 1))
        target = y[..., None]
        if self.loss == "squared":
            return output - target
        return torch.where(target * output < 1, -target, 0.0)
