"""PyTorch's attention for a stack of clients at once.

torch.func has no rule for F.scaled_dot_product_attention and would run through it client by client, with a copy of all
that goes in and comes out. As long as `StackedAttention` lasts it is this function instead, whose rule for vmap lays
the clients' samples one after the other, so that numbers stay PyTorch's. So do masks and dropout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class StackedAttention(TorchFunctionMode):
    """As long as it lasts, attention is computed here where it can be."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if func is F.scaled_dot_product_attention and _is_plain(*args, **given):
            return _AttentionForward.apply(given.get("is_causal", False), given.get("scale"), *args)[0]  # type: ignore[no-untyped-call]
        return func(*args, **given)


def _is_plain(q: Tensor, k: Tensor, v: Tensor, *more: object, **named: object) -> bool:
    """Whether these are heads' queries, keys and values [b, h, t, p] on a CPU, and nothing else is asked for."""
    alike = q.shape[:-2] == k.shape[:-2] and k.shape == v.shape and q.shape[-1] == k.shape[-1] and q.dim() == 4
    return alike and q.device.type == "cpu" and not more and not named.keys() - {"is_causal", "scale"}


class _AttentionForward(torch.autograd.Function):
    """(causal, scale, q, k, v) → what is seen [b, h, t, p], and the logarithms of the weights' sums."""

    @staticmethod
    def forward(causal: bool, scale: float | None, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.how = inputs[:2]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs[2:], *output)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *_AttentionBackward.apply(*ctx.how, slopes[0], *ctx.saved_tensors)  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], causal: bool, scale: float | None, *tensors: Tensor) -> Any:
        return _stacked(_AttentionForward, info.batch_size, in_dims[2:], causal, scale, tensors)


class _AttentionBackward(torch.autograd.Function):
    """(causal, scale, the slope of what is seen, q, k, v, what _AttentionForward gave) → the slopes of q, k and v."""

    @staticmethod
    def forward(causal: bool, scale: float | None, *tensors: Tensor) -> tuple[Tensor, ...]:
        back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        return tuple(back(*tensors, 0.0, causal, scale=scale))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> None:
        raise NotImplementedError("the gradient of attention has no gradient.")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], causal: bool, scale: float | None, *tensors: Tensor) -> Any:
        return _stacked(_AttentionBackward, info.batch_size, in_dims[2:], causal, scale, tensors)


def _stacked(
    function: type[torch.autograd.Function],
    size: int,
    dims: Sequence[int | None],
    causal: bool,
    scale: float | None,
    tensors: Sequence[Tensor],
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """The function of tensors [size, b, ...] as that of [size · b, ...]."""
    flat = [
        (x.expand(size, *x.shape) if d is None else x.movedim(d, 0)).flatten(0, 1)
        for x, d in zip(tensors, dims, strict=True)
    ]
    found = function.apply(causal, scale, *flat)  # type: ignore[no-untyped-call]
    return tuple(v.unflatten(0, (size, -1)) for v in found), (0,) * len(found)
