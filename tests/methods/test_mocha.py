"""MOCHA: the duality gap falls to zero, and the models are the primal solution, found without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from federations import two_sided
from subsets import diagonal

import sartor as st
from sartor.engines.stack import Stack
from sartor.models import layers

LAM1, LAM2, EPSILON = 0.3, 0.2, 1e-3


def start(loss: str, features: int = 5, m: int = 4, **settings: Any) -> st.Result:
    method = st.MOCHA(**{"lam1": LAM1, "lam2": LAM2, "epsilon": EPSILON, "epochs": 1} | settings)
    clients = two_sided(m + 2, features=features)
    parts = [
        {"train": tuple(t[clients.rows(i, "train")].numpy() for t in (clients.x, clients.y))} for i in range(2, m + 2)
    ]
    return st.fit(
        method,
        layers(features, 1),
        st.Clients.from_parts(parts, 2),
        1,
        loss=loss,
        execution=st.Execution(dtype=torch.float64),
        evaluation=st.Evaluation(diagnostics=False),
    )


def models(result: st.Result) -> np.ndarray:
    return result.run.query_clients("personal")["personal"].numpy()


def gap(result: st.Result) -> float:
    return float(result.run.query_clients("diagnose")["duality_gap"].sum())


def data(result: st.Result) -> list[tuple[np.ndarray, np.ndarray]]:
    """Every client's (X with a column of ones, y)."""
    out = []
    for i in range(len(result.data)):
        x, y = (t[result.data.rows(i, "train")].numpy() for t in (result.data.x, result.data.y))
        out.append((np.hstack([x, np.ones((len(y), 1))]), y))
    return out


def losses(result: st.Result, W: np.ndarray, loss: str) -> tuple[float, np.ndarray]:
    """Σ_t Σ_i ℓ and its slope in W [m, d]."""
    total, slope = 0.0, np.zeros_like(W)
    for t, (X, y) in enumerate(data(result)):
        z = X @ W[t]
        if loss == "squared":
            total += 0.5 * float(((z - y) ** 2).sum())
            slope[t] = X.T @ (z - y)
        else:
            total += float(np.maximum(0, 1 - y * z).sum())
            slope[t] = -X.T @ (y * (y * z < 1))
    return total, slope


def steps(result: st.Result, rounds: int) -> None:
    for _ in range(rounds):
        result.run.step()


def test_squared_loss_with_fixed_relations_is_the_primal_solution_and_the_gap_vanishes() -> None:
    """Ω = I/m: each client's ridge regression, (XᵀX + (λ_1 m + λ_2) I) w = Xᵀy."""
    result = start("squared", omega_every=0)
    before = gap(result)
    steps(result, 150)
    m, W = len(result.data), models(result)
    for t, (X, y) in enumerate(data(result)):
        ridge = np.linalg.solve(X.T @ X + (LAM1 * m + LAM2) * np.eye(X.shape[1]), X.T @ y)
        np.testing.assert_allclose(W[t], ridge, atol=1e-8)
    assert before > 1e-2 and abs(gap(result)) < 1e-9


@pytest.mark.parametrize(("loss", "cohort"), diagonal(["squared", "hinge"], [2, 4]))
def test_gap_vanishes_for_any_relations_and_the_models_solve_the_primal(loss: str, cohort: int) -> None:
    result = start(loss, omega_every=0)
    result.run.cohort = cohort
    B = np.random.default_rng(0).normal(size=(4, 4))
    Omega = B @ B.T + 2 * np.eye(4)
    Omega /= np.trace(Omega)
    result.run.server["Omega"] = torch.as_tensor(Omega)
    steps(result, (800 if loss == "squared" else 3200) // cohort)
    R = LAM1 * np.linalg.inv(Omega) + LAM2 * np.eye(4)

    def primal(flat: np.ndarray) -> tuple[float, np.ndarray]:
        W = flat.reshape(4, -1)
        value, slope = losses(result, W, loss)
        return value + 0.5 * float(np.trace(W.T @ R @ W)), (slope + R @ W).ravel()

    W = models(result)
    if loss == "squared":
        assert abs(gap(result)) < 1e-9
        found = scipy.optimize.minimize(primal, np.zeros(W.size), jac=True, method="BFGS", options={"gtol": 1e-10})
        np.testing.assert_allclose(W.ravel(), found.x, atol=1e-6)
        return
    assert abs(gap(result)) < 1e-4  # so the primal is within 1e-4 of its minimum; and no quadratic program does better:
    assert primal(W.ravel())[0] <= hinge_minimum(result, R) + 1e-4


def hinge_minimum(result: st.Result, R: np.ndarray) -> float:
    """min Σ s + ½ tr(WᵀRW) with s >= 0, s >= 1 − y z, by SciPy's solver of constrained problems."""
    rows = data(result)
    d, n = rows[0][0].shape[1], sum(len(y) for _, y in rows)
    A = np.zeros((n, 4 * d + n))
    at = 0
    for t, (X, y) in enumerate(rows):
        A[at : at + len(y), t * d : (t + 1) * d] = y[:, None] * X
        at += len(y)
    A[:, 4 * d :] = np.eye(n)
    full = np.zeros((4 * d + n, 4 * d + n))
    full[: 4 * d, : 4 * d] = np.kron(R, np.eye(d))
    cost = np.concatenate([np.zeros(4 * d), np.ones(n)])
    found = scipy.optimize.minimize(
        lambda v: cost @ v + 0.5 * v @ full @ v,
        np.concatenate([np.zeros(4 * d), np.ones(n)]),
        jac=lambda v: cost + full @ v,
        bounds=[(None, None)] * (4 * d) + [(0, None)] * n,
        constraints={"type": "ineq", "fun": lambda v: A @ v - 1, "jac": lambda v: A},
        method="SLSQP",
        options={"ftol": 1e-10, "maxiter": 500},
    )
    assert found.success
    return float(found.fun)


def test_learnt_relations_and_models_minimise_the_joint_objective() -> None:
    """min over Ω leaves λ_1/2 (tr (WWᵀ + εI)^{1/2})² + λ_2/2 ‖W‖² + losses: one smooth problem in W, by SciPy."""
    result = start("squared")
    steps(result, 150)

    def joint(flat: np.ndarray) -> tuple[float, np.ndarray]:
        W = flat.reshape(4, -1)
        value, slope = losses(result, W, "squared")
        values, U = np.linalg.eigh(W @ W.T + EPSILON * np.eye(4))
        root = np.sqrt(values).sum()
        value += 0.5 * LAM1 * root**2 + 0.5 * LAM2 * float((W**2).sum())
        return value, (slope + LAM1 * root * (U / np.sqrt(values)) @ U.T @ W + LAM2 * W).ravel()

    W = models(result)
    found = scipy.optimize.minimize(joint, np.zeros(W.size), jac=True, method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(W.ravel(), found.x, atol=1e-5)
    Omega = result.run.server["Omega"].numpy()
    np.testing.assert_allclose(np.trace(Omega), 1, atol=1e-12)
    assert np.abs(Omega - np.eye(4) / 4).max() > 1e-2  # relations were learnt


def test_one_pass_equals_an_executed_oracle() -> None:
    """One client, one epoch of hinge steps in the order that the stack gives."""
    result = start("hinge", m=1, epochs=1, omega_every=0)
    X, y = data(result)[0]
    M, w, alpha = 1 / (LAM1 + LAM2), np.zeros(X.shape[1]), np.zeros(len(y))
    stack = Stack(result.task, result.data, np.array([0]), torch.ones(1), 0, 0)
    dv = np.zeros_like(w)
    for a, i in stack.order(1):
        assert a == 1
        j = int(i[0])
        z = X[j] @ (M * dv)
        new = y[j] * np.clip(y[j] * alpha[j] + (1 - y[j] * z) / (M * X[j] @ X[j]), 0, 1)
        dv += (new - alpha[j]) * X[j]
        alpha[j] = new
    np.testing.assert_allclose(result.run.engine.save()["state/alpha"][0].numpy(), alpha, atol=1e-12)
    np.testing.assert_allclose(models(result)[0], M * dv, atol=1e-12)
    assert sorted(int(i[0]) for _, i in stack.order(1)) == list(range(len(y)))
