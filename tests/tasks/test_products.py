"""Products by oneDNN against PyTorch's own, and the same bits whether recorded or not, alone or in a stack."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sartor.core import Batch
from sartor.tasks import products
from sartor.tasks.recorded import _OFTEN
from sartor.tasks.task import ModelTask


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


@pytest.mark.parametrize("shape", [(1, 700, 64, 64), (3, 700, 64, 64), (2, 33, 4000, 40), (4, 20, 784, 10)])
@pytest.mark.parametrize("turned", [False, True])
def test_equal_to_exact_products(shape: tuple[int, int, int, int], turned: bool) -> None:
    c, n, k, m = shape
    a = drawn(c, k, n).mT if turned else drawn(c, n, k)
    b = drawn(c, m, k).mT if turned else drawn(c, k, m)
    exact = torch.bmm(a.double(), b.double())
    found = products.bmm(a, b)
    assert found.shape == (c, n, m) and found.is_contiguous()
    assert float((found - exact).abs().max()) < 1e-6 * k**0.5 * 10  # rounding of sums of k products of size 1


def test_double_precision_and_small_products_are_pytorchs() -> None:
    for a, b in (
        (drawn(2, 700, 64, dtype=torch.float64), drawn(2, 64, 64, dtype=torch.float64)),
        (drawn(2, 20, 30), drawn(2, 30, 10)),
    ):
        assert torch.equal(products.bmm(a, b), torch.bmm(a, b))


@pytest.mark.skipif(not products.available(), reason="this PyTorch has no oneDNN")
def test_a_large_product_does_not_depend_on_company(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    plain = products._product
    monkeypatch.setattr(products, "_product", lambda a, b: taken.append(1) or plain(a, b))
    a, b = drawn(5, 700, 64), drawn(5, 64, 64)
    together = products.bmm(a, b)
    assert len(taken) == 5
    assert all(torch.equal(together[i : i + 1], products.bmm(a[i : i + 1], b[i : i + 1])) for i in range(5))


@pytest.mark.skipif(not products.available(), reason="this PyTorch has no oneDNN")
def test_gradients_are_the_same_recorded_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    plain = products._product
    monkeypatch.setattr(products, "_product", lambda a, b: taken.append(1) or plain(a, b))
    task = ModelTask(nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 5)))
    theta, x, y = 0.1 * drawn(2, task.size), drawn(2, 400, 64), torch.arange(800).view(2, 400) % 5
    batch = Batch(x, y, torch.full((2, 400), 1 / 400), torch.zeros(2, dtype=torch.int64))
    each = [task.grad(theta, batch) for _ in range(_OFTEN + 3)]
    assert len(task._stacked_grad.recorded) == 1 and all(torch.equal(v, each[0]) for v in each)
    assert len(taken) == len(each) * 2 * 2  # the first layer's, forward and back, of two clients
    torch.testing.assert_close(each[0], task._grad_by_vmap(True, theta, *batch), rtol=1e-4, atol=1e-6)
