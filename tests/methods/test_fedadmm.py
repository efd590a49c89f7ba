"""FedADMM: the global optimum, and an executed oracle."""

from __future__ import annotations

import numpy as np
import pytest
from federations import quadratics
from method_runs import EXACT, optimum, states

import sartor as st


@pytest.mark.parametrize("weighting", ["uniform", "size"])
def test_fedadmm_reaches_the_global_optimum(weighting: str) -> None:
    q = quadratics()
    result = q.fit(st.FedADMM(rho=1.0, weighting=weighting, solver=EXACT), rounds=300)
    expected = optimum(q, q.share if weighting == "size" else None)
    np.testing.assert_allclose(result.run.server["w"], expected, atol=1e-8)
    np.testing.assert_allclose(states(result)["w"], np.tile(expected, (q.m, 1)), atol=1e-7)


def test_fedadmm_equals_an_executed_oracle() -> None:
    """The same program as FLAME's limit λ → ∞ is held against in test_identities."""
    q, rho = quadratics(), 1.5
    result = q.fit(st.FedADMM(rho=rho, solver=EXACT), rounds=7)
    w, pi = result.run.problem.start.numpy(), np.zeros((q.m, q.d))
    for _ in range(7):
        w_i = np.linalg.solve(q.A + rho * np.eye(q.d), (q.b + rho * w - q.m * pi)[..., None])[..., 0]
        pi = pi + rho / q.m * (w_i - w)
        w = (w_i + q.m * pi / rho).mean(0)
    np.testing.assert_allclose(result.run.server["w"], w, atol=1e-10)
