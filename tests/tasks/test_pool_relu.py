"""Pooling and ReLU in one compiled pass: PyTorch's two layers are the answer."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sartor.tasks import compiled
from sartor.tasks.pool_relu import PoolReLU, fused

pytestmark = pytest.mark.skipif(not compiled.available(), reason="needs the extra `fast` (Numba)")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", [(3, 5, 8, 6), (2, 1, 2, 2), (2, 3, 7, 4)])  # the last is odd: left to PyTorch
def test_it_is_pooling_then_relu_to_the_bit(
    dtype: torch.dtype, layout: torch.memory_format, shape: tuple[int, ...]
) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=draw, dtype=dtype).round(decimals=0)  # rounded: many windows have ties and zeros
    x = x.contiguous(memory_format=layout).requires_grad_()
    ours, theirs = PoolReLU()(x), F.relu(F.max_pool2d(x, 2))
    assert torch.equal(ours, theirs)
    slope = torch.randn(ours.shape, generator=draw, dtype=dtype)
    assert torch.equal(*(torch.autograd.grad(y, x, slope)[0] for y in (ours, theirs)))


@pytest.mark.parametrize("place", range(4))
def test_nan_is_passed_on(place: int) -> None:
    x = torch.ones(1, 1, 2, 2)
    x.view(-1)[place] = torch.nan
    assert torch.isnan(PoolReLU()(x.requires_grad_())).all()


def test_only_plain_halving_is_replaced() -> None:
    kept = [nn.MaxPool2d(3), nn.MaxPool2d(2, stride=1), nn.MaxPool2d(2, padding=1), nn.MaxPool2d(2, ceil_mode=True)]
    for layer in kept:
        assert isinstance(fused(nn.Sequential(layer, nn.ReLU()))[0], nn.MaxPool2d)
    assert isinstance(fused(nn.Sequential(nn.MaxPool2d(2), nn.Tanh()))[0], nn.MaxPool2d)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))
    model(torch.zeros(1, 1, 6, 6))
    assert isinstance(fused(model)[1], PoolReLU)
    assert list(fused(model).state_dict()) == list(model.state_dict())


def test_channels_stay_last_from_layer_to_layer() -> None:
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(64, 8, 3, padding=1), nn.Flatten()),
    )
    quick = fused(model)
    x = torch.randn(4, 1, 28, 28, generator=torch.Generator().manual_seed(0)).to(memory_format=torch.channels_last)
    laid_out = []
    for layer in (quick[3], quick[6]):
        layer.register_forward_hook(
            lambda _, given, out: laid_out.append(given[0].is_contiguous(memory_format=torch.channels_last))
        )
    with torch.no_grad():
        scored = quick(x)
    for y in (scored, quick(x.requires_grad_())):  # scored, and in training
        torch.testing.assert_close(y, model(x), rtol=1e-4, atol=1e-5)
    assert laid_out == 4 * [True]
