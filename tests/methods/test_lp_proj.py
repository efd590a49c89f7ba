"""Lp-Proj: the fixed point for p = 2."""

from __future__ import annotations

import numpy as np
import pytest
from federations import quadratics
from method_runs import EXACT, lp_proj_2_fixed_point, shared, state

import sartor as st


@pytest.mark.parametrize("projection", ["gaussian", "orthogonal"])
def test_lp_proj_2_reaches_its_fixed_point(projection: str) -> None:
    q, lam = quadratics(d=6), 0.9
    method = st.LpProj(p=2, lam=lam, eta=1.0, d_sub=3, projection=projection, projection_seed=5, solver=EXACT)
    result = q.fit(method, rounds=400)
    P = method.P(q.d).project(result.run.problem.start.new_tensor(np.eye(q.d))).numpy().T
    np.testing.assert_allclose(np.linalg.norm(P, axis=1), 1, atol=1e-12)
    w, x = lp_proj_2_fixed_point(q, lam, P)
    np.testing.assert_allclose(shared(result), w, atol=1e-8)
    np.testing.assert_allclose(state(result, "x"), x, atol=1e-8)


def test_lp_proj_says_when_its_subspace_hardly_ties_anything() -> None:
    facts = {"tied_directions_mean": 20 / 109386}
    said = st.LpProj(d_sub=20).warnings({}, 1, facts)
    assert said and "20 of 109386 directions" in said[0]
    assert not st.LpProj(d_sub=20).warnings({}, 1, {"tied_directions_mean": 20 / 650})
