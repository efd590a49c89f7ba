"""Products of matrices by oneDNN, where they are large enough: PyTorch takes MKL for them, which leaves half of the
vector units of some processors (AMD's) idle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode

_LEAST, _NARROW = 1 << 21, 32  # multiplications of a product, and its least side, from which on oneDNN was faster


@lru_cache
def available() -> bool:
    """Whether this PyTorch has them, for matrices as they lie."""
    one = torch.ones(_NARROW, _NARROW)
    try:
        return torch.equal(_product(one, one), one @ one)
    except (AttributeError, RuntimeError, TypeError):  # it is not public: not there, or of another signature
        return False


def bmm(a: Tensor, b: Tensor) -> Tensor:
    """[c, n, k] [c, k, m] → [c, n, m]."""
    (n, k), m = a.shape[1:], b.shape[2]
    large = n * k * m >= _LEAST and min(n, k, m) >= _NARROW
    if not (large and a.dtype == torch.float32 and a.device.type == "cpu" and available()):
        return torch.bmm(a, b)
    if len(a) == 1:
        return _product(a[0], b[0])[None]
    out = a.new_empty(len(a), n, m)
    for i in range(len(a)):
        out[i] = _product(a[i], b[i])
    return out


def _product(a: Tensor, b: Tensor) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(a, b.T, None, "none", [], "")
    return found


def with_products(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function, whose products of stacks of matrices are these."""

    def calls(*given: Any) -> Tensor:
        with _Products():  # type: ignore[no-untyped-call]
            return function(*given)

    return calls


class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return bmm(*args) if func is torch.ops.aten.bmm.default else func(*args, **(kwargs or {}))


def put_into(recorded: fx.GraphModule) -> Callable[..., Tensor]:
    """The same recorded operations with these products."""
    for node in recorded.graph.nodes:
        if node.target is torch.ops.aten.bmm.default:
            node.target = bmm
    recorded.recompile()
    return recorded
