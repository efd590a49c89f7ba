"""The gradient of fully connected networks for a stack of clients, written out.

Small networks spend most of a training step in the machinery of automatic differentiation. For the plain ones (linear
layers with ReLU between them; cross-entropy, squared or hinge loss) the chain rule is short enough to write down, as
batched matrix products that land directly in the flat gradient. Tests hold it equal to autograd's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .core import Batch


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
        weights, places = params, out
        layers: list[
            tuple[Tensor, Tensor, Tensor | None]
        ] = []  # weight, where its gradient goes, where the bias's goes
        inputs: list[Tensor] = []
        h, at = batch.x.flatten(2) if batch.x.dim() > 2 else batch.x[..., None], 0
        for i, biased in enumerate(self.biases):
            h = h.relu_() if i else h
            inputs.append(h)
            W, b = weights[at], weights[at + 1] if biased else None
            layers.append((W, places[at], places[at + 1] if biased else None))
            h = torch.bmm(h, W.mT) if b is None else torch.baddbmm(b[:, None], h, W.mT)
            at += 1 + biased
        slope = self._loss_slope(h, batch.y).mul_(batch.weight[..., None])
        for i in reversed(range(len(layers))):
            W, into, bias_into = layers[i]
            torch.bmm(slope.mT, inputs[i], out=into)
            if bias_into is not None:
                torch.sum(slope, 1, out=bias_into)
            if i:
                slope = torch.bmm(slope, W)
                slope = slope.mul_(inputs[i] > 0)

    def _loss_slope(self, output: Tensor, y: Tensor) -> Tensor:
        """∂loss/∂output of every sample, [a, b, k]."""
        if self.loss == "cross-entropy":
            slope = torch.softmax(output, -1)
            return slope.scatter_add_(2, y[..., None], slope.new_full((1, 1, 1), -1.0).expand(*y.shape, 1))
        target = y[..., None]
        if self.loss == "squared":
            return output - target
        return torch.where(target * output < 1, -target, 0.0)
