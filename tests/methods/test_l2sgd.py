"""L2SGD and L2GD: the mixture's minimum, and the coins."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import quadratics
from method_runs import EXACT, FULL, states

import sartor as st


@pytest.mark.parametrize("cohort", [6, 2])
def test_l2sgd_reaches_the_minimum_of_the_mixture(cohort: int) -> None:
    """∇f_i(x_i) + λ(x_i − x̄) = 0 with x̄ = mean x_i: the same point as the Moreau objective's."""
    q, lam = quadratics(), 0.8
    result = q.fit(st.L2SGD(lam=lam, solver=EXACT), rounds=2000 // cohort, cohort=cohort)
    w, x = q.moreau(lam)
    np.testing.assert_allclose(result.run.server["w"], w, atol=1e-8)
    np.testing.assert_allclose(states(result)["x"], x, atol=1e-8)


def test_l2gd_s_two_steps_are_the_gradient_of_the_mixture_on_average() -> None:
    """(1 − p)·(gradient step) + p·(mean step) = x − α/n ∇F(x), coordinate by coordinate."""
    q, lam, p, lr = quadratics(), 0.8, 0.3, 0.05
    rng = np.random.default_rng(0)
    x = rng.normal(size=(q.m, q.d))
    one_step = lr * (1 - p)  # α/n
    gradient = x - lr * (np.einsum("ijk,ik->ij", q.A, x) - q.b)
    towards = x - one_step * lam / p * (x - x.mean(0))
    slope = np.einsum("ijk,ik->ij", q.A, x) - q.b + lam * (x - x.mean(0))  # n ∇F
    np.testing.assert_allclose((1 - p) * gradient + p * towards, x - one_step * slope, atol=1e-12)
    # and these are the steps that a round is made of
    result = q.fit(st.L2GD(p=p, lam=lam, solver=st.SGD(lr=lr, batch=FULL)), rounds=1)
    run, method = result.run, result.run.method
    assert isinstance(method, st.L2SGD)
    start, x_bar = run.engine.save(), torch.as_tensor(x).mean(0)
    run.engine.restore(start | {"state/x": torch.as_tensor(x)})
    run.server = run.server | {"w": x_bar, "sum": q.m * x_bar}
    means, gradients = method.steps(p, run.round)
    for _ in range(means):
        x = x - one_step * lam / p * (x - x_bar.numpy())
    for _ in range(gradients):
        x = x - lr * (np.einsum("ijk,ik->ij", q.A, x) - q.b)
    run.step()
    np.testing.assert_allclose(states(result)["x"], x, atol=1e-12)


def test_l2gd_s_coins_are_geometric() -> None:
    method = st.L2GD(p=0.25)
    counts = np.array([method.steps(0.25, r) for r in range(4000)])
    assert counts.min() == 1
    np.testing.assert_allclose(counts.mean(0), [1 / 0.75, 1 / 0.25], rtol=0.05)


def test_l2gd_settles_nearer_to_the_minimum_the_smaller_its_step() -> None:
    q, lam = quadratics(), 0.8
    _, x = q.moreau(lam)
    errors = []
    for lr, rounds in ((0.2, 200), (0.01, 900)):
        result = q.fit(st.L2GD(p=0.5, lam=lam, solver=st.SGD(lr=lr, batch=FULL)), rounds=rounds)
        seen = []
        for _ in range(40):
            result.run.step()
            seen.append(np.abs(states(result)["x"].numpy() - x).max())
        errors.append(np.mean(seen))
    assert errors[1] < errors[0] / 4 and errors[1] < 0.1
