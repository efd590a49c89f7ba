"""FedAvg and FedProx against an executed oracle."""

from __future__ import annotations

import numpy as np
from federations import quadratics
from method_runs import EXACT, shared

import sartor as st


def test_fedprox_equals_an_executed_oracle() -> None:
    q, mu = quadratics(), 0.7
    result = q.fit(st.FedProx(mu=mu, solver=EXACT), rounds=5)
    w = result.run.problem.start.numpy()
    for _ in range(5):
        w = q.share @ np.linalg.solve(q.A + mu * np.eye(q.d), (q.b + mu * w)[..., None])[..., 0]
    np.testing.assert_allclose(shared(result), w, atol=1e-10)
