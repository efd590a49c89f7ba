"""Mapper: interpolation by λ, chosen on validation data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import quadratics
from method_runs import FULL, personal, play, states

import sartor as st


def test_mapper_with_lambda_one_is_local_training_and_with_zero_fedavg() -> None:
    plain = st.SGD(lr=0.1, epochs=2, batch=7)
    zero = play(st.Mapper(lambdas=(0.0,), solver=plain))
    torch.testing.assert_close(zero.run.server["w"], play(st.FedAvg(solver=plain)).run.server["w"])
    q, solver = quadratics(), st.SGD(lr=0.1, steps=3, batch=FULL)
    one, alone = q.fit(st.Mapper(lambdas=(1.0,), solver=solver), 5), q.fit(st.LocalOnly(solver=solver), 5)
    np.testing.assert_allclose(personal(one), states(alone)["theta"], atol=1e-12)
    torch.testing.assert_close(one.run.server["w"], one.run.problem.start)  # nobody has a use for it


def test_mapper_takes_the_lambda_with_the_lowest_validation_loss() -> None:
    q, grid = quadratics(), (0.0, 0.3, 0.7, 1.0)
    solver = st.SGD(lr=0.1, steps=4, batch=FULL)
    result = q.fit(st.Mapper(lambdas=grid, solver=solver), rounds=1)
    w = result.run.problem.start.numpy()
    for i in range(q.m):
        losses, models = [], []
        x, y = (t[q.clients.rows(i, "validation")].numpy() for t in (q.clients.x, q.clients.y))
        for lam in grid:
            h = w.copy()
            for _ in range(4):
                h = h - 0.1 * lam * (q.A[i] @ (lam * h + (1 - lam) * w) - q.b[i])
            models.append(h)
            losses.append(0.5 * np.mean((x @ (lam * h + (1 - lam) * w) - y) ** 2))
        best = int(np.argmin(losses))
        assert float(states(result)["lambda"][i]) == pytest.approx(grid[best])
        np.testing.assert_allclose(states(result)["h"][i], models[best], atol=1e-12)
