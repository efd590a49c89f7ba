"""Ditto: equation (23), and Ditto around other methods."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import quadratics
from method_runs import EXACT, FULL, SGD, optimum, personal, play, shared, states

import sartor as st


def test_ditto_around_a_method_is_that_method_and_a_proximal_model_beside_it() -> None:
    inner = st.FedProx(mu=0.3, solver=SGD)
    result = play(st.Ditto(lam=0.7, global_method=inner, shared_batches=True, solver=SGD))
    alone = play(inner)
    torch.testing.assert_close(result.run.server["w"], alone.run.server["w"])
    default = play(st.Ditto(lam=0.7, solver=SGD))
    named = play(st.Ditto(lam=0.7, global_method=st.FedAvg(weighting="uniform", solver=SGD), solver=SGD))
    torch.testing.assert_close(states(default)["v"], states(named)["v"])
    scaffold = st.SCAFFOLD(solver=SGD)
    both = play(st.Ditto(global_method=scaffold, solver=SGD), cohort=3)
    torch.testing.assert_close(both.run.server["c"], play(scaffold, cohort=3).run.server["c"])


def test_ditto_around_scaffold_reaches_the_prox_of_the_true_optimum() -> None:
    """Where FedAvg's w is biased, Ditto's anchor is too; around SCAFFOLD it is the optimum of the mean loss."""
    q, lam = quadratics(), 0.6
    scaffold = st.SCAFFOLD(solver=st.SGD(lr=0.1, steps=5, batch=FULL))
    result = q.fit(st.Ditto(lam=lam, global_method=scaffold, solver=EXACT), rounds=300)
    v = np.linalg.solve(q.A + lam * np.eye(q.d), (q.b + lam * optimum(q))[..., None])[..., 0]
    np.testing.assert_allclose(personal(result), v, atol=1e-7)


@pytest.mark.parametrize("joint", [True, False])
def test_ditto_reaches_equation_23(joint: bool) -> None:
    """With exact solves G's solution is the mean of the local optima, and v_k = (A_k + λI)^{-1}(b_k + λ w*)."""
    q, lam = quadratics(), 0.6
    result = q.fit(st.Ditto(lam=lam, joint=joint, solver=EXACT), rounds=3)
    w = np.linalg.solve(q.A, q.b[..., None])[..., 0].mean(0)
    v = np.linalg.solve(q.A + lam * np.eye(q.d), (q.b + lam * w)[..., None])[..., 0]
    np.testing.assert_allclose(shared(result), w, atol=1e-8)
    personal = np.stack([p.detach().numpy()[0] for p in (next(result.personal(i).parameters()) for i in range(q.m))])
    np.testing.assert_allclose(personal, v, atol=1e-8)
