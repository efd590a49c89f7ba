"""The compiled steps of dense networks against the same steps one by one, with the gradient of dense_gradient.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import quadratics, ragged
from torch import Tensor

import sartor as st
from sartor.core import Coupling, Dense
from sartor.couplings import Free, Projected, Projection, Quadratic
from sartor.engines.stack import Stack
from sartor.models import layers
from sartor.tasks import compiled, dense_steps
from sartor.tasks.task import ModelTask

DOUBLE = torch.float64
pytestmark = pytest.mark.skipif(not compiled.available(), reason="needs the extra `fast` (Numba)")


def stack(loss: str, bias: bool, dtype: torch.dtype = DOUBLE, hidden: tuple[int, ...] = ()) -> Stack:
    """Seven clients of 57 samples to one."""
    clients = ragged().to(dtype=dtype)
    if loss != "cross-entropy":
        y = clients.x[:, 0] * 0.7 - 0.2 if loss == "squared" else torch.where(clients.y > 0, 1.0, -1.0)
        clients = st.Clients(clients.x, y.to(dtype), clients.bounds, clients.names, None)
    model = layers(5, *hidden, 3 if loss == "cross-entropy" else 1).to(dtype)
    if not bias:
        last = model[-1]
        model[-1] = torch.nn.Linear(last.in_features, last.out_features, bias=False, dtype=dtype)
    ids = np.argsort(-clients.counts("train"), kind="stable")
    return Stack(ModelTask(model, loss), clients, ids, torch.ones(len(ids)), round=2, seed=1)


def both(s: Stack, solver: st.SGD, theta: Tensor, coupling: Coupling, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The compiled steps, and those one by one."""
    calls = []
    plain = dense_steps.descend_
    monkeypatch.setattr(dense_steps, "_BATCH", 100)
    monkeypatch.setattr(dense_steps, "descend_", lambda *a: calls.append(1) or plain(*a))
    fast = solver.minimise(s, theta, coupling, start=1, stream=1)
    assert calls, "the compiled steps were not taken"
    monkeypatch.setattr(compiled, "available", lambda: False)
    slow = solver.minimise(s, theta, coupling, start=1, stream=1)
    assert len(calls) == 1
    return [fast, slow]


@pytest.mark.parametrize("loss", ["cross-entropy", "squared", "hinge"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch", [1, 4, 7, 100])
@pytest.mark.parametrize("hidden", [(), (4,), (9, 6, 1)])
@pytest.mark.parametrize("coupling", ["free", "quadratic", "each its own λ", "one anchor"])
def test_equal_to_single_steps(
    loss: str, bias: bool, batch: int, hidden: tuple[int, ...], coupling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = stack(loss, bias, hidden=hidden)
    c, d = len(s.ids), s.task.size
    draw = torch.Generator().manual_seed(0)
    theta, anchor = (0.5 * torch.randn(c, d, generator=draw, dtype=DOUBLE) for _ in range(2))
    ties: dict[str, Coupling] = {
        "free": Free(),
        "quadratic": Quadratic(0.7, anchor),
        "each its own λ": Quadratic(torch.linspace(0, 2, c, dtype=DOUBLE)[:, None], anchor),
        "one anchor": Quadratic(0.7, anchor[:1].expand(c, d)),
    }
    before = theta.clone()
    fast, slow = both(s, st.SGD(lr=0.03, batch=batch, epochs=2), theta, ties[coupling], monkeypatch)
    torch.testing.assert_close(fast, slow, rtol=1e-11, atol=1e-11)
    assert torch.equal(theta, before) and not torch.equal(fast, before)


def test_repeated_steps_on_one_batch_and_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    s = stack("cross-entropy", True, torch.float32)
    theta = torch.zeros(len(s.ids), s.task.size)
    fast, slow = both(s, st.SGD(lr=0.1, batch=8, steps=5, reuse=True), theta, Free(), monkeypatch)
    assert fast.dtype == torch.float32
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-6)


def test_other_couplings_momentum_and_weight_decay_go_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_steps, "descend_", lambda *a: pytest.fail("these steps are not plain"))
    s = stack("cross-entropy", True)
    theta = torch.zeros(len(s.ids), s.task.size, dtype=DOUBLE)
    P = Projection(2, s.task.size, seed=0)
    st.SGD().minimise(s, theta, Projected(1.0, P.project(theta), P))
    st.SGD(momentum=0.5).minimise(s, theta, Free())
    st.SGD(weight_decay=0.1).minimise(s, theta, Free())


def test_divergence_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled arithmetic may reorder sums, but keeps NaN and Inf."""
    with pytest.raises(st.SartorError, match="diverged"):
        quadratics().fit(st.LocalOnly(solver=st.SGD(lr=1e9, epochs=40)), rounds=5)


def test_what_a_blas_is_faster_at_is_left_to_it() -> None:
    """By the sizes of layers and batches alone: the same for every client, wherever it is computed."""
    narrow, wide = Dense((True, True), (20, 64, 2), "hinge"), Dense((True, True), (784, 100, 10), "cross-entropy")
    assert dense_steps.worth_it(narrow, 20) and not dense_steps.worth_it(narrow, 100)
    assert dense_steps.worth_it(wide, 100) and not dense_steps.worth_it(wide, 1000)
    assert dense_steps.worth_it(Dense((True,), (20, 2), "cross-entropy"), 1000)
    assert not dense_steps.worth_it(Dense((True,), (20, 1), "squared-hinge"), 20)


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_a_pull_of_each_weight_is_not_taken_for_a_client_s(hidden: tuple[int, ...]) -> None:
    """EWC holds every weight with its own strength: θ − lr (∇f + λ_j (θ_j − a_j)), one step on all samples."""
    s = stack("cross-entropy", True, hidden=hidden)
    draw = torch.Generator().manual_seed(3)
    c, d = len(s.ids), s.task.size
    theta, anchor = (torch.randn(c, d, dtype=DOUBLE, generator=draw) for _ in range(2))
    lam = torch.rand(c, d, dtype=DOUBLE, generator=draw)
    found = st.SGD(lr=0.1, batch=100, steps=1).minimise(s, theta, Quadratic(lam, anchor))
    torch.testing.assert_close(found, theta - 0.1 * (s.full_grad(theta) + lam * (theta - anchor)))
