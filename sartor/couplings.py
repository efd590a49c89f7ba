"""Couplings λ·g(θ, anchor): what ties a client's model to what the federation knows.

A coupling adds its gradient to the data gradient in place, tells its value, and, where g is quadratic, gives the two
terms that an exact solver adds to the normal equations. λ is a number or `[c, 1]`. Rows are clients; the first `a`
are at work.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from .core import Number
from .errors import SartorError, need
from .seeds import stream

_KEEP_BYTES = 1 << 29  # a projection up to this size is made once and kept; a larger one is made anew, block by block
_BLOCK_BYTES = 1 << 26


def first(value: Number, a: int) -> Number:
    """A setting of the first a clients."""
    return value[:a] if isinstance(value, Tensor) else value


def subtract_(theta: Tensor, value: Tensor, times: Number) -> None:
    """theta −= times · value, in place, for the first a = len(theta) clients."""
    if isinstance(times, Tensor):
        theta.sub_(times[: len(theta)] * value)
    else:
        theta.sub_(value, alpha=times)


@dataclass(frozen=True)
class Free:
    """g = 0: the client is on its own."""

    def value(self, theta: Tensor) -> Tensor:
        return theta.new_zeros(len(theta))

    def add_grad_(self, grad: Tensor, theta: Tensor) -> None:
        pass

    def pull_(self, theta: Tensor, step: Number) -> None:
        pass

    def normal_terms(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        return theta.new_zeros(()), theta.new_zeros(())


@dataclass(frozen=True)
class Quadratic:
    """λ/2 ‖θ − a‖², the Moreau envelope's term."""

    lam: Number
    anchor: Tensor  # [c, d]

    def value(self, theta: Tensor) -> Tensor:
        return 0.5 * (self.lam * (theta - self.anchor) ** 2).sum(1)

    def add_grad_(self, grad: Tensor, theta: Tensor) -> None:
        a = len(theta)
        if isinstance(self.lam, Tensor):
            grad.addcmul_(self.lam[:a], theta - self.anchor[:a])
        else:
            grad.add_(theta, alpha=self.lam).sub_(self.anchor[:a], alpha=self.lam)

    def pull_(self, theta: Tensor, step: Number) -> None:
        a = theta.shape[0]
        anchor = self.anchor if a == self.anchor.shape[0] else self.anchor[:a]
        theta.lerp_(anchor, step * first(self.lam, a))

    def normal_terms(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        eye = torch.eye(theta.shape[1], dtype=theta.dtype, device=theta.device)
        lam = self.lam[..., None] if isinstance(self.lam, Tensor) else self.lam
        return lam * eye, self.lam * self.anchor


@dataclass(frozen=True)
class Linear:
    """<a, θ>: a constant added to the gradient (SCAFFOLD's control variate, ADMM's dual)."""

    slope: Tensor  # [c, d]

    def value(self, theta: Tensor) -> Tensor:
        return (self.slope * theta).sum(1)

    def add_grad_(self, grad: Tensor, theta: Tensor) -> None:
        grad.add_(self.slope[: len(theta)])

    def pull_(self, theta: Tensor, step: Number) -> None:
        subtract_(theta, self.slope[: len(theta)], step)

    def normal_terms(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        return theta.new_zeros(()), -self.slope


def lp_slope(x: Tensor, p: float, norm: bool, size: Tensor) -> Tensor:
    """The slope of ‖x‖_p (`norm`) or of (1/p)‖x‖_p^p at x [a, d], 0 at 0; below the rounding of `size` x counts as 0.

    At the kink of p = 1 chance must not decide between −1 and +1.
    """
    x = x.masked_fill(x.abs() <= 8 * torch.finfo(x.dtype).eps * size, 0.0)
    if p == 1:
        return x.sign()
    if norm:
        x = x / torch.linalg.vector_norm(x, p, dim=1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    return x.sign() * x.abs() ** (p - 1)


@dataclass(frozen=True)
class LpNorm:
    """λ‖θ − a‖_p (RSA), or with norm=False (λ/p)‖θ − a‖_p^p."""

    lam: Number
    anchor: Tensor  # [c, d]
    p: float = 1.0
    norm: bool = True

    def slope(self, theta: Tensor) -> Tensor:
        """∂/∂θ without λ, [a, d]."""
        a = self.anchor[: len(theta)]
        return lp_slope(theta - a, self.p, self.norm, a.abs())

    def value(self, theta: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(theta - self.anchor, self.p, dim=1)
        lam = self.lam[:, 0] if isinstance(self.lam, Tensor) else self.lam
        value: Tensor = lam * (length if self.norm else length**self.p / self.p)
        return value

    def add_grad_(self, grad: Tensor, theta: Tensor) -> None:
        grad.add_(first(self.lam, len(theta)) * self.slope(theta))

    def pull_(self, theta: Tensor, step: Number) -> None:
        theta.sub_(step * first(self.lam, len(theta)) * self.slope(theta))

    def normal_terms(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        need(
            self.p == 2 and not self.norm,
            f"an exact step needs a quadratic coupling: p = 2 with norm=False; got p = {self.p}. Use the sgd solver.",
        )
        return Quadratic(self.lam, self.anchor).normal_terms(theta)


@dataclass(frozen=True)
class Projection:
    """P [k, d]: Gaussian rows of unit length, a function of the seed alone, so it is never sent.

    `kind` is "gaussian", "orthogonal" (the same rows, orthonormalised) or "identity" (k = d).
    """

    rows: int  # k
    size: int  # d
    seed: int
    kind: str = "gaussian"

    def __post_init__(self) -> None:
        need(
            self.kind in ("gaussian", "orthogonal", "identity"),
            f"a projection is gaussian, orthogonal or identity; got {self.kind!r}.",
        )
        need(
            1 <= self.rows <= self.size,
            f"the subspace needs 1 <= d_sub <= d = {self.size} (the model's parameters); got d_sub = {self.rows}.",
        )
        need(
            self.kind != "identity" or self.rows == self.size,
            f"the identity projection needs d_sub = d = {self.size}; got {self.rows}.",
        )
        need(
            self.kind != "orthogonal" or self.rows * self.size * 8 <= _KEEP_BYTES,
            f"an orthogonal projection of {self.rows} x {self.size} is too large to keep; use the gaussian one.",
        )

    def project(self, theta: Tensor) -> Tensor:
        """Pθ: [c, d] → [c, k]."""
        if self.kind == "identity":
            return theta.clone()
        return torch.cat([theta @ block.T for block in self._blocks(theta)], dim=1)

    def lift(self, small: Tensor, into: Tensor | None = None) -> Tensor:
        """Pᵀc: [c, k] → [c, d], added to `into` where given."""
        if self.kind == "identity":
            return small.clone() if into is None else into.add_(small)
        out = small.new_zeros(len(small), self.size) if into is None else into
        at = 0
        for block in self._blocks(small):
            out.addmm_(small[:, at : at + len(block)], block)
            at += len(block)
        return out

    def _blocks(self, like: Tensor) -> list[Tensor]:
        each = max(1, _BLOCK_BYTES // (self.size * 8))
        edges = [*range(0, self.rows, each), self.rows]
        keep = self.rows * self.size * like.element_size() <= _KEEP_BYTES
        make = _kept_rows if keep else _make_rows
        if keep:
            edges = [0, self.rows]
        return [make(self, lo, hi, like.dtype, like.device) for lo, hi in pairwise(edges)]


def _make_rows(p: Projection, lo: int, hi: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    rows = np.stack([stream(p.seed, "projection", j).standard_normal(p.size) for j in range(lo, hi)])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if p.kind == "orthogonal":
        rows = np.linalg.qr(rows.T)[0].T
    return torch.as_tensor(rows, dtype=dtype).to(device)


_kept_rows = lru_cache(maxsize=4)(_make_rows)


@dataclass(frozen=True)
class Projected:
    """(λ/p) ‖a − Pθ‖_p^p with c = a − Pθ: the gradient in θ is −λ Pᵀ(sign(c)|c|^{p−1}), with sign(0) = 0."""

    lam: Number
    anchor: Tensor  # [c, k]
    P: Projection
    p: float = 2.0

    def slope(self, theta: Tensor) -> Tensor:
        """sign(c)|c|^{p−1}, [a, k]: the derivative of (1/p)‖c‖_p^p, used by both the θ-step and the w-step."""
        a, b = self.anchor[: len(theta)], self.P.project(theta)
        c = a - b
        if self.p == 2:
            return c
        # Below the rounding error of Pθ (rows of length 1), c is 0: at the kink chance must not decide between −1, +1.
        rounding = 8 * torch.finfo(c.dtype).eps * (a.abs() + theta.norm(dim=1, keepdim=True))
        c = c.masked_fill(c.abs() <= rounding, 0.0)
        return c.sign() if self.p == 1 else c.sign() * c.abs() ** (self.p - 1)

    def value(self, theta: Tensor) -> Tensor:
        c = self.anchor - self.P.project(theta)
        return (self.lam * c.abs() ** self.p).sum(1) / self.p

    def add_grad_(self, grad: Tensor, theta: Tensor) -> None:
        self.P.lift(-first(self.lam, len(theta)) * self.slope(theta), into=grad)

    def pull_(self, theta: Tensor, step: Number) -> None:
        self.P.lift(step * first(self.lam, len(theta)) * self.slope(theta), into=theta)

    def normal_terms(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        if self.p != 2:
            raise SartorError(
                f"an exact step needs p = 2 (a quadratic coupling); got p = {self.p}. Use the sgd solver."
            )
        eye = torch.eye(self.P.size, dtype=theta.dtype, device=theta.device)
        gram = self.P.lift(self.P.project(eye))
        lam = self.lam[..., None] if isinstance(self.lam, Tensor) else self.lam
        return lam * gram, self.lam * self.P.lift(self.anchor)
