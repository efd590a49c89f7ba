"""pFedMe: the minimum of the mean envelope, and an executed oracle."""

from __future__ import annotations

import numpy as np
import pytest
from federations import quadratics
from method_runs import EXACT, shared, state

import sartor as st

SEEDS = [0, 1, 2]


@pytest.mark.parametrize("seed", SEEDS)
def test_pfedme_reaches_the_minimum_of_the_mean_envelope(seed: int) -> None:
    q = quadratics(seed=seed)
    result = q.fit(st.PFedMe(lam=0.8, eta=1.0, R=1, solver=EXACT), rounds=400)
    w, theta = q.moreau(0.8)
    np.testing.assert_allclose(shared(result), w, atol=1e-8)
    np.testing.assert_allclose(state(result, "theta"), theta, atol=1e-8)


def test_pfedme_with_local_rounds_and_beta_equals_an_executed_oracle() -> None:
    q, lam, eta, beta, R = quadratics(), 2.0, 0.3, 1.5, 3
    result = q.fit(st.PFedMe(lam=lam, eta=eta, beta=beta, R=R, solver=EXACT), rounds=7)
    inverse = np.linalg.inv(q.A + lam * np.eye(q.d))
    w = result.run.problem.start.numpy()
    for _ in range(7):
        w_i = np.tile(w, (q.m, 1))
        for _ in range(R):
            theta = np.einsum("ijk,ik->ij", inverse, q.b + lam * w_i)
            w_i = w_i - eta * lam * (w_i - theta)
        w = (1 - beta) * w + beta * w_i.mean(0)
    np.testing.assert_allclose(shared(result), w, atol=1e-10)
    np.testing.assert_allclose(state(result, "theta"), theta, atol=1e-10)
