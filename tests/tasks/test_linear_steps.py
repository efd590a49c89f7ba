"""The compiled steps of linear models against the same steps one by one, with the gradient of dense.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import quadratics, ragged
from torch import Tensor

import sartor as st
from sartor.core import Coupling
from sartor.couplings import Free, Projected, Projection, Quadratic
from sartor.engines.stack import Stack
from sartor.models import layers
from sartor.tasks import compiled, linear_steps
from sartor.tasks.task import ModelTask

DOUBLE = torch.float64
pytestmark = pytest.mark.skipif(not compiled.available(), reason="needs the extra `fast` (Numba)")


def stack(loss: str, bias: bool, dtype: torch.dtype = DOUBLE) -> Stack:
    """Seven clients of 57 samples to one."""
    clients = ragged().to(dtype=dtype)
    if loss != "cross-entropy":
        y = clients.x[:, 0] * 0.7 - 0.2 if loss == "squared" else torch.where(clients.y > 0, 1.0, -1.0)
        clients = st.Clients(clients.x, y.to(dtype), clients.bounds, clients.names, None)
    model = layers(5, 3 if loss == "cross-entropy" else 1).to(dtype)
    if not bias:
        model[-1] = torch.nn.Linear(5, model[-1].out_features, bias=False, dtype=dtype)
    ids = np.argsort(-clients.counts("train"), kind="stable")
    return Stack(ModelTask(model, loss), clients, ids, torch.ones(len(ids)), round=2, seed=1)


def both(s: Stack, solver: st.SGD, theta: Tensor, coupling: Coupling, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The compiled steps, and those one by one."""
    calls = []
    plain = linear_steps.descend_
    monkeypatch.setattr(linear_steps, "descend_", lambda *a: calls.append(1) or plain(*a))
    fast = solver.minimise(s, theta, coupling, start=1, stream=1)
    assert calls, "the compiled steps were not taken"
    monkeypatch.setattr(compiled, "available", lambda: False)
    slow = solver.minimise(s, theta, coupling, start=1, stream=1)
    assert len(calls) == 1
    return [fast, slow]


@pytest.mark.parametrize("loss", ["cross-entropy", "squared", "hinge"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch", [1, 4, 7, 100])
@pytest.mark.parametrize("coupling", ["free", "quadratic", "each its own λ", "one anchor"])
def test_equal_to_single_steps(
    loss: str, bias: bool, batch: int, coupling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = stack(loss, bias)
    c, d = len(s.ids), s.task.size
    draw = torch.Generator().manual_seed(0)
    theta, anchor = (torch.randn(c, d, generator=draw, dtype=DOUBLE) for _ in range(2))
    ties: dict[str, Coupling] = {
        "free": Free(),
        "quadratic": Quadratic(0.7, anchor),
        "each its own λ": Quadratic(torch.linspace(0, 2, c, dtype=DOUBLE)[:, None], anchor),
        "one anchor": Quadratic(0.7, anchor[:1].expand(c, d)),
    }
    before = theta.clone()
    fast, slow = both(s, st.SGD(lr=0.1, batch=batch, epochs=2), theta, ties[coupling], monkeypatch)
    torch.testing.assert_close(fast, slow, rtol=1e-11, atol=1e-11)
    assert torch.equal(theta, before) and not torch.equal(fast, before)


def test_repeated_steps_on_one_batch_and_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    s = stack("cross-entropy", True, torch.float32)
    theta = torch.zeros(len(s.ids), s.task.size)
    fast, slow = both(s, st.SGD(lr=0.1, batch=8, steps=5, reuse=True), theta, Free(), monkeypatch)
    assert fast.dtype == torch.float32
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-6)


def test_other_couplings_momentum_and_weight_decay_go_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_steps, "descend_", lambda *a: pytest.fail("these steps are not plain"))
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


def test_only_one_linear_layer_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Stack(ModelTask(layers(5, 4, 3).to(DOUBLE)), ragged().to(dtype=DOUBLE), np.array([6]), torch.ones(1), 0, 0)
    monkeypatch.setattr(linear_steps, "descend_", lambda *a: pytest.fail("it has two layers"))
    st.SGD().minimise(two, torch.zeros(1, two.task.size, dtype=DOUBLE), Free())
