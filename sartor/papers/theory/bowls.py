"""A task without a network: f_i(θ) = Σ_s weight · y_s Σ_j φ(θ_j − x_sj), the samples' mean distance from θ.

With φ(t) = t²/2 it is point estimation; |t|^p has the Kurdyka–Łojasiewicz exponent 1 − 1/p; log(1 + t²) is not convex.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...core import Back, Batch, Blocks, Dense, Neighbours, Pull, State
from ...errors import need, one_of


@dataclass
class Bowl:
    """Clients whose samples x [d] are centres of bowls of steepness y."""

    size: int
    shape: str = "power"  # |t|^p / p, or "log": log(1 + t²)
    p: float = 2.0
    start: float = 0.0  # every coordinate of the first model
    random: bool = False
    dense: Dense | None = None
    has_statistics: bool = False
    kind: str = "custom"
    metric: Callable[[Tensor, Tensor], Tensor] | None = None
    named_metric: str | None = None
    class_weights: Tensor | None = None
    neighbours: Neighbours | None = None
    blocks: Blocks = field(default_factory=Blocks)

    def __post_init__(self) -> None:
        one_of("a bowl", "shape", self.shape, ["power", "log"])
        need(self.p > 1, f"a bowl is smooth for p > 1; got p = {self.p}.")

    def _value(self, t: Tensor) -> Tensor:
        return torch.log1p(t**2) if self.shape == "log" else t.abs() ** self.p / self.p

    def _slope(self, t: Tensor) -> Tensor:
        if self.shape == "log":
            return 2 * t / (1 + t**2)
        return t if self.p == 2 else t.sign() * t.abs() ** (self.p - 1)

    def init(self, seed: int | None) -> Tensor:
        return torch.full((self.size,), self.start, dtype=torch.float64)

    def loss(self, theta: Tensor, batch: Batch, train: bool = True) -> Tensor:
        return (batch.weight * self.errors(self.predict(theta, batch.x), batch.y)).sum(1)

    def grad(self, theta: Tensor, batch: Batch, train: bool = True) -> Tensor:
        slope = self._slope(theta[:, None] - batch.x)
        return ((batch.weight * batch.y)[..., None] * slope).sum(1)

    def descend_(self, theta: Tensor, batch: Batch, lr: float, pull: Pull) -> None:
        g = self.grad(theta, batch)
        pull(theta, lr)
        theta.sub_(g, alpha=lr)

    def quadratic(self, batch: Batch) -> tuple[Tensor, Tensor]:
        need(self.shape == "power" and self.p == 2, "the exact solver needs a quadratic bowl, p = 2.")
        scale = batch.weight * batch.y
        eye = torch.eye(self.size, dtype=batch.x.dtype)
        return scale.sum(1)[:, None, None] * eye, (scale[..., None] * batch.x).sum(1)

    def predict(self, theta: Tensor, x: Tensor, statistics: State | None = None) -> Tensor:
        return self._value(theta[:, None] - x).sum(2, keepdim=True)

    def vjp(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Back]:
        inner = self._slope(theta[:, None] - batch.x)
        return self.predict(theta, batch.x), lambda slope: (slope * inner).sum(1)

    def errors(self, output: Tensor, y: Tensor) -> Tensor:
        return y * output[..., 0]

    def correct(self, output: Tensor, y: Tensor) -> Tensor:
        raise NotImplementedError("a bowl has no classes")

    def design(self, x: Tensor) -> Tensor:
        raise NotImplementedError("a bowl is not linear")

    def statistics(self, theta: Tensor, batch: Batch) -> State:
        return {}

    def features(self, theta: Tensor, x: Tensor, statistics: State | None = None) -> Tensor:
        raise NotImplementedError("a bowl has no layers")

    def remembered(self, features: Tensor, labels: Tensor, share: Tensor) -> State:
        raise NotImplementedError("a bowl remembers no samples")
