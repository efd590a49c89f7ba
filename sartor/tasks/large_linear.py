"""Large linear layers, multiplied by oneDNN: PyTorch takes MKL for them, which leaves half of the vector units of some
processors (AMD's) idle.

The class of such layers is swapped; parameters and their names stay. A stack of clients is multiplied client by
client, and which layers are large depends on the model and the shape of a sample alone, so that a client's numbers do
not depend on who is beside it. For the same reason weights' gradients stay PyTorch's: in oneDNN's sums over samples the
padding of a batch would change the last bits.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

_LEAST = 1 << 17  # multiplications for a sample, from which on oneDNN is faster though it takes clients one by one


@lru_cache
def available() -> bool:
    """Whether this PyTorch multiplies matrices as they lie by oneDNN."""
    one = torch.ones(32, 32)
    try:
        return torch.equal(_by_onednn(one, one, one[0]), one @ one + 1)
    except (AttributeError, RuntimeError, TypeError):  # it is not public: not there, or of another signature
        return False


def _by_onednn(x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, W, b, "none", [], "")
    return found


class _Linear(torch.autograd.Function):
    """x [n, k], W [m, k], b [m] or none → x Wᵀ + b."""

    @staticmethod
    def forward(x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        return _by_onednn(x, W, b)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        (x, W), (of_x, of_W, of_b), slope = ctx.saved_tensors, ctx.needs_input_grad, slopes[0]
        dx = _Linear.apply(slope, W.mT, None) if of_x else None  # type: ignore[no-untyped-call]
        return dx, slope.mT @ x if of_W else None, slope.sum(0) if of_b else None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], x: Tensor, W: Tensor, b: Tensor | None) -> tuple[Tensor, int]:
        def each(value: Tensor | None, dim: int | None) -> list[Any]:
            return [value] * info.batch_size if value is None or dim is None else list(value.unbind(dim))

        rows = zip(*(each(v, d) for v, d in zip((x, W, b), in_dims, strict=True)), strict=True)
        found = [_Linear.apply(*row) for row in rows]  # type: ignore[no-untyped-call]
        return torch.stack(found) if len(found) > 1 else found[0][None], 0


class LargeLinear(nn.Linear):
    """nn.Linear."""

    def large(self, steps: int) -> bool:
        """Whether it is, for samples that are sequences of so many steps."""
        return steps * self.in_features * self.out_features >= _LEAST

    def forward(self, input: Tensor) -> Tensor:
        if not self.large(prod(input.shape[1:-1])) or input.dtype != torch.float32 or input.device.type != "cpu":
            return super().forward(input)
        found: Tensor = _Linear.apply(input.flatten(0, -2), self.weight, self.bias)  # type: ignore[no-untyped-call]
        return found.view(*input.shape[:-1], self.out_features)


def put_into(model: nn.Module, but: str = "") -> None:
    """Swap the class of the model's linear layers, in place; `but` is the name of one that stays."""
    if not available():
        return
    for name, module in model.named_modules():
        if type(module) is nn.Linear and name != but:
            module.__class__ = LargeLinear
