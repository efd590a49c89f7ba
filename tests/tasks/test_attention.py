"""Attention for a stack of clients: PyTorch's own numbers, and no warning that it runs in a loop."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap

from sartor.tasks import attention
from sartor.tasks.attention import StackedAttention

Given = tuple[Tensor, Tensor, Tensor]


def drawn(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=draw, dtype=dtype) for shape in shapes]


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many samples each call for a stack has, of all clients together."""
    seen: list[int] = []
    plain = attention._stacked

    def noted(function: type, size: int, dims: tuple[int | None, ...], *rest: object) -> object:
        seen.append(size)
        return plain(function, size, dims, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(attention, "_stacked", noted)
    return seen


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}, {"is_causal": True, "scale": 2.0}])
@pytest.mark.parametrize(("steps", "keys", "width"), [(16, 16, 8), (7, 7, 5), (7, 12, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_clients_together_are_each_alone(
    options: dict[str, object], steps: int, keys: int, width: int, dtype: torch.dtype, stacks: list[int]
) -> None:
    asks, knows = (4, 3, 2, steps, width), (4, 3, 2, keys, width)
    q, k, v, of = drawn(asks, knows, knows, asks, dtype=dtype)

    def value(q: Tensor, k: Tensor, v: Tensor, of: Tensor) -> Tensor:
        with StackedAttention():
            return (F.scaled_dot_product_attention(q, k, v, **options) * of).sum()  # type: ignore[arg-type]

    together = vmap(grad(value, argnums=(0, 1, 2)))(q, k, v, of)
    assert stacks == [4, 4]  # forward and back
    for i in range(4):
        given = [x[i].clone().requires_grad_() for x in (q, k, v)]
        said = F.scaled_dot_product_attention(*given, **options)  # type: ignore[arg-type]
        alone = torch.autograd.grad((said * of[i]).sum(), given)
        if steps % 16 == 0:  # else PyTorch's last bits depend on where in memory a client's numbers lie
            assert all(torch.equal(x[i], y) for x, y in zip(together, alone, strict=True))
        exact = [x[i].double().requires_grad_() for x in (q, k, v)]
        scale = options.get("scale", width**-0.5)
        scores = exact[0] @ exact[1].mT * scale
        scores = scores + torch.full((steps, keys), -torch.inf).triu(1) if "is_causal" in options else scores
        wanted = torch.autograd.grad((scores.softmax(-1) @ exact[2] * of[i]).sum(), exact)
        for x, y in zip(together, wanted, strict=True):
            torch.testing.assert_close(x[i].double(), y, rtol=1e-4, atol=1e-5)


def test_one_that_all_share_is_laid_beside_each(stacks: list[int]) -> None:
    q, k, v = drawn((4, 3, 2, 7, 5), (3, 2, 7, 5), (3, 2, 7, 5))

    def said(q: Tensor) -> Tensor:
        with StackedAttention():
            return F.scaled_dot_product_attention(q, k, v)

    found = vmap(said)(q)
    assert stacks == [4]
    assert all(torch.equal(found[i], F.scaled_dot_product_attention(q[i], k, v)) for i in range(4))


@pytest.mark.parametrize("how", ["mask", "three axes"])
def test_what_else_is_asked_for_is_pytorchs(how: str, stacks: list[int]) -> None:
    q, k, v = drawn((3, 2, 7, 5), (3, 2, 7, 5), (3, 2, 7, 5))
    if how == "three axes":
        q, k, v = q[0], k[0], v[0]
    mask = torch.eye(7, dtype=torch.bool) if how == "mask" else None
    with StackedAttention():
        found = F.scaled_dot_product_attention(q, k, v, mask)
    assert torch.equal(found, F.scaled_dot_product_attention(q, k, v, mask)) and stacks == []
