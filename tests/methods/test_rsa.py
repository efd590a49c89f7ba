"""RSA: the fixed point, an executed oracle, and what a liar can do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import quadratics
from method_runs import EXACT, FULL, states

import sartor as st
from sartor.errors import SartorError


def test_rsa_with_the_squared_norm_reaches_pfedme_s_and_l2sgd_s_point() -> None:
    q, lam = quadratics(), 0.8
    method = st.RSA(lam=lam, p=2, norm=False, server_lr=0.2, solver=EXACT)
    result = q.fit(method, rounds=400)
    w, x = q.moreau(lam)
    np.testing.assert_allclose(result.run.server["w"], w, atol=1e-8)
    np.testing.assert_allclose(states(result)["x"], x, atol=1e-8)


def test_rsa_with_p_one_equals_an_executed_oracle_and_a_liar_moves_it_by_one_step() -> None:
    q, lam, lr, decay = quadratics(), 0.05, 0.1, 0.02
    method = st.RSA(lam=lam, server_lr=0.2, decay=decay, solver=st.SGD(lr=lr, steps=1, batch=FULL))
    result = q.fit(method, rounds=30)
    x_0 = result.run.problem.start.numpy()
    x = np.tile(x_0, (q.m, 1))
    for _ in range(30):
        x = x - lr * (np.einsum("ijk,ik->ij", q.A, x) - q.b + lam * np.sign(x - x_0))
        x_0 = x_0 - 0.2 * (decay * x_0 + lam * np.sign(x_0 - x).sum(0))
    np.testing.assert_allclose(result.run.server["w"], x_0, atol=1e-10)
    np.testing.assert_allclose(states(result)["x"], x, atol=1e-10)
    honest, server = torch.as_tensor(x), {"w": torch.as_tensor(x_0)}
    lie = honest.clone()
    lie[2] = 1e12
    ids, alike = torch.arange(q.m), torch.ones(q.m)
    truth, lied = (method.server(server, ids, {"x": sent}, alike, 0)["w"] for sent in (honest, lie))
    moved = truth - lied
    assert float(moved.abs().max()) <= 2 * 0.2 * lam + 1e-12


def test_a_pace_is_a_server_s_step_for_any_number_of_clients() -> None:
    """By default the server moves as far among 4 clients as among 1,000, and refuses to be told both."""
    sent = torch.ones(7, 3)
    for m in (4, 1000):
        moved = st.RSA(lam=0.05).server(
            {"w": torch.zeros(3)}, torch.arange(m), {"x": sent[:1].expand(m, 3)}, torch.ones(m), 0
        )
        torch.testing.assert_close(moved["w"], torch.full((3,), 0.1))
    ids, alike, server = torch.arange(7), torch.ones(7), {"w": torch.zeros(3)}
    draw = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    own, same = (
        method.server(server, ids, {"x": draw}, alike, 0)["w"]
        for method in (st.RSA(lam=0.05, pace=0.07), st.RSA(lam=0.05, server_lr=0.2))
    )
    torch.testing.assert_close(own, same)
    with pytest.raises(SartorError, match=r"pace or server_lr; got 0\.1 and 1"):
        st.RSA(pace=0.1, server_lr=1.0)
