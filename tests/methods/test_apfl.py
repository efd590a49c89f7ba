"""APFL: a mixture of two models, and its weight."""

from __future__ import annotations

import numpy as np
import torch
from federations import quadratics
from method_runs import FULL, SGD, personal, play, states

import sartor as st


def test_apfl_s_alpha_reaches_the_best_mixture_of_two_points() -> None:
    """With both models held still, α* = −<v − w, ∇f(w)> / <v − w, A(v − w)>, kept in [0, 1]."""
    q = quadratics()
    still = st.SGD(lr=1e-15, steps=1, batch=FULL)
    result = q.fit(st.APFL(alpha=0.5, alpha_lr=0.1, solver=still), rounds=1)
    rng, run = np.random.default_rng(5), result.run
    v = torch.as_tensor(rng.normal(size=(q.m, q.d)))
    run.engine.restore(run.engine.save() | {"state/v": v})
    w = run.server["w"].numpy()
    for _ in range(300):
        run.step()
    apart = v.numpy() - w
    slope = np.einsum("ij,ij->i", apart, np.einsum("ijk,k->ij", q.A, w) - q.b)
    best = (-slope / np.einsum("ij,ijk,ik->i", apart, q.A, apart)).clip(0, 1)
    np.testing.assert_allclose(states(result)["alpha"][:, 0], best, atol=1e-8)
    assert ((best > 0) & (best < 1)).sum() >= 2


def test_apfl_equals_an_executed_oracle() -> None:
    q, lr, alpha_lr, alpha0 = quadratics(), 0.1, 0.3, 0.4
    method = st.APFL(alpha=alpha0, alpha_lr=alpha_lr, solver=st.SGD(lr=lr, steps=3, batch=FULL))
    result = q.fit(method, rounds=5)
    w = result.run.problem.start.numpy()
    v, alpha = np.tile(w, (q.m, 1)), np.full((q.m, 1), alpha0)

    def grad(x: np.ndarray) -> np.ndarray:
        return np.einsum("ijk,ik->ij", q.A, x) - q.b

    for _ in range(5):
        w_i = np.tile(w, (q.m, 1))
        alpha = (alpha - alpha_lr * ((v - w_i) * grad(alpha * v + (1 - alpha) * w_i)).sum(1, keepdims=True)).clip(0, 1)
        for _ in range(3):
            w_i, v = w_i - lr * grad(w_i), v - lr * alpha * grad(alpha * v + (1 - alpha) * w_i)
        w = w_i.mean(0)
    np.testing.assert_allclose(result.run.server["w"], w, atol=1e-10)
    np.testing.assert_allclose(states(result)["alpha"], alpha, atol=1e-10)
    np.testing.assert_allclose(personal(result), alpha * v + (1 - alpha) * w, atol=1e-10)


def test_apfl_with_alpha_one_is_local_training_and_with_zero_fedavg() -> None:
    one = play(st.APFL(alpha=1.0, alpha_lr=0.0, solver=SGD))
    torch.testing.assert_close(states(one)["v"], states(play(st.LocalOnly(solver=SGD)))["theta"])
    none = play(st.APFL(alpha=0.0, alpha_lr=0.0, solver=SGD))
    fedavg = play(st.FedAvg(weighting="uniform", solver=SGD)).run.server["w"]
    torch.testing.assert_close(none.run.server["w"], fedavg)
    torch.testing.assert_close(torch.as_tensor(personal(none)), fedavg.expand(7, -1))
