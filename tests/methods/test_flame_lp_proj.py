"""FLAME on Lp-Proj: the same fixed point."""

from __future__ import annotations

import numpy as np
import pytest
from federations import quadratics
from method_runs import EXACT, lp_proj_2_fixed_point, shared, state

import sartor as st


@pytest.mark.parametrize("cohort", [6, 2])
def test_flame_on_lp_proj_reaches_the_same_fixed_point(cohort: int) -> None:
    q, lam = quadratics(d=6), 0.9
    method = st.FlameLpProj(lam=lam, rho=0.4, d_sub=3, projection_seed=5, solver=EXACT)
    result = q.fit(method, rounds=2400 // cohort, cohort=cohort)
    P = method.P(q.d).project(result.run.problem.start.new_tensor(np.eye(q.d))).numpy().T
    w, x = lp_proj_2_fixed_point(q, lam, P)
    np.testing.assert_allclose(shared(result), w, atol=1e-8)
    np.testing.assert_allclose(state(result, "theta"), x, atol=1e-8)
