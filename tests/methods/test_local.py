"""Local training: each client's own optimum."""

from __future__ import annotations

import numpy as np
from federations import quadratics
from method_runs import EXACT, state

import sartor as st


def test_local_training_reaches_each_client_s_own_optimum() -> None:
    q = quadratics()
    result = q.fit(st.LocalOnly(solver=EXACT), rounds=1)
    np.testing.assert_allclose(state(result, "theta"), np.linalg.solve(q.A, q.b[..., None])[..., 0], atol=1e-10)
