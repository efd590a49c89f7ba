"""Frozen parts: the same tensors for all clients and after every run, never in θ; the gradient of the rest is right."""

from __future__ import annotations

import copy
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from every_method import METHODS, make
from federations import ragged
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import sartor as st
from sartor.core import Batch
from sartor.tasks.frozen import digest, frozen_tensors
from sartor.tasks.frozen_outputs import frozen_outputs
from sartor.tasks.task import ModelTask
from sartor.testing import check_method, data_for

DOUBLE = torch.float64


class Encoded(nn.Module):
    """A frozen encoder under a head, as users write it: no Sequential; half precision where asked for."""

    def __init__(self, hidden: int = 6, outputs: int = 3, half: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.encoder = nn.Sequential(nn.Linear(5, hidden), nn.BatchNorm1d(hidden), nn.Tanh(), nn.Dropout(0.5))
        self.encoder.requires_grad_(False)
        self.encoder[1].running_mean = torch.linspace(-1, 1, hidden)
        self.head = nn.Linear(hidden, outputs)
        self.half_precision = half
        if half:
            self.encoder.half()

    def forward(self, x: Tensor) -> Tensor:
        if self.half_precision:
            return self.head(self.encoder(x.half()).to(x.dtype))
        return self.head(self.encoder(x))


def first_frozen(outputs: int = 3) -> nn.Module:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, outputs))
    model[0].requires_grad_(False)
    return model


def in_the_middle(outputs: int = 3) -> nn.Module:
    """The second layer and the first one's bias are frozen."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, outputs))
    model[2].requires_grad_(False)
    model[0].bias.requires_grad_(False)
    return model


def convolutional(outputs: int = 3) -> nn.Module:
    torch.manual_seed(4)
    model = nn.Sequential(
        nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 3, 2), nn.ReLU(), nn.Conv1d(3, 3, 2), nn.Flatten(), nn.Linear(9, outputs)
    )
    model[3].requires_grad_(False)
    return model


MODELS = {"encoder": Encoded, "first": first_frozen, "middle": in_the_middle, "convolutional": convolutional}


def head_for(name: str) -> nn.Module:
    """A model with a frozen part of the kind that the method is for."""
    method = make(name)
    if method.models == "any":
        return first_frozen()
    return nn.Sequential(Encoded().encoder, nn.Linear(6, 1 if method.models == "one output" else 3))


@pytest.mark.parametrize("name", METHODS)
def test_what_is_frozen_does_not_move(name: str) -> None:
    method, model = make(name), head_for(name)
    before = {k: v.clone() for k, v in frozen_tensors(model).items()}
    result = st.fit(method, model, data_for(method), rounds=2)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert result.task.size == trained == len(result.run.problem.start)
    theirs = [result.personal(i) for i in (0, 6)] if "personal" in result._personal else [result.shared()]
    for module in theirs:
        mine = frozen_tensors(module)
        assert mine.keys() == before.keys()
        assert all(torch.equal(mine[k], before[k]) for k in before)
        assert any(not torch.equal(p, q) for p, q in zip(module.parameters(), model.parameters(), strict=True))


def test_a_message_holds_what_is_trained() -> None:
    result = st.fit(st.FedAvg(), Encoded(hidden=100), ragged(), rounds=3)
    assert result.run.bytes_up == result.run.bytes_down == 3 * 7 * 4 * (101 * 3)


def batch_of(a: int, b: int) -> Batch:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(a, b, 5, generator=draw, dtype=DOUBLE)
    y = torch.randint(3, (a, b), generator=draw)
    return Batch(x, y, torch.full((a, b), 1 / b, dtype=DOUBLE), torch.zeros(a, dtype=torch.int64))


@pytest.mark.parametrize("vectorise", [None, True, False])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_the_trained_parameters(name: str, vectorise: bool | None) -> None:
    model = MODELS[name]().double()
    task, batch = ModelTask(model, vectorise=vectorise), batch_of(3, 8)
    theta = torch.randn(3, task.size, generator=torch.Generator().manual_seed(5), dtype=DOUBLE)
    alone = copy.deepcopy(model).train()
    for module in (m for m in alone.modules() if isinstance(m, nn.BatchNorm1d | nn.Dropout)):
        module.eval()
    mine = [p for p in alone.parameters() if p.requires_grad]
    for _ in range(5):  # from the fourth time on as recorded
        grads = task.grad(theta, batch)
    outputs, back = task.vjp(theta, batch)
    for i in range(3):
        nn.utils.vector_to_parameters(theta[i], mine)
        loss = F.cross_entropy(alone(batch.x[i]), batch.y[i])
        known = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, mine)])
        torch.testing.assert_close(grads[i], known)
        torch.testing.assert_close(outputs[i], alone(batch.x[i]))
        torch.testing.assert_close(task.loss(theta, batch)[i], loss)
        torch.testing.assert_close(task.module(theta[i])(batch.x[i]), alone(batch.x[i]))
    slope = torch.ones_like(outputs)
    pulled = torch.autograd.grad(alone(batch.x[2]).sum(), mine)  # alone holds θ of client 2
    torch.testing.assert_close(back(slope)[2], torch.cat([g.reshape(-1) for g in pulled]))
    stepped = theta.clone()
    task.descend_(stepped, batch, 0.1, lambda theta, lr: None)
    torch.testing.assert_close(stepped, theta - 0.1 * grads)


def test_copies_hold_what_is_frozen_once() -> None:
    task = ModelTask(Encoded())
    frozen = frozen_tensors(task.original)
    pointers = {k: v.data_ptr() for k, v in frozen.items()}
    for module in (task.training, task.scoring, copy.deepcopy(task).training):
        assert {k: v.data_ptr() for k, v in frozen_tensors(module).items()} == pointers
    given = frozen_tensors(task.module(task.init(None)))  # what is handed out may be changed, as adapters are merged
    assert not {v.data_ptr() for v in given.values()} & set(pointers.values())


def test_a_half_precision_body_stays_so() -> None:
    model, clients = Encoded(half=True), ragged()
    result = st.fit(st.FedAvg(), model, clients, rounds=2, execution=st.Execution(dtype="float64"))
    made = result.shared()
    assert made.encoder[0].weight.dtype == torch.float16 and made.head.weight.dtype == DOUBLE
    assert torch.equal(made.encoder[0].weight, model.encoder[0].weight)
    assert made(clients.x[:2].double()).dtype == DOUBLE


def test_it_starts_as_it_was_given() -> None:
    model = first_frozen()
    task = ModelTask(model)
    given = torch.cat([p.detach().reshape(-1) for p in model.parameters() if p.requires_grad])
    assert torch.equal(task.init(7), given)


def test_an_exported_model_is_whole(tmp_path: object) -> None:
    model, clients = Encoded(half=True), ragged()
    result = st.fit(st.Ditto(), model, clients, rounds=1)
    place = result.export(2, f"{tmp_path}/model.safetensors", "personal")
    again = st.load_model(place, Encoded(half=True))
    x = clients.x[:4].float()
    assert again.model.encoder[0].weight.dtype == torch.float16
    torch.testing.assert_close(again(x), result.personal(2)(x).softmax(1))


def test_the_digest_is_of_what_is_frozen() -> None:
    model = Encoded()
    assert digest(first_frozen()) != digest(model) == digest(Encoded()) != ""
    assert digest(nn.Linear(2, 2)) == ""
    with torch.no_grad():
        model.head.weight.add_(1)
    assert digest(model) == digest(Encoded())
    with torch.no_grad():
        model.encoder[1].running_mean[0] += 1
    assert digest(model) != digest(Encoded())


def test_a_model_of_which_nothing_is_trained_is_refused() -> None:
    with pytest.raises(st.SartorError, match=r"nothing to train: all 44 parameters.*requires_grad=False"):
        ModelTask(nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 1, bias=False), nn.Linear(1, 1)).requires_grad_(False))


class Masked(Encoded):
    """It looks at its samples once more, after the encoder."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x)) * (x[:, :1] > 0)


class Noisy(Encoded):
    """Its frozen part draws at random."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x + torch.randn_like(x)))


def test_outputs_of_a_frozen_part_that_comes_first_are_kept() -> None:
    clients = ragged()
    for model, width in ((Encoded(), 6), (Encoded(half=True), 6), (first_frozen(), 6)):
        result = st.fit(st.Ditto(), model, clients, rounds=1)
        assert result.frozen is not None and result.frozen.of_all.shape == (len(clients.x), width)
        assert result.task.dense is not None
        assert torch.equal(result.data.x, clients.x.float())
    for model in (Masked(), in_the_middle(), convolutional()):
        assert st.fit(st.Ditto(), model, clients, rounds=1).frozen is None
    assert frozen_outputs(ModelTask(Noisy()), clients.x.float()) is None


@pytest.mark.parametrize("model", [Encoded(), first_frozen()], ids=["encoder", "first"])
def test_a_run_on_kept_outputs_is_the_run(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same models, scores, newcomers and metrics as where the whole model runs at every step."""
    clients, found = ragged(), []
    for most in (1 << 30, 0):
        monkeypatch.setattr("sartor.tasks.frozen_outputs.MOST_BYTES", most)
        monkeypatch.setattr("sartor.tasks.frozen_outputs.MOST_ON_DISK", most)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = st.fit(
                st.Ditto(),
                model,
                clients,
                rounds=3,
                execution=st.Execution(dtype="float64"),
                federation=st.Federation(unseen=0.3),
            )
        assert (result.frozen is not None) == bool(most)
        new = result.newcomer((clients.x[:9].numpy(), clients.y[:9].numpy()), steps=2)
        found.append((result, new))
    (a, new_a), (b, new_b) = found
    torch.testing.assert_close(a._personal["personal"], b._personal["personal"])
    for k, v in a.scores.items():
        np.testing.assert_allclose(v, b.scores[k], rtol=1e-9, atol=1e-12)
    for p, q in zip(new_a.parameters(), new_b.parameters(), strict=True):
        torch.testing.assert_close(p, q)
    late = [r.clients[-1] for r in (a, b)]
    assert late[0]["unseen"] and late[0]["personal_test_loss"] == pytest.approx(late[1]["personal_test_loss"])
    assert a.metrics()["models"]["chosen"]["pooled"].keys() == b.metrics()["models"]["chosen"]["pooled"].keys()
    at = clients.x[:3].double()
    torch.testing.assert_close(a.personal(1)(at), b.personal(1)(at))


def test_outputs_that_are_too_many_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_BYTES", "MOST_ON_DISK"):
        monkeypatch.setattr(f"sartor.tasks.frozen_outputs.{name}", 100)
    with pytest.warns(UserWarning, match=r"the frozen part runs at every step: .* for .* samples, .* GiB"):
        assert st.fit(st.FedAvg(), Encoded(), ragged(), rounds=1).frozen is None


def test_many_outputs_are_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file that nobody else sees, to the same bits; said once."""
    in_memory = st.fit(st.Ditto(), Encoded(), ragged(), rounds=2)
    monkeypatch.setattr("sartor.tasks.frozen_outputs.MOST_BYTES", 100)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.warns(UserWarning, match=r"are kept on disk in .* while this runs") as said:
        on_disk = st.fit(st.Ditto(), Encoded(), ragged(), rounds=2)
    assert len(said) == 1 and on_disk.frozen is not None and in_memory.frozen is not None
    assert not list(tmp_path.iterdir()) and str(tmp_path) in Path("/proc/self/maps").read_text()
    assert torch.equal(on_disk.frozen.of_all, in_memory.frozen.of_all)
    assert torch.equal(on_disk._personal["personal"], in_memory._personal["personal"])


class Products(TorchDispatchMode):
    """Notes the shapes of every matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[int], list[int]]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.bmm):
            self.seen.append((function.overloadpacket.__name__, list(args[0].shape), list(args[1].shape)))
        return function(*args, **kwargs or {})


def test_a_frozen_weight_is_one_product_for_all_clients() -> None:
    task, batch = ModelTask(in_the_middle().double()), batch_of(7, 8)
    theta = torch.randn(7, task.size, dtype=DOUBLE)
    for _ in range(5):  # as it is, and as recorded
        with Products() as products:
            task.grad(theta, batch)
        assert ("mm", [7 * 8, 6], [6, 4]) in products.seen
        assert not [p for p in products.seen if p[0] == "bmm" and sorted(p[2][1:]) == [4, 6]]


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "name"),
    [
        *((in_the_middle, name) for name in ("flame", "fedavg-ft")),  # half a minute each
        *((first_frozen, name) for name in ("ditto", "fedamp")),
        *((convolutional, name) for name in ("flame", "ditto", "fedamp", "fedavg-ft")),
    ],
)
def test_every_property_holds(name: str, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pure, dtype, sat out, engines, workers, disk, resume: as for models that are trained whole."""
    monkeypatch.setattr("sartor.testing.model_for", lambda method: model())
    check_method(make(name))


@pytest.mark.long
def test_a_thousand_clients_of_an_encoder_stay_below_two_gigabytes() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "frozen.py"
    said = subprocess.run([sys.executable, script, "--memory"], capture_output=True, text=True, check=True).stdout
    assert "a message has 4,104 numbers" in said
    assert float(said.split(": ")[1].split(" GiB")[0]) < 2
