"""One linear layer under a convex loss, written out: value, slope and curvature over all of each client's data.

With outputs z = Wx + b, a sample's loss ℓ(z, y) and weights that sum to 1 over a client's samples:

    f = Σ ℓ(z, y)        ∂f/∂W = Σ ℓ' xᵀ        ∂²f/∂W_k ∂W_l = Σ ℓ''_kl x xᵀ        (b is the weight of a constant 1)

    cross-entropy    ℓ' = p − e_y, p = softmax(z)          ℓ'' = diag(p) − p pᵀ
    squared          ℓ' = z − y                            ℓ'' = 1
    squared hinge    ℓ' = −2y max(0, 1 − yz)               ℓ'' = 2 where yz < 1, else 0

In double precision, whatever the model's: what a solver is to minimise to the end must not be lost in rounding.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core import WHOLE, Batch, Dense

_WIDE = 256  # parameters
LOSSES = ("cross-entropy", "squared", "squared-hinge")


class OneLayer:
    """f_i of a stack of clients, all of whose training data are in one batch."""

    def __init__(self, dense: Dense, batch: Batch) -> None:
        self.loss_name, self.k, self.biased = dense.loss, dense.outputs, dense.biases[0]
        x = batch.x.flatten(2).double()
        self.X = torch.cat([x, x.new_ones(*x.shape[:2], 1)], dim=2) if self.biased else x  # [c, n, p]
        self.y, self.weight = batch.y, batch.weight.double()
        features = x.shape[2]
        self.penalised = torch.cat([x.new_ones(self.k * features), x.new_zeros(self.k * self.biased)])

    def loss(self, theta: Tensor) -> Tensor:
        """[c, d] → [c]."""
        z = self._outputs(theta)
        if self.loss_name == "cross-entropy":
            each = F.cross_entropy(z.flatten(0, 1), self.y.flatten(), reduction="none").view_as(self.weight)
        elif self.loss_name == "squared":
            each = 0.5 * (z[..., 0] - self.y) ** 2
        else:
            each = (1 - self.y * z[..., 0]).clamp(min=0) ** 2
        return (each * self.weight).sum(1)

    def grad(self, theta: Tensor, at_work: Tensor | None = None) -> Tensor:
        """[c, d] → [c, d]; who counts work, counts that of those at work."""
        z = self._outputs(theta)
        if self.loss_name == "cross-entropy":
            slope = torch.softmax(z, -1)
            slope.scatter_add_(2, self.y[..., None], slope.new_full((1, 1, 1), -1.0).expand(*self.y.shape, 1))
        elif self.loss_name == "squared":
            slope = z - self.y[..., None]
        else:
            target = self.y[..., None]
            slope = -2 * target * (1 - target * z).clamp(min=0)
        return self._flat(torch.bmm((slope * self.weight[..., None]).mT, self.X))

    def hessian(self, theta: Tensor, part: slice = WHOLE) -> Tensor:
        """[c, d] → [c, k, k], of the coordinates in `part`."""
        alone = self.biased and part.start == theta.shape[1] - self.k  # intercepts: their column is all ones
        if alone and theta.shape[1] > _WIDE:  # it rounds otherwise, and saves little where models are small
            return self._curvature(theta, self.X[..., -1:]).flatten(3).flatten(1, 2)
        return self._flat(self._flat(self._curvature(theta, self.X)).movedim(-1, 1))[:, part, part]

    def _curvature(self, theta: Tensor, X: Tensor) -> Tensor:
        """[c, outputs, p, outputs, p], of the inputs X [c, n, p]."""
        out = X.new_empty(len(theta), self.k, X.shape[2], self.k, X.shape[2])
        if self.loss_name == "cross-entropy":
            prob = torch.softmax(self._outputs(theta), -1)
            for i in range(self.k):
                for j in range(i, self.k):
                    bend = prob[..., i] * (float(i == j) - prob[..., j])
                    out[:, i, :, j] = self._gram(bend, X)
                    out[:, j, :, i] = out[:, i, :, j]
        elif self.loss_name == "squared":
            out[:, 0, :, 0] = self._gram(torch.ones_like(self.weight), X)
        else:
            out[:, 0, :, 0] = self._gram(2.0 * (self.y * self._outputs(theta)[..., 0] < 1), X)
        return out

    def _outputs(self, theta: Tensor) -> Tensor:
        """[c, n, k]."""
        features = self.k * (self.X.shape[2] - self.biased)
        W = theta[:, :features].reshape(len(theta), self.k, -1)
        return torch.bmm(self.X, (torch.cat([W, theta[:, features:, None]], dim=2) if self.biased else W).mT)

    def _flat(self, parts: Tensor) -> Tensor:
        """[..., k, p] → [..., d] in the order of θ: all weights, then all intercepts."""
        if not self.biased:
            return parts.flatten(-2)
        return torch.cat([parts[..., :-1].flatten(-2), parts[..., -1]], dim=-1)

    def _gram(self, bend: Tensor, X: Tensor) -> Tensor:
        """Σ ℓ'' x xᵀ, [c, p, p]."""
        if X.shape[2] == 1:  # a product with one column would round by the number of clients beside
            return (X * X * (self.weight * bend)[..., None]).sum(1, keepdim=True)
        return torch.bmm((X * (self.weight * bend)[..., None]).mT, X)


def one_layer(dense: Dense | None) -> Dense | None:
    """The model, where it is one linear layer under a convex and smooth loss; else None."""
    fits = dense is not None and len(dense.biases) == 1 and dense.loss in LOSSES
    return dense if fits else None
