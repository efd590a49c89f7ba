"""FedMGDA+: the point of least norm, and a direction that serves everyone."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch
from method_runs import SGD, play, states

import sartor as st
from sartor.aggregators import fair_weights


def test_min_norm_point_of_two_vectors_is_the_foot_of_the_perpendicular() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.normal(size=(2, 3))
        lam = np.clip(b @ (b - a) / ((a - b) @ (a - b)), 0, 1)
        G = np.array([[a @ a, a @ b], [a @ b, b @ b]])
        ours = fair_weights(torch.as_tensor(G), torch.full((2,), 0.5, dtype=torch.float64), 1.0)
        np.testing.assert_allclose(ours, [lam, 1 - lam], atol=1e-5)


@pytest.mark.parametrize(("n", "d", "epsilon"), [(5, 3, 1.0), (8, 30, 1.0), (8, 30, 0.05), (20, 4, 0.02)])
def test_min_norm_agrees_with_scipy(n: int, d: int, epsilon: float) -> None:
    rng = np.random.default_rng(n)
    g = rng.normal(size=(n, d)) + 0.4
    G, first = g @ g.T, np.full(n, 1 / n)
    ours = fair_weights(torch.as_tensor(G), torch.as_tensor(first), epsilon).numpy()
    found = scipy.optimize.minimize(
        lambda x: x @ G @ x,
        first,
        jac=lambda x: 2 * G @ x,
        bounds=[(max(0, f - epsilon), min(1, f + epsilon)) for f in first],
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": lambda x: np.ones(n)},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert ours @ G @ ours <= found.fun + 1e-8 * np.abs(G).max()
    assert abs(ours.sum() - 1) < 1e-12 and ours.min() >= 0 and np.abs(ours - first).max() <= epsilon + 1e-12


def test_fedmgda_serves_everyone_and_plain_without_room_is_fedavg() -> None:
    fedavg = play(st.FedAvg(solver=SGD)).run.server["w"]
    plain = play(st.FedMGDA(normalise=False, epsilon=0.0, eta=1.0, solver=SGD)).run.server["w"]
    torch.testing.assert_close(plain, fedavg)
    run = play(st.FedMGDA(epsilon=1.0, eta=1.0, solver=SGD), rounds=1).run
    models = states(play(st.LocalOnly(solver=SGD), rounds=1))["theta"]
    g = run.problem.start - models
    g = g / g.norm(dim=1, keepdim=True)
    direction = run.problem.start - run.server["w"]
    assert float((g @ direction).min()) >= float(direction @ direction) - 1e-6
