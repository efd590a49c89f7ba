"""MR-MTL: its fixed point, its limits, and FLAME's."""

from __future__ import annotations

import numpy as np
from federations import quadratics
from method_runs import EXACT

import sartor as st


def test_mr_mtl_reaches_the_minimum_of_its_objective_which_is_flame_s() -> None:
    """∇F_i(w_i) + λ(w_i − w̄) = 0 for all clients, by one linear system."""
    q, lam = quadratics(), 0.4
    size = q.m * q.d
    A, b = np.zeros((size, size)), np.concatenate(list(q.b))
    mean = np.tile(np.eye(q.d), (q.m, q.m)) / q.m
    for i in range(q.m):
        A[i * q.d : (i + 1) * q.d, i * q.d : (i + 1) * q.d] = q.A[i]
    expected = np.linalg.solve(A + lam * (np.eye(size) - mean), b).reshape(q.m, q.d)
    result = q.fit(st.MRMTL(lam=lam, solver=EXACT), rounds=300)
    W = result.run.query_clients("personal")["personal"].numpy()
    np.testing.assert_allclose(W, expected, atol=1e-8)
    np.testing.assert_allclose(result.run.server["w"].numpy(), expected.mean(0), atol=1e-8)
    flame = q.fit(st.FLAME(lam=lam, solver=EXACT), rounds=600)
    np.testing.assert_allclose(flame.run.query_clients("personal")["personal"].numpy(), expected, atol=1e-6)


def test_mr_mtl_has_local_training_and_one_model_as_limits() -> None:
    q = quadratics()
    alone = np.linalg.solve(q.A, q.b[..., None])[..., 0]
    loose = q.fit(st.MRMTL(lam=1e-9, solver=EXACT), rounds=3).run.query_clients("personal")["personal"].numpy()
    np.testing.assert_allclose(loose, alone, atol=1e-6)
    pooled = np.linalg.solve(q.A.sum(0), q.b.sum(0))
    tight = q.fit(st.MRMTL(lam=300.0, solver=EXACT), rounds=4000).run.query_clients("personal")["personal"].numpy()
    np.testing.assert_allclose(tight, np.tile(pooled, (q.m, 1)), atol=2e-2)
