"""GRU and LSTM for a stack of clients; the known answer is PyTorch's own layers, one client after the other."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import sartor as st
from sartor.core import Batch
from sartor.models import build
from sartor.tasks import task as tasks
from sartor.tasks.client_layers import own_layers
from sartor.tasks.recurrent import STACKED
from sartor.tasks.task import ModelTask

KINDS = {"gru": nn.GRU, "lstm": nn.LSTM}
STEPS = 21  # more than a block of steps, and no multiple of one
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-6}


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    "settings", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}], ids=str
)
@pytest.mark.parametrize("kind", KINDS)
def test_states_and_gradients_are_pytorch_s(
    kind: str, settings: dict[str, Any], first: bool, dtype: torch.dtype
) -> None:
    """All outputs (cells, too) have slopes, and so have the sequences and the first states."""
    torch.manual_seed(3)
    layer = KINDS[kind](5, 7, **settings).to(dtype)
    ours = own_layers(layer)
    assert type(ours) is STACKED[type(layer)] and list(ours.state_dict()) == list(layer.state_dict())
    x = draw(*((4, STEPS) if layer.batch_first else (STEPS, 4)), 5, dtype=dtype).requires_grad_()
    rows, count = layer.num_layers * (1 + layer.bidirectional), {"gru": 1, "lstm": 2}[kind] if first else 0
    begin = [draw(rows, 4, 7, seed=1 + i, dtype=dtype).requires_grad_() for i in range(count)]

    def run(module: nn.Module) -> list[Tensor]:
        output, last = module(x, (begin[0] if kind == "gru" else tuple(begin)) if first else None)
        said = [output, *([last] if kind == "gru" else last)]
        loss = torch.stack([(v * draw(*v.shape, seed=5 + i, dtype=dtype)).sum() for i, v in enumerate(said)]).sum()
        return [*(v.detach() for v in said), *torch.autograd.grad(loss, [*module.parameters(), x, *begin])]

    for found, known in zip(run(ours), run(layer), strict=True):
        torch.testing.assert_close(found, known, rtol=0, atol=TOLERANCE[dtype] * (1 + float(known.abs().max())))


class Tagger(nn.Module):
    """A model of one's own: layers in the middle, dropout between them, and states of the first one handed on."""

    def __init__(self, kind: str = "gru", dropout: float = 0.0) -> None:
        super().__init__()
        self.inputs, self.head = nn.Linear(3, 4), nn.Linear(6, 5)
        self.reader, self.writer = KINDS[kind](4, 6, 2, dropout=dropout), KINDS[kind](6, 6)

    def forward(self, x: Tensor) -> Tensor:
        states, last = self.reader(self.inputs(x.transpose(1, 2)).transpose(0, 1))
        end = last[-1:] if isinstance(last, Tensor) else tuple(v[-1:] for v in last)
        said: Tensor = self.head(self.writer(states, end)[0].mean(0))
        return said


def batch(clients: int, dtype: torch.dtype = torch.float64) -> Batch:
    x, y = draw(clients, 4, 3, STEPS, dtype=dtype), torch.arange(clients * 4).view(clients, 4) % 5
    weight = torch.full((clients, 4), 0.25, dtype=dtype)
    weight[-1, 3] = 0  # a short last batch is padded
    return Batch(x, y, weight, torch.arange(clients))


def alone(model: nn.Module, theta: Tensor, one: Batch, client: int) -> Tensor:
    """The gradient of one client by PyTorch."""
    torch.nn.utils.vector_to_parameters(theta[client], model.parameters())
    each = F.cross_entropy(model(one.x[client]), one.y[client], reduction="none") * one.weight[client]
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(each.sum(), list(model.parameters()))])


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_one_s_own_is_stacked(kind: str) -> None:
    model, given = Tagger(kind).double(), batch(3)
    task = ModelTask(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task.probe(given.x[0, :1], given.y[0, :1])
    assert task.vectorise
    theta = torch.stack([task.init(s) for s in range(3)])
    found = task.grad(theta, given)
    for i in range(3):
        torch.testing.assert_close(found[i], alone(model, theta, given, i), rtol=1e-10, atol=1e-12)
    said, back = task.vjp(theta, given)
    slope = draw(*said.shape, seed=7)
    pulled = torch.autograd.grad((said_by(model, theta[1], given.x[1]) * slope[1]).sum(), list(model.parameters()))
    torch.testing.assert_close(back(slope)[1], torch.cat([g.reshape(-1) for g in pulled]), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(task.predict(theta, given.x), said)
    torch.testing.assert_close(task.loss(theta, given), torch.stack([weighted(said, given, i) for i in range(3)]))


def said_by(model: nn.Module, theta: Tensor, x: Tensor) -> Tensor:
    torch.nn.utils.vector_to_parameters(theta, model.parameters())
    said: Tensor = model(x)
    return said


def weighted(said: Tensor, given: Batch, i: int) -> Tensor:
    return (F.cross_entropy(said[i], given.y[i], reduction="none") * given.weight[i]).sum()


def test_company_changes_nothing_but_rounding() -> None:
    given, task = batch(6, torch.float32), ModelTask(Tagger())
    theta = torch.stack([task.init(s) for s in range(6)])
    together = task.grad(theta, given)
    for i in range(6):
        one = Batch(*(v[i : i + 1] for v in given))
        torch.testing.assert_close(task.grad(theta[i : i + 1], one)[0], together[i], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("vectorise", "kind"), [(None, "gru"), (False, "gru"), (None, "lstm")])
def test_dropout_between_layers_belongs_to_a_client(vectorise: bool | None, kind: str) -> None:
    """nn.GRU would draw from a shared generator: whoever runs first would get other numbers."""
    given = batch(4, torch.float32)
    task = ModelTask(Tagger(kind, dropout=0.5), vectorise=vectorise)
    theta = torch.stack([task.init(0)] * 4)
    found = task.grad(theta, given)
    torch.testing.assert_close(
        task.grad(theta[2:3], Batch(*(v[2:3] for v in given)))[0], found[2], rtol=1e-5, atol=1e-6
    )
    other = task.grad(theta, given._replace(key=given.key + 1))
    assert task.random and (found - other).abs().max() > 1e-3
    torch.testing.assert_close(task.grad(theta, given, train=False), ModelTask(Tagger(kind)).grad(theta, given))


def test_lstms_run_client_by_client_where_onednn_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("lstm", (3, STEPS), 5)
    monkeypatch.setattr(tasks, "_ONEDNN", True)
    one = ModelTask(model)
    assert not one.vectorise and type(one.training.get_submodule("cells")) is nn.LSTM
    assert ModelTask(model, vectorise=True).vectorise and ModelTask(build("gru", (3, STEPS), 5)).vectorise
    monkeypatch.setattr(tasks, "_ONEDNN", False)
    other, given = ModelTask(model), batch(3, torch.float32)
    assert other.vectorise
    theta = torch.stack([one.init(s) for s in range(3)])
    torch.testing.assert_close(other.grad(theta, given), one.grad(theta, given), rtol=1e-4, atol=1e-6)


class Packed(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.cells, self.head = nn.GRU(3, 6, 2, batch_first=True, dropout=dropout), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        steps = pack_padded_sequence(x.transpose(1, 2), torch.full((len(x),), STEPS), batch_first=True)
        said: Tensor = self.head(self.cells(steps)[1][-1])
        return said


def test_what_is_not_stacked_runs_client_by_client_and_says_so() -> None:
    given = batch(2)
    for model in (Packed().double(), nn.Sequential(nn.Flatten(), nn.Unflatten(1, (STEPS, 3)), Last(), nn.Linear(6, 5))):
        task = ModelTask(model.double())
        with pytest.warns(UserWarning, match="the model runs client by client") as said:
            task.probe(given.x[0, :1], given.y[0, :1])
        assert len(said) == 1 and not task.vectorise
        theta = torch.stack([task.init(s) for s in range(2)])
        torch.testing.assert_close(task.grad(theta, given)[1], alone(model, theta, given, 1))
    with pytest.raises(st.SartorError, match=r"dropout inside of GRU .* shared generator"):
        ModelTask(Packed(0.5).double()).probe(given.x[0, :1], given.y[0, :1])


class Last(nn.RNN):
    def __init__(self) -> None:
        super().__init__(3, 6, batch_first=True)

    def forward(self, x: Tensor, hx: Tensor | None = None) -> Tensor:  # type: ignore[override]
        said: Tensor = super().forward(x, hx)[0][:, -1]
        return said
