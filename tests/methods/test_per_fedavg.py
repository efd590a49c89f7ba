"""Per-FedAvg: gradients through one adapting step, with and without the Hessian."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import quadratics, ragged
from method_runs import FULL, SGD, autograd_loss, personal, play, random_models, stack_of

import sartor as st
from sartor.methods.per_fedavg import Meta
from sartor.models import layers


@pytest.mark.parametrize("hessian", [True, False])
def test_per_fedavg_gradient_is_autograd_s_of_the_adapted_loss(hessian: bool) -> None:
    """HF: ∇ f(w − α∇f(w)) by double backward, to 1e-5; FO: the same without the Hessian."""
    local, alpha = stack_of(ragged(), layers(5, 3)), 0.3
    theta = random_models(local)
    meta = Meta(local, alpha, 1e-3 if hessian else None)
    a, batch = next(meta.batches(FULL, steps=1))
    ours = meta.grad(theta, batch)
    assert a == len(theta)
    plain = Meta(local, alpha, None).grad(theta, batch)
    for i in range(len(theta)):
        w = theta[i].clone().requires_grad_()
        (g,) = torch.autograd.grad(autograd_loss(local, i, w), w, create_graph=True)
        (expected,) = torch.autograd.grad(autograd_loss(local, i, w - alpha * (g if hessian else g.detach())), w)
        torch.testing.assert_close(ours[i], expected, atol=1e-5, rtol=1e-5)
    assert not hessian or float((ours - plain).abs().max()) > 1e-2  # the Hessian does matter here


def test_per_fedavg_uses_three_batches_and_adapts_with_all_data() -> None:
    local = stack_of(ragged(), layers(5, 3))
    _, batch = next(Meta(local, 0.1, None).batches(7, steps=1))
    thirds = batch.x.chunk(3, dim=1)
    assert not torch.equal(thirds[0][0], thirds[1][0]) and not torch.equal(thirds[1][0], thirds[2][0])
    result = play(st.PerFedAvg(alpha=0.2, solver=SGD))
    w = result.run.server["w"]
    for i, ours in enumerate(personal(result)):
        local = stack_of(ragged(), layers(5, 6, 3))
        at = int(np.flatnonzero(local.ids == i)[0])
        theta = w.clone().requires_grad_()
        (g,) = torch.autograd.grad(autograd_loss(local, at, theta), theta)
        np.testing.assert_allclose(ours, (w - 0.2 * g).numpy(), atol=1e-12)


def test_per_fedavg_on_quadratics_reaches_the_minimum_of_the_adapted_losses() -> None:
    """F_i(w) = f_i((I − αA)w + αb): w* solves Σ (I − αA)A(I − αA) w = Σ (I − αA)(I − αA) b."""
    q, alpha = quadratics(), 0.1
    solver = st.SGD(lr=0.5, steps=1, batch=FULL)
    w = q.fit(st.PerFedAvg(alpha=alpha, solver=solver), rounds=250).run.server["w"].numpy()
    S = np.eye(q.d) - alpha * q.A
    expected = np.linalg.solve((S @ q.A @ S).sum(0), np.einsum("ijk,ikl,il->j", S, S, q.b))
    np.testing.assert_allclose(w, expected, atol=1e-8)
