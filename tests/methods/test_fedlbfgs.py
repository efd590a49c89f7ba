"""FedLBFGS against pooled fits that are known without it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import quadratics
from sklearn.linear_model import LogisticRegression
from villages import played, train, villages

import sartor as st
from sartor.errors import SartorError


def test_it_is_the_pooled_logistic_regression() -> None:
    clients = villages(classes=2)
    X, y = (np.concatenate(v) for v in zip(*(train(clients, i) for i in range(12)), strict=True))
    found = played(st.FedLBFGS(ridge=2.0), clients, 60)
    w = found.run.server["a"].numpy()
    theirs = LogisticRegression(C=1.0, tol=1e-12, max_iter=10000).fit(X, y)  # as for fednewton
    np.testing.assert_allclose(w[3:6] - w[:3], theirs.coef_[0], atol=1e-5)
    np.testing.assert_allclose(w[7] - w[6], theirs.intercept_[0], atol=1e-5)
    assert found.summary["personal"] is None and torch.equal(
        found.run.method.shared(found.run.server), found.run.server["a"]
    )


def test_it_ends_where_newton_s_steps_do() -> None:
    clients = villages(classes=2, seed=3)
    own, theirs = (played(m, clients, 60).run for m in (st.FedLBFGS(), st.MixedEffects(random="nothing")))
    np.testing.assert_allclose(own.server["a"], theirs.server["w"], atol=1e-6)


def test_of_quadratics_it_finds_the_minimum_in_about_as_many_rounds_as_there_are_coordinates() -> None:
    """As conjugate gradients do, give or take the length of steps; F never rises."""
    q = quadratics()
    best = np.linalg.solve(np.einsum("i,ijk->jk", q.share, q.A), q.share @ q.b)
    result = q.fit(st.FedLBFGS(ridge=0.0), rounds=8 * q.A.shape[1])
    np.testing.assert_allclose(result.run.server["a"], best, atol=1e-6)


def test_a_step_that_overshoots_is_halved() -> None:
    method = st.FedLBFGS(ridge=0.0, memory=2)
    server = {"w": torch.ones(2), "a": torch.zeros(2), "g": torch.tensor([-1.0, 0.0]), "p": torch.tensor([1.0, 1.0])}
    server |= {"S": torch.zeros(2, 2), "Y": torch.zeros(2, 2), "F": torch.ones(1), "t": torch.ones(1)}
    server["weights"] = torch.ones(2)
    sent = {"g": torch.tensor([[5.0, 5.0]]), "sums": torch.tensor([[20.0, 10.0]])}  # F has risen from 1 to 2
    new = method.server(server, torch.arange(1), sent, torch.ones(1), 1)
    assert float(new["t"]) == 0.5 and torch.equal(new["a"], server["a"])
    torch.testing.assert_close(new["w"], torch.full((2,), 0.5))


def test_a_memory_of_nothing_is_refused() -> None:
    with pytest.raises(SartorError, match="at least 1 pair; got 0"):
        st.FedLBFGS(memory=0)
