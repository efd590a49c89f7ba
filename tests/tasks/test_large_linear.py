"""Large linear layers by oneDNN against exact products, and the same numbers whoever is beside a client."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sartor import FedAvg
from sartor.core import Batch
from sartor.data import Clients
from sartor.engines import LocalEngine
from sartor.models import build
from sartor.tasks import large_linear
from sartor.tasks.large_linear import LargeLinear
from sartor.tasks.recorded import _OFTEN
from sartor.tasks.task import ModelTask

pytestmark = pytest.mark.skipif(not large_linear.available(), reason="this PyTorch has no oneDNN")


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the products that oneDNN computes."""
    seen: list[tuple[int, ...]] = []
    plain = large_linear._by_onednn

    def noted(x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        seen.append((*x.shape, len(W)))
        return plain(x, W, b)

    monkeypatch.setattr(large_linear, "_by_onednn", noted)
    return seen


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(30,), (3, 70)])  # samples; sequences
def test_outputs_and_slopes_are_those_of_the_exact_layer(
    bias: bool, lead: tuple[int, ...], products: list[tuple[int, ...]]
) -> None:
    layer = nn.Linear(500, 300, bias=bias)
    exact, x = nn.Linear(500, 300, bias=bias).double(), drawn(*lead, 500)
    exact.load_state_dict(layer.state_dict())
    layer.__class__ = LargeLinear
    given, wanted, slope = x.clone().requires_grad_(), x.double().requires_grad_(), drawn(*lead, 300)
    found = torch.autograd.grad(layer(given), [given, *layer.parameters()], slope)
    known = torch.autograd.grad(exact(wanted), [wanted, *exact.parameters()], slope.double())
    torch.testing.assert_close(layer(x).double(), exact(x.double()), rtol=1e-4, atol=1e-4)
    for a, b in zip(found, known, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-3)
    assert products[:2] == [(x[..., 0].numel(), 500, 300), (x[..., 0].numel(), 300, 500)]


def test_small_layers_and_double_precision_are_pytorchs(products: list[tuple[int, ...]]) -> None:
    for layer, x in ((nn.Linear(64, 64), drawn(20, 64)), (nn.Linear(64, 64).double(), drawn(4, 100, 64).double())):
        wanted = layer(x)
        layer.__class__ = LargeLinear
        assert torch.equal(layer(x), wanted)
    assert products == []


def test_a_client_s_numbers_do_not_depend_on_company_padding_or_recording(products: list[tuple[int, ...]]) -> None:
    task = ModelTask(nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 5)))
    theta, x, y = 0.1 * drawn(5, task.size), drawn(5, 40, 256), torch.arange(200).view(5, 40) % 5
    weight = torch.full((5, 40), 1 / 30)
    weight[:, 30:] = 0  # padding
    batch, key = (x, y, weight), torch.zeros(5)
    together = [task.grad(theta, Batch(*batch, key)) for _ in range(_OFTEN + 2)]
    assert products and len(task._stacked_grad.recorded) == 1
    for n in (40, 30):
        fewer = task.grad(theta[:2], Batch(*(v[:2, :n] for v in batch), key[:2]))
        assert all(torch.equal(v[:2], fewer) for v in together)
    said = task.predict(theta, x)
    assert all(torch.equal(said[i : i + 1], task.predict(theta[i : i + 1], x[i : i + 1])) for i in range(5))


def test_a_transformer_s_gradient_is_the_exact_one(products: list[tuple[int, ...]]) -> None:
    task, draw = ModelTask(build("transformer", (64,), 9, tokens=True), "next-token"), torch.Generator().manual_seed(0)
    theta = task.init(0) + 0.01 * torch.randn(3, task.size, generator=draw)
    x, y = (torch.randint(0, 9, (3, 12, 64), generator=draw) for _ in range(2))
    batch = Batch(x.float(), y, torch.full((3, 12), 1 / 12), torch.zeros(3))
    found = task.grad(theta, batch)
    assert products
    exact = task._grad_by_vmap(True, *(v.double() if v.is_floating_point() else v for v in (theta, *batch)))
    torch.testing.assert_close(found.double(), exact, rtol=1e-3, atol=1e-5)


def test_a_layer_that_is_frozen_for_all_is_one_of_them(products: list[tuple[int, ...]]) -> None:
    model = nn.Sequential(nn.Linear(600, 400), nn.Tanh(), nn.Linear(400, 3))
    model[0].requires_grad_(False)
    task, wanted = ModelTask(model), ModelTask(model, vectorise=False)
    theta, x, y = 0.1 * drawn(2, task.size), drawn(2, 10, 600), torch.arange(20).view(2, 10) % 3
    batch = Batch(x, y, torch.full((2, 10), 0.1), torch.zeros(2))
    torch.testing.assert_close(task.grad(theta, batch), wanted.grad(theta, batch), rtol=1e-4, atol=1e-6)
    assert products


@pytest.mark.parametrize(
    ("name", "shape", "tokens", "apart"),
    [("transformer", (64,), True, True), ("transformer", (9, 128), False, True), ("gru", (64,), True, False),
     ("cnn", (1, 28, 28), False, False), ("dnn", (1, 28, 28), False, False)],
)  # fmt: skip
def test_who_is_multiplied_client_by_client(name: str, shape: tuple[int, ...], tokens: bool, apart: bool) -> None:
    task = ModelTask(build(name, shape, 65, tokens), "next-token" if tokens else "cross-entropy")
    assert task.multiplies_apart(shape[-1] if len(shape) < 3 else 1) is apart
    assert not task.multiplies_apart(0)


@pytest.mark.parametrize(("name", "small"), [("transformer", True), ("gru", False)])
def test_they_go_in_small_chunks(name: str, small: bool) -> None:
    text = torch.randint(0, 9, (24, 65), generator=torch.Generator().manual_seed(0))
    parts = [{"train": (text[i : i + 2, :-1].float(), text[i : i + 2, 1:])} for i in range(0, 24, 2)]
    task = ModelTask(build(name, (64,), 9, tokens=True), "next-token")
    engine = LocalEngine(FedAvg(), task, Clients.from_parts(parts, 9), {}, seed=0, workers=1)
    assert (max(map(len, engine.cut(np.arange(12)))) <= 3) is small
