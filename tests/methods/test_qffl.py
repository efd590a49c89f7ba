"""q-FFL: its formulas, and what they minimise."""

from __future__ import annotations

import numpy as np
import scipy.optimize
from federations import quadratics
from method_runs import one_step, optimum

import sartor as st


def test_qffl_equals_its_formulas() -> None:
    q_, q, lr = 1.5, quadratics(), 0.1
    result = q.fit(st.QFFL(q=q_, weighting="uniform", solver=one_step(lr)), rounds=4)
    y2 = [float((q.clients.y[q.clients.rows(i, "train")] ** 2).mean()) for i in range(q.m)]
    w, L = result.run.problem.start.numpy(), 1 / lr
    for _ in range(4):
        top, bottom = np.zeros(q.d), 0.0
        for A, b, c in zip(q.A, q.b, y2, strict=True):
            F, g = 0.5 * w @ A @ w - b @ w + 0.5 * c, A @ w - b
            top += F**q_ * g
            bottom += q_ * F ** (q_ - 1) * g @ g + L * F**q_
        w = w - top / bottom
    np.testing.assert_allclose(result.run.server["w"], w, atol=1e-10)


def test_qffl_minimises_the_sum_of_powers_and_so_makes_losses_more_alike() -> None:
    q, power = quadratics(), 2.0
    X, y = ([t[q.clients.rows(i, "train")].numpy() for i in range(q.m)] for t in (q.clients.x, q.clients.y))

    def losses(w: np.ndarray) -> np.ndarray:
        return np.array([0.5 * np.mean((A @ w - b) ** 2) for A, b in zip(X, y, strict=True)])

    method = st.QFFL(q=power, weighting="uniform", solver=one_step(0.3))
    w = q.fit(method, rounds=400).run.server["w"].numpy()
    found = scipy.optimize.minimize(
        lambda v: (losses(v) ** (power + 1)).sum(),
        np.zeros(q.d),
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-14, "maxiter": 20_000, "maxfev": 20_000},
    )
    np.testing.assert_allclose(w, found.x, atol=1e-5)
    assert losses(w).var() < losses(optimum(q)).var()
