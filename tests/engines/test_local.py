"""The local engine: batches, ragged clients, scores against a plain loop, errors with names."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from federations import quadratics, ragged
from torch import nn

import sartor as st
from sartor.core import Batch
from sartor.engines import SerialEngine
from sartor.engines.local import problem_of
from sartor.engines.stack import Stack
from sartor.models import layers
from sartor.run.rounds import draw_cohort
from sartor.tasks.task import ModelTask

DOUBLE = torch.float64


def stack(ids: list[int], round: int = 0, seed: int = 0) -> Stack:
    clients = ragged().to(dtype=DOUBLE)
    return Stack(ModelTask(layers(5, 3).to(DOUBLE)), clients, np.array(ids), torch.ones(len(ids)), round, seed)


def rows_of(s: Stack, batches: list[tuple[int, Batch]], client: int) -> list[list[int]]:
    """Which samples of the data each batch of one client of the stack holds, found by their values."""
    out = []
    for a, batch in batches:
        if client < a:
            kept = batch.x[client][batch.weight[client] > 0]
            out.append([int((s.data.x == v).all(1).nonzero()[0, 0]) for v in kept])
    return out


@pytest.mark.parametrize("epochs", [1, 3])
def test_every_epoch_holds_every_sample_once_and_nobody_takes_more_steps_than_needed(epochs: int) -> None:
    s = stack([6, 5, 4, 2, 0])
    batches = list(s.batches(7, epochs=epochs))
    for client, i in enumerate(s.ids):
        found, first = rows_of(s, batches, client), s.data.bounds[i, 0]
        n = int(s.counts[client])
        assert len(found) == epochs * math.ceil(n / 7)
        per_epoch = math.ceil(n / 7)
        for e in range(epochs):
            epoch = [row for batch in found[e * per_epoch : (e + 1) * per_epoch] for row in batch]
            assert sorted(epoch) == list(range(first, first + n))
    assert [a for a, _ in batches] == sorted((a for a, _ in batches), reverse=True)
    for _, batch in batches:
        torch.testing.assert_close(batch.weight.sum(1), torch.ones(len(batch.weight), dtype=DOUBLE))


def test_steps_are_the_same_for_everyone_and_start_goes_on_in_the_same_order() -> None:
    s = stack([6, 4, 1])
    whole = list(s.batches(7, steps=11))
    assert [a for a, _ in whole] == [3] * 11
    parts = [next(iter(s.batches(7, steps=1, start=k))) for k in range(11)]
    for (_, one), (_, other) in zip(whole, parts, strict=True):
        assert torch.equal(one.x, other.x) and torch.equal(one.weight, other.weight)


def test_order_depends_on_seed_round_client_and_stream_only() -> None:
    def order(s: Stack, client: int, stream: int = 0) -> list[list[int]]:
        return rows_of(s, list(s.batches(7, stream=stream)), client)

    base = order(stack([6, 5]), 0)
    assert base == order(stack([6, 3, 2]), 0)
    assert base != order(stack([6, 5], round=1), 0)
    assert base != order(stack([6, 5], seed=1), 0)
    assert base != order(stack([6, 5]), 0, stream=1)


def test_full_loss_and_gradient_are_means_over_all_training_data() -> None:
    s = stack([6, 5, 4, 3, 2, 1, 0])
    task = s.task
    theta = torch.stack([task.init(k) for k in range(7)])
    for k, i in enumerate(s.ids):
        rows = s.data.rows(int(i), "train")
        weight = theta[k][:15].reshape(3, 5).clone().requires_grad_()
        bias = theta[k][15:].clone().requires_grad_()
        loss = F.cross_entropy(F.linear(s.data.x[rows], weight, bias), s.data.y[rows])
        slope = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, (weight, bias))])
        torch.testing.assert_close(s.full_loss(theta)[k], loss.detach())
        torch.testing.assert_close(s.full_grad(theta)[k], slope)


def test_scores_equal_a_plain_loop_and_empty_parts_are_nan() -> None:
    clients = ragged()
    result = st.fit(
        st.Ditto(solver=st.SGD(batch=7)),
        layers(5, 3),
        clients,
        2,
        execution=st.Execution(dtype=DOUBLE),
        evaluation=st.Evaluation(evaluate_every=2, diagnostics=False),
    )
    for i in range(len(clients)):
        rows = clients.rows(i, "test")
        for model, module in (("personal", result.personal(i)), ("global", result.shared())):
            accuracy, loss = (result.scores[f"{model}/test/{k}"][i] for k in ("accuracy", "loss"))
            if i == 3:
                assert math.isnan(accuracy) and math.isnan(loss)
                continue
            output = module(clients.x[rows].double()).detach()
            assert accuracy == pytest.approx(float((output.argmax(1) == clients.y[rows]).double().mean()))
            assert loss == pytest.approx(float(F.cross_entropy(output, clients.y[rows])))
    assert result.summary["personal"]["clients_scored"] == 6
    assert result.clients[3]["personal_test_accuracy"] is None


def test_regression_is_scored_by_r2() -> None:
    q = quadratics()
    result = q.fit(st.LocalOnly(solver=st.Exact()), rounds=1)
    for i in range(q.m):
        rows = q.clients.rows(i, "test")
        y = q.clients.y[rows].numpy()
        predicted = result.personal(i)(q.clients.x[rows]).detach().numpy()[:, 0]
        assert result.scores["personal/test/accuracy"][i] == pytest.approx(
            1 - ((y - predicted) ** 2).sum() / ((y - y.mean()) ** 2).sum()
        )
        assert result.scores["personal/test/loss"][i] == pytest.approx(0.5 * ((y - predicted) ** 2).mean())


def test_hinge_targets_are_scored_by_sign() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y = np.sign(x[:, 0] + 0.1)
    parts = [{"train": (x[:40], y[:40]), "test": (x[40:], y[40:])}] * 2
    clients = st.Clients.from_parts(parts)
    clients = st.Clients(clients.x, clients.y, clients.bounds, clients.names, 2)
    result = st.fit(
        st.FedAvg(solver=st.SGD(lr=0.5, epochs=5)),
        layers(3, 1),
        clients,
        10,
        execution=st.Execution(dtype=DOUBLE),
        evaluation=st.Evaluation(evaluate_every=10),
    )
    right = np.sign(result.shared()(torch.as_tensor(x[40:])).detach().numpy()[:, 0]) == y[40:]
    assert result.summary["global"]["accuracy_mean"] == pytest.approx(right.mean())
    assert right.mean() > 0.9


class Touchy(nn.Module):
    """Raises for the one client whose samples are huge."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.abs().max() > 1e3:
            raise RuntimeError("too large for me")
        out: torch.Tensor = self.inner(x)
        return out


def test_the_serial_engine_names_client_round_and_stage() -> None:
    clients = ragged()
    x = clients.x.clone()
    x[clients.rows(4, "train")] *= 1e6
    touched = st.Clients(x, clients.y, clients.bounds, [f"hospital {i}" for i in range(7)], 3).to(dtype=DOUBLE)
    task = ModelTask(Touchy().to(DOUBLE), vectorise=False)
    method = st.FedAvg()
    server, first = method.init(problem_of(task, touched, 0))
    engine = SerialEngine(method, task, touched, first, 0)
    ids = torch.arange(7)
    with pytest.raises(RuntimeError, match="too large for me") as e:
        engine.map("train", 12, ids, method.downlink(server, ids, 12))
    assert e.value.__notes__ == ["client hospital 4, round 13, stage train"]


def test_divergence_names_round_client_and_cause_and_changes_no_state() -> None:
    clients = ragged()
    x = clients.x.clone()
    x[clients.rows(5, "train")] *= 1e200
    clients = st.Clients(x.double(), clients.y, clients.bounds, clients.names, 3)
    result = None
    with pytest.raises(st.Diverged, match=r"round 1: theta of client 5 holds NaN or Inf.*lower lr"):
        result = st.fit(st.FLAME(solver=st.SGD(lr=0.1)), layers(5, 3), clients, 2, execution=st.Execution(dtype=DOUBLE))
    assert result is None


def test_cohorts_have_the_right_size_and_depend_on_seed_and_round() -> None:
    clients = ragged()
    problem = problem_of(ModelTask(layers(5, 3)), clients, 0)
    drawn = [draw_cohort(problem, 3, "uniform", r) for r in range(2000)]
    assert all(len(set(c.tolist())) == 3 for c in drawn)
    counts = torch.bincount(torch.cat(drawn), minlength=7) / 2000
    assert float((counts - 3 / 7).abs().max()) < 5 * (3 / 7 * 4 / 7 / 2000) ** 0.5
    by_size = torch.bincount(torch.cat([draw_cohort(problem, 1, "size", r) for r in range(4000)]), minlength=7) / 4000
    assert float((by_size - problem.share).abs().max()) < 5 * (0.25 / 4000) ** 0.5
    assert torch.equal(draw_cohort(problem, 3, "uniform", 5), drawn[5])


def test_train_all_trains_everyone_but_hears_the_cohort() -> None:
    solver = st.SGD(lr=0.1, batch=7)
    everyone = st.fit(
        st.PFedMe(train_all=True, R=1, solver=solver),
        layers(5, 3),
        ragged(),
        1,
        federation=st.Federation(cohort=2),
        execution=st.Execution(dtype=DOUBLE),
    )
    assert everyone.run.engine.save()["visits"].tolist() == [1] * 7
    cohort_only = st.fit(
        st.PFedMe(R=1, solver=solver),
        layers(5, 3),
        ragged(),
        1,
        federation=st.Federation(cohort=2),
        execution=st.Execution(dtype=DOUBLE),
    )
    assert sum(cohort_only.run.engine.save()["visits"].tolist()) == 2
    torch.testing.assert_close(everyone.run.server["w"], cohort_only.run.server["w"])


def test_the_users_model_is_left_alone() -> None:
    model = layers(5, 3)
    before = [p.clone() for p in model.parameters()]
    st.fit(st.FedAvg(), model, ragged(), 1, execution=st.Execution(dtype=DOUBLE))
    assert all(torch.equal(p, b) and p.dtype == torch.float32 for p, b in zip(model.parameters(), before, strict=True))


def test_the_table_shows_each_client_with_local_training_beside() -> None:
    clients = ragged()
    local = st.fit(st.LocalOnly(), layers(5, 3), clients, 2, evaluation=st.Evaluation(diagnostics=False))
    lines = (
        st.fit(st.Ditto(), layers(5, 3), clients, 2, evaluation=st.Evaluation(diagnostics=False))
        .table(local=local)
        .splitlines()
    )
    assert lines[0].split() == ["client", "train", "test", "local", "global", "personal", "chosen", "takes"]
    assert len(lines) == 8
    assert lines[6].split()[3] == f"{local.scores['personal/test/accuracy'][5]:.3f}"
    assert lines[4].split()[3:7] == ["-"] * 4  # the client without a test part
