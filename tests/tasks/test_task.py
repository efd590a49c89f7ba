"""The task against autograd one client at a time: gradients, losses, dropout, batch normalisation, odd clients."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import ragged
from groups import grouped
from torch import Tensor, nn

import sartor as st
from sartor.core import Batch, Method
from sartor.data.clients import Clients
from sartor.engines.stack import Stack
from sartor.models import NAMES, build, cnn, layers
from sartor.tasks.client_layers import KeyedDropout
from sartor.tasks.task import ModelTask

DOUBLE = torch.float64


def batch_of(a: int, b: int, shape: tuple[int, ...], classes: int | None = 3, padded: bool = True) -> Batch:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(a, b, *shape, generator=draw, dtype=DOUBLE)
    y = (
        torch.randint(classes, (a, b), generator=draw)
        if classes
        else torch.randn(a, b, generator=draw, dtype=DOUBLE).sign()
    )
    valid = torch.ones(a, b, dtype=DOUBLE)
    if padded:
        for i in range(a):
            valid[i, b - i % b :] = 0 if i % b else 1
    return Batch(x, y, valid / valid.sum(1, keepdim=True), torch.arange(a) * 1000 + 7)


def by_hand(model: nn.Module, theta: Tensor, batch: Batch, loss: str) -> tuple[Tensor, Tensor]:
    """Loss and gradient of each client with plain PyTorch on its unpadded samples."""
    losses, grads = [], []
    for i in range(len(theta)):
        kept = batch.weight[i] > 0
        nn.utils.vector_to_parameters(theta[i], model.parameters())
        model.zero_grad()
        output, y = model(batch.x[i][kept]), batch.y[i][kept]
        value = {
            "cross-entropy": lambda o, y: F.cross_entropy(o, y),
            "squared": lambda o, y: 0.5 * F.mse_loss(o[:, 0], y),
            "hinge": lambda o, y: F.relu(1 - y * o[:, 0]).mean(),
        }[loss](output, y)
        value.backward()
        losses.append(value.detach())
        grads.append(torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None]))
    return torch.stack(losses), torch.stack(grads)


DENSE = [
    (layers(4, 3), "cross-entropy"),
    (layers(4, 6, 3), "cross-entropy"),
    (layers(4, 7, 5, 3), "cross-entropy"),
    (layers(4, 6, 1), "squared"),
    (layers(4, 1), "hinge"),
    (nn.Sequential(nn.Linear(4, 3, bias=False)), "cross-entropy"),
    (nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 1)), "squared"),
]


@pytest.mark.parametrize("vectorise", [None, True, False])
@pytest.mark.parametrize("case", range(len(DENSE)))
def test_gradients_equal_plain_autograd(case: int, vectorise: bool | None) -> None:
    """Written out (None), vectorised and looped: all equal a plain backward pass on the unpadded samples."""
    model, loss = DENSE[case]
    model = model.to(DOUBLE)
    task = ModelTask(model, loss, vectorise)
    assert (task.dense is not None) == (vectorise is None)
    theta = torch.stack([task.init(s) for s in range(5)])
    batch = batch_of(5, 6, (4,), 3 if loss == "cross-entropy" else None)
    value, slope = by_hand(model, theta, batch, loss)
    torch.testing.assert_close(task.loss(theta, batch), value)
    torch.testing.assert_close(task.grad(theta, batch), slope)


@pytest.mark.parametrize("vectorise", [None, True])
def test_convolutions_loop_by_default_and_equal_autograd(vectorise: bool | None) -> None:
    model = cnn((1, 8, 8), 3, widths=(2, 3), hidden=5).to(DOUBLE)
    task = ModelTask(model, vectorise=vectorise)
    assert task.vectorise == bool(vectorise)
    theta = torch.stack([task.init(s) for s in range(3)])
    batch = batch_of(3, 4, (1, 8, 8))
    value, slope = by_hand(model, theta, batch, "cross-entropy")
    torch.testing.assert_close(task.loss(theta, batch), value)
    torch.testing.assert_close(task.grad(theta, batch), slope)
    torch.testing.assert_close(task.predict(theta, batch.x)[1], task.module(theta[1])(batch.x[1]))


def test_flat_vector_and_module_are_the_same_model() -> None:
    task = ModelTask(layers(4, 6, 3).to(DOUBLE))
    theta = task.init(5)
    x = torch.randn(9, 4, dtype=DOUBLE)
    module = task.module(theta)
    torch.testing.assert_close(torch.cat([p.reshape(-1) for p in module.parameters()]), theta)
    torch.testing.assert_close(module(x), task.predict(theta[None], x[None])[0])
    assert torch.equal(task.init(5), theta) and not torch.equal(task.init(6), theta)


def test_a_pretrained_model_is_the_start_where_asked() -> None:
    model = layers(5, 3)
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(0.25)
    given = st.fit(
        st.LocalOnly(solver=st.SGD(lr=1e-12)),
        model,
        ragged(),
        1,
        pretrained=True,
        evaluation=st.Evaluation(diagnostics=False),
    )
    torch.testing.assert_close(given.run.problem.start, torch.full((18,), 0.25))
    fresh = st.fit(
        st.LocalOnly(solver=st.SGD(lr=1e-12)), model, ragged(), 1, evaluation=st.Evaluation(diagnostics=False)
    )
    assert not torch.allclose(fresh.run.problem.start, given.run.problem.start)


def test_one_model_for_all_clients_predicts_the_same_as_a_stack_of_copies() -> None:
    task = ModelTask(layers(4, 6, 3).to(DOUBLE))
    theta, x = task.init(0), torch.randn(3, 5, 4, dtype=DOUBLE)
    torch.testing.assert_close(task.predict(theta.expand(3, -1), x), task.predict(theta.repeat(3, 1), x))


def test_initialisation_does_not_touch_the_global_generator() -> None:
    task = ModelTask(layers(4, 3))
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    task.init(9)
    assert torch.equal(torch.rand(3), expected)


def test_threads_that_draw_first_weights_at_once_draw_those_of_their_seeds() -> None:
    made = [layers(40, 60, 3) for _ in range(8)]
    alone = [ModelTask(model).init(seed) for seed, model in enumerate(made)]
    tasks = [ModelTask(model) for model in made for _ in range(25)]
    with ThreadPoolExecutor(8) as threads:
        for i, found in enumerate(threads.map(lambda task, i: task.init(i // 25), tasks, range(len(tasks)))):
            assert torch.equal(found, alone[i // 25])


@pytest.mark.parametrize("kind", ["vmaps", "does not"])
def test_a_custom_loss_and_a_custom_module_work(kind: str) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))
            self.inner = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * torch.tanh(self.inner(x))

    plain = {
        "vmaps": lambda o, y: ((o - torch.eye(3, dtype=DOUBLE)[y]) ** 2).sum(-1),
        "does not": lambda o, y: ((o - F.one_hot(y, 3)) ** 2).sum(-1),
    }[kind]  # one_hot looks at values
    task = ModelTask(Odd().to(DOUBLE), plain)
    theta = torch.stack([task.init(0), task.init(1)])
    batch = batch_of(2, 5, (4,))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        task.probe(batch.x[0, :1], batch.y[0, :1])
    assert task.vectorise == (kind == "vmaps") and len(said) == (kind == "does not")
    step = 1e-6 * torch.eye(task.size, dtype=DOUBLE)
    numeric = torch.stack([(task.loss(theta + e, batch) - task.loss(theta - e, batch)) / 2e-6 for e in step], dim=1)
    torch.testing.assert_close(task.grad(theta, batch), numeric, atol=1e-7, rtol=1e-5)


class Recurrent(nn.Module):
    """Five numbers read one after the other, with or without batch normalisation."""

    def __init__(self, kind: type[nn.RNNBase], norm: bool = False) -> None:
        super().__init__()
        self.read = kind(1, 4, batch_first=True)
        self.norm = nn.BatchNorm1d(4) if norm else nn.Identity()
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.read(x[..., None])[0]
        out: Tensor = self.out(self.norm(states[:, -1]))
        return out


def test_what_has_no_batching_rule_runs_client_by_client() -> None:
    model = Recurrent(nn.RNN).to(DOUBLE)
    task, batch = ModelTask(model), batch_of(3, 4, (5,))
    with pytest.warns(UserWarning, match="the model runs client by client, as PyTorch cannot vectorise it: Batching"):
        task.probe(batch.x[0, :1], batch.y[0, :1])
    theta = torch.stack([task.init(s) for s in range(3)])
    value, slope = by_hand(model, theta, batch, "cross-entropy")
    torch.testing.assert_close(task.loss(theta, batch), value)
    torch.testing.assert_close(task.grad(theta, batch), slope)
    torch.testing.assert_close(task.predict(theta, batch.x)[1], task.module(theta[1])(batch.x[1]))


@pytest.mark.parametrize("method", [st.FLAME(), st.Ditto(), st.SKL()])
@pytest.mark.parametrize(("kind", "norm"), [(nn.GRU, False), (nn.GRU, True), (nn.RNN, False)])
def test_a_recurrent_model_trains_and_engines_agree(method: Method, kind: type[nn.RNNBase], norm: bool) -> None:
    """It used to end in "Batching rule not implemented", a RuntimeError."""
    found = []
    for engine in ("local", "serial"):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            result = st.fit(
                method,
                Recurrent(kind, norm),
                ragged(),
                3,
                execution=st.Execution(engine=engine, dtype=DOUBLE),
                evaluation=st.Evaluation(evaluate_every=3),
            )
        assert [str(w.message)[:34] for w in said] == ["the model runs client by client, a"] * (kind is nn.RNN)
        found.append(result)
    local, serial = found
    assert local.scores.keys() == serial.scores.keys()
    for name, scores in local.scores.items():
        np.testing.assert_allclose(scores, serial.scores[name], atol=1e-10, err_msg=name)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the model runs client by client")
        start = st.fit(method, Recurrent(kind, norm), ragged(), 1, execution=st.Execution(dtype=DOUBLE)).summary
    assert local.summary["personal"]["loss_mean"] < start["personal"]["loss_mean"]


@pytest.mark.parametrize("bias", [True, False])
def test_a_bare_linear_layer_is_solved_exactly(bias: bool) -> None:
    """It was refused as not being "a linear model with one output and squared error"."""
    draw = np.random.default_rng(0)
    parts = []
    for n in (9, 14):
        x = draw.normal(size=(n, 5))
        parts.append({"train": (x, x @ np.arange(5.0) + 0.1 * draw.normal(size=n))})
    clients = Clients.from_parts(parts)
    solver = st.Exact()
    bare, wrapped = (
        st.fit(
            st.LocalOnly(solver=solver),
            model,
            clients,
            1,
            execution=st.Execution(dtype=DOUBLE),
            evaluation=st.Evaluation(diagnostics=False),
        )
        for model in (nn.Linear(5, 1, bias=bias), nn.Sequential(nn.Linear(5, 1, bias=bias)))
    )
    x, y = parts[0]["train"]
    least = np.linalg.lstsq(np.column_stack([x, np.ones(9)]) if bias else x, y, rcond=None)[0]
    for result in (bare, wrapped):
        theta = torch.cat([p.reshape(-1) for p in result.personal(0).parameters()])
        np.testing.assert_allclose(theta.detach().numpy(), least, atol=1e-9)


# --- dropout --------------------------------------------------------------------------------------------------------


def test_dropout_masks_depend_on_the_key_and_have_the_right_rate() -> None:
    layer = KeyedDropout(0.3, layer=1, channelwise=False).train()
    x = torch.ones(200, 500)
    layer.key = torch.tensor(5)
    once, again = layer(x), layer(x)
    layer.key = torch.tensor(6)
    other = layer(x)
    assert torch.equal(once, again) and not torch.equal(once, other)
    dropped = (once == 0).double()
    assert abs(float(dropped.mean()) - 0.3) < 5 * (0.21 / x.numel()) ** 0.5  # five standard errors
    assert float(once[once > 0].unique()) == pytest.approx(1 / 0.7)
    # neighbours in the mask, and the masks of neighbouring keys, are unrelated
    both = torch.stack(
        [dropped[:, :-1].reshape(-1), dropped[:, 1:].reshape(-1), (other == 0).double()[:, :-1].reshape(-1)]
    )
    assert float((torch.corrcoef(both) - torch.eye(3)).abs().max()) < 0.02
    assert torch.equal(layer.eval()(x), x)


@pytest.mark.long
def test_training_with_dropout_does_not_depend_on_engine_or_chunk() -> None:
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 3))
    clients = ragged()
    runs = [
        st.fit(
            st.FedAvg(solver=st.SGD(batch=7, epochs=2)),
            model,
            clients,
            3,
            **grouped(dtype=DOUBLE, evaluate_every=3, diagnostics=False, **o),
        )
        for o in ({}, {"chunk": 2}, {"engine": "serial"}, {"seed": 1})
    ]
    first = runs[0].run.server["w"]
    for other in runs[1:3]:
        torch.testing.assert_close(other.run.server["w"], first, atol=1e-9, rtol=1e-9)
    plain = st.fit(
        st.FedAvg(solver=st.SGD(batch=7, epochs=2)),
        nn.Sequential(*[m for m in model if not isinstance(m, nn.Dropout)]),
        clients,
        3,
        execution=st.Execution(dtype=DOUBLE),
        evaluation=st.Evaluation(evaluate_every=3, diagnostics=False),
    )
    assert not torch.allclose(plain.run.server["w"], first)  # dropout did something


def test_layers_with_a_shared_generator_are_refused() -> None:
    with pytest.raises(st.SartorError, match="RReLU draws from a shared generator"):
        ModelTask(nn.Sequential(nn.Linear(3, 3), nn.RReLU()))


# --- batch normalisation --------------------------------------------------------------------------------------------


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def test_batch_normalisation_equals_pytorch_s_on_unpadded_samples() -> None:
    model = normed().to(DOUBLE)
    task = ModelTask(model)
    theta = torch.stack([task.init(s) for s in range(4)])
    batch = batch_of(4, 6, (5,))
    value, slope = by_hand(model.train(), theta, batch, "cross-entropy")
    torch.testing.assert_close(task.loss(theta, batch), value)
    torch.testing.assert_close(task.grad(theta, batch), slope)


def test_batch_normalisation_works_for_images_looped_and_vectorised() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)).to(
        DOUBLE
    )
    loop, stacked = ModelTask(model), ModelTask(model, vectorise=True)
    theta = torch.stack([loop.init(s) for s in range(3)])
    batch = batch_of(3, 4, (1, 8, 8))
    torch.testing.assert_close(loop.grad(theta, batch), stacked.grad(theta, batch))
    torch.testing.assert_close(loop.grad(theta, batch), by_hand(model.train(), theta, batch, "cross-entropy")[1])
    own = loop.statistics(theta, batch)
    torch.testing.assert_close(loop.predict(theta, batch.x, own), stacked.predict(theta, batch.x, own))


def test_statistics_stay_with_the_client() -> None:
    """Another client's data change neither a client's statistics nor its scores; its own do."""
    clients = ragged()
    result = st.fit(
        st.Ditto(solver=st.SGD(batch=7)),
        normed(),
        clients,
        3,
        execution=st.Execution(dtype=DOUBLE),
        evaluation=st.Evaluation(evaluate_every=3, diagnostics=False),
    )
    x = clients.x.clone()
    rows = clients.rows(6, "train")
    x[rows] = 100 * x[rows] + 5
    moved = st.Clients(x, clients.y, clients.bounds, clients.names, clients.classes).to(dtype=DOUBLE)
    ids, theta = np.array([6, 5, 4]), result._personal["personal"][[6, 5, 4]]
    before = Stack(result.task, result.data, ids, torch.ones(3), 0, 0)
    after = Stack(result.task, moved, ids, torch.ones(3), 0, 0)
    for k, v in before.statistics(theta).items():
        torch.testing.assert_close(after.statistics(theta)[k][1:], v[1:])
        assert not torch.allclose(after.statistics(theta)[k][0], v[0])
    # nothing of the statistics is in what is sent or averaged
    assert result.task.size == sum(p.numel() for p in normed().parameters())
    assert all(v.shape[-1] == result.task.size for k, v in result.run.server.items() if k == "w")


def test_the_exported_model_predicts_as_the_client_was_scored() -> None:
    clients = ragged()
    result = st.fit(
        st.Ditto(solver=st.SGD(batch=7)),
        normed(),
        clients,
        3,
        execution=st.Execution(dtype=DOUBLE),
        evaluation=st.Evaluation(evaluate_every=3, diagnostics=False),
    )
    for i in (4, 5, 6):
        rows = clients.rows(i, "test")
        right = result.personal(i)(clients.x[rows].double()).argmax(1) == clients.y[rows]
        assert float(right.double().mean()) == pytest.approx(result.scores["personal/test/accuracy"][i])


# --- models and refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "count"),
    [
        ("mlp", (1, 28, 28), 109_386),
        ("softmax", (1, 28, 28), 7_850),
        ("cnn", (1, 28, 28), 1_663_370),
        ("cnn-ditto", (1, 28, 28), 3_274_634),
        ("dnn", (60,), 60 * 100 + 100 + 1010),
    ],
)
def test_models_have_the_papers_number_of_parameters(name: str, shape: tuple[int, ...], count: int) -> None:
    assert sum(p.numel() for p in build(name, shape, 10).parameters()) == count


@pytest.mark.parametrize(
    ("name", "shape", "classes", "count"),
    [
        ("cnn-flame", (3, 32, 32), 10, 268_650),
        ("cnn-flame-medical", (3, 64, 64), 6, 206_678),
        ("cnn-flame-femnist", (1, 28, 28), 62, 214_590),
    ],
)
def test_flame_s_networks_have_the_sizes_of_its_table_2(
    name: str, shape: tuple[int, ...], classes: int, count: int
) -> None:
    model = build(name, shape, classes)
    assert sum(p.numel() for p in model.parameters()) == count
    assert model(torch.randn(2, *shape)).shape == (2, classes)


@pytest.mark.parametrize("name", ["cnn-flame", "cnn-flame-medical", "cnn-flame-femnist"])
def test_flame_s_networks_refuse_what_is_no_image_or_too_small(name: str) -> None:
    with pytest.raises(st.SartorError, match="needs images"):
        build(name, (64,), 10)
    with pytest.raises(st.SartorError, match=r"at least \d+ x \d+ pixels; got"):
        build(name, (1, 3, 3), 10)


def test_lp_proj_s_network_has_its_published_size() -> None:
    assert sum(p.numel() for p in build("2nn", (784,), 62).parameters()) == 94_862


def test_every_model_name_builds_and_runs() -> None:
    for name in (n for n in NAMES if not n.startswith("test-")):  # which other tests have made known
        shape = (28, 28) if name in ("cnn1d", "lstm", "gru", "transformer") else (1, 28, 28)
        assert len(build(name, shape, 10)(torch.randn(2, *shape))) == 2
    assert build("mlp(20,10)", (7,), 3)(torch.randn(2, 7)).shape == (2, 3)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: build("cn", (4,), 3), "unknown model 'cn': did you mean cnn"),
        (lambda: build("cnn", (4,), 3), "cnn needs images"),
        (lambda: build("mlp(a)", (4,), 3), "hidden sizes are whole numbers"),
        (lambda: ModelTask(layers(4, 3), "crossentropy"), "unknown loss 'crossentropy': did you mean cross-entropy"),
        (lambda: ModelTask(nn.ReLU()), "no parameters"),
        (lambda: st.fit(st.FedAvg(), layers(4, 3), ragged(), 1), "does not take samples of shape"),
        (lambda: st.fit(st.FedAvg(), layers(5, 2), ragged(), 1), "2 outputs but the data have 3 classes"),
        (lambda: st.fit(st.FLAME(solver=st.Exact()), layers(5, 3), ragged(), 1), "exact solver needs a linear model"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(make: object, says: str) -> None:
    assert callable(make)
    with pytest.raises(st.SartorError, match=says) as e:
        make()
    assert "\n" not in str(e.value)


def test_blocks_name_every_parameter() -> None:
    task = ModelTask(layers(5, 6, 3))
    assert {k: (v.start, v.stop) for k, v in task.blocks.items()} == {
        "1.weight": (0, 30),
        "1.bias": (30, 36),
        "3.weight": (36, 54),
        "3.bias": (54, 57),
    }
