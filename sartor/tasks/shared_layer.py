"""One linear layer under a convex loss, as convex.py, where several models in a row have the same data.

Runs that differ in a setting train on the same samples. So the samples X [u, n, p] of u clients are there once, each
for S models, and what would be u·S small products becomes u larger ones, which processors like:

    outputs    X [u, n, p] · W [u, p, S k]            slopes    ℓ' [u, S k, n] · X [u, n, p]
    curvatures ℓ'' [u, S, n] · XX [u, n, p(p+1)/2],   with every sample's x xᵀ, of which half is enough, made once

Two classes are told apart by one output, z = (w_1 − w_0)x + b_1 − b_0: with p = 1/(1 + e^{−z}) the slope is p − y for
the second class and its negative for the first, the curvature p(1 − p) for each and its negative between them. Where
the same D is added to both classes on the diagonal, Newton's equations for slopes g, h and steps a, b fall apart into
sum and difference, with an eighth of the work: D (a + b) = g + h and (2G + D)(a − b) = g − h, G of one class.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core import Back, Batch, Dense
from .convex import OneLayer

FEWEST = 3  # models on the same data that gain by it
_MOST = 1 << 24  # numbers in XX
_LINEAR = 40.0  # log(1 + e^z) = z above it, in double precision


def worth_it(batch: Batch, copies: int) -> bool:
    """Whether so many models on each client's samples gain by this."""
    u, n = batch.weight.shape
    p = batch.x[0, 0].numel() + 1
    return copies >= FEWEST and u * n * p * (p + 1) // 2 <= _MOST


class SharedLayer(OneLayer):
    """f of u·S rows, S after each other on one client's data; all training data of the u clients are in one batch."""

    def __init__(self, dense: Dense, batch: Batch, copies: int) -> None:
        super().__init__(dense, batch)
        (self.u, self.n, self.p), self.S = self.X.shape, copies
        self.y, self.weight = self.y[..., None], self.weight[..., None]  # [u, n, 1]
        self.two = self.loss_name == "cross-entropy" and self.k == 2
        i, j = torch.triu_indices(self.p, self.p)
        self.XX = self.X[..., i] * self.X[..., j]  # [u, n, p(p+1)/2]
        places = i.new_empty(self.p, self.p)
        places[i, j] = places[j, i] = torch.arange(len(i))
        self.unpack = places.flatten()  # where in XX the product of each two is
        self._said: tuple[Tensor, int, Tensor] | None = None  # the last θ, its version and what it gives

    def loss(self, theta: Tensor) -> Tensor:
        """[u·S, d] → [u·S]."""
        z = self._outputs(theta)
        if self.two:
            each = F.softplus(z[..., 0] * (1 - 2 * self.y), threshold=_LINEAR)
        elif self.loss_name == "cross-entropy":
            each = torch.logsumexp(z, 3) - z.gather(3, self.y[..., None].expand(-1, -1, self.S, 1))[..., 0]
        elif self.loss_name == "squared":
            each = 0.5 * (z[..., 0] - self.y) ** 2
        else:
            each = (1 - self.y * z[..., 0]).clamp(min=0) ** 2
        return (each * self.weight).sum(1).flatten()

    def grad(self, theta: Tensor, at_work: Tensor | None = None) -> Tensor:
        """[u·S, d] → [u·S, d]."""
        z, target = self._outputs(theta), self.y[..., None]
        if self.two:
            slope = torch.sigmoid(z) - target
        elif self.loss_name == "cross-entropy":
            slope = torch.softmax(z, 3) - F.one_hot(self.y, self.k)
        elif self.loss_name == "squared":
            slope = z - target
        else:
            slope = -2 * target * (1 - target * z).clamp(min=0)
        slope = (slope * self.weight[..., None]).flatten(2)
        found = torch.bmm(slope.mT, self.X).view(len(theta), -1, self.p)
        return self._flat(torch.cat([-found, found], 1) if self.two else found)

    def _curvature(self, theta: Tensor, X: Tensor) -> Tensor:
        """[u·S, k, p, k, p], of all inputs or of the last, a constant 1."""
        if not self.two:
            return super()._curvature(theta, X)
        return torch.einsum("cpq,ij->cipjq", self._gram(self._bend(theta), X), X.new_tensor([[1.0, -1.0], [-1.0, 1.0]]))

    def equations(self, theta: Tensor, slope: Tensor, added: Tensor) -> tuple[Tensor, Tensor, Back]:
        """(∇²f + D) step = slope, with a diagonal D that is `added` [u·S, d], as small as it can be: H and g, and what
        makes the step of H⁻¹g."""
        D, g = self._by_class(added), self._by_class(slope)
        if not self.two or not torch.equal(D[:, 0], D[:, 1]):
            return self.hessian(theta) + torch.diag_embed(added), slope, lambda step: step
        D, curved = D[:, 0], self._gram(2 * self._bend(theta), self.X)
        curved.diagonal(dim1=1, dim2=2).add_(D)
        both = torch.where(D > 0, g.sum(1) / D, 0.0)  # of what nothing holds, the two slopes cancel

        def whole(apart: Tensor) -> Tensor:
            return self._flat(torch.stack([both + apart, both - apart], 1) / 2)

        return curved, g[:, 0] - g[:, 1], whole

    def _bend(self, theta: Tensor) -> Tensor:
        """p(1 − p) of two classes, [u, n, S]."""
        p = torch.sigmoid(self._outputs(theta)[..., 0])
        return p * (1 - p)

    def _by_class(self, flat: Tensor) -> Tensor:
        """[c, d] → [c, k, p]: each class's weights and intercept."""
        features = self.k * (self.p - self.biased)
        W = flat[:, :features].reshape(len(flat), self.k, -1)
        return torch.cat([W, flat[:, features:, None]], dim=2) if self.biased else W

    def _outputs(self, theta: Tensor) -> Tensor:
        """[u, n, S, k]; of two classes [u, n, S, 1], by how much the second is ahead."""
        if self._said is not None and self._said[0] is theta and self._said[1] == theta._version:
            return self._said[2]  # a solver asks for value, slope and curvature at one place
        W = self._by_class(theta)
        W = (W[:, 1:] - W[:, :1] if self.two else W).reshape(self.u, -1, self.p)
        z = torch.bmm(self.X, W.mT).view(self.u, self.n, self.S, -1)
        self._said = theta, theta._version, z
        return z

    def _gram(self, bend: Tensor, X: Tensor) -> Tensor:
        """Σ ℓ'' x xᵀ, [u, n, S] → [u·S, p, p]."""
        bend = (bend * self.weight).expand(-1, -1, self.S)
        if X.shape[2] < self.p:
            return bend.sum(1).view(-1, 1, 1)
        half = torch.bmm(bend.mT, self.XX).flatten(0, 1)
        return half.index_select(1, self.unpack).view(-1, self.p, self.p)
