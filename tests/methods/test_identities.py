"""Identities between methods, and limits: what must be equal, is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from federations import quadratics
from method_runs import SGD, personal, play, states

import sartor as st
from sartor.core import Method


def test_flame_then_equals_pfedme_with_eta_one_over_lam() -> None:
    lam = 1.4
    flame = play(st.FLAME(lam=lam, rho=lam / 7, anchor="global", solver=SGD))
    pfedme = play(st.PFedMe(lam=lam, eta=1 / lam, R=1, solver=SGD))
    torch.testing.assert_close(flame.run.server["w"], pfedme.run.server["w"])
    torch.testing.assert_close(states(flame)["theta"], states(pfedme)["theta"])
    paper = play(st.FLAME(lam=lam, rho=lam / 7, anchor="local", solver=SGD))
    assert not torch.allclose(paper.run.server["w"], pfedme.run.server["w"])  # as written, the two differ


@pytest.mark.parametrize("R", [1, 3])
def test_lp_proj_2_with_identity_projection_equals_pfedme(R: int) -> None:
    d = 5 * 6 + 6 + 6 * 3 + 3
    solver = st.SGD(lr=0.05, steps=4, reuse=True, batch=7)
    ours = play(st.LpProj(p=2, lam=2.0, eta=0.2, R=R, d_sub=d, projection="identity", solver=solver), cohort=4)
    theirs = play(st.PFedMe(lam=2.0, eta=0.2, R=R, solver=solver), cohort=4)
    torch.testing.assert_close(states(ours)["x"], states(theirs)["theta"])
    torch.testing.assert_close(ours.run.server["w"], theirs.run.server["w"])


def test_flame_lp_proj_with_identity_projection_equals_flame() -> None:
    d = 5 * 6 + 6 + 6 * 3 + 3
    ours = play(st.FlameLpProj(lam=1.2, rho=0.3, d_sub=d, projection="identity", solver=SGD), cohort=4)
    theirs = play(st.FLAME(lam=1.2, rho=0.3, anchor="local", solver=SGD), cohort=4)
    torch.testing.assert_close(states(ours)["theta"], states(theirs)["theta"])
    torch.testing.assert_close(ours.run.server["w"], theirs.run.server["w"])


def test_flame_with_small_lam_tends_to_local_training() -> None:
    flame, local = play(st.FLAME(lam=1e-9, rho=0.1, solver=SGD)), play(st.LocalOnly(solver=SGD))
    torch.testing.assert_close(states(flame)["theta"], states(local)["theta"], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", ["ditto", "pfedme", "lp-proj"])
def test_small_lam_is_local_training_for_the_others_too(name: str) -> None:
    lam = 1e-10
    method: Method = {
        "ditto": st.Ditto(lam=lam, shared_batches=True, solver=SGD),
        "pfedme": st.PFedMe(lam=lam, eta=0.1, R=1, solver=SGD),
        "lp-proj": st.LpProj(p=1, lam=lam, eta=0.1, d_sub=4, solver=SGD),
    }[name]
    field = {"ditto": "v", "pfedme": "theta", "lp-proj": "x"}[name]
    torch.testing.assert_close(
        states(play(method))[field], states(play(st.LocalOnly(solver=SGD)))["theta"], atol=1e-6, rtol=1e-6
    )


def test_fedprox_with_mu_zero_is_fedavg_and_ditto_s_global_model_is_fedavg() -> None:
    fedavg = play(st.FedAvg(weighting="uniform", solver=SGD)).run.server["w"]
    torch.testing.assert_close(play(st.FedProx(mu=0.0, weighting="uniform", solver=SGD)).run.server["w"], fedavg)
    torch.testing.assert_close(play(st.Ditto(lam=1.0, solver=SGD)).run.server["w"], fedavg)


def fedadmm(q: Any, rho: float, start: np.ndarray, rounds: int) -> np.ndarray:
    """FedADMM (global): min Σ α_i f_i(w_i) + <π_i, w_i − w> + ρ/2 ‖w_i − w‖², exact, in NumPy."""
    w, pi = start, np.zeros((q.m, q.d))
    for _ in range(rounds):
        w_i = np.linalg.solve(q.A / q.m + rho * np.eye(q.d), (q.b / q.m + rho * w - pi)[..., None])[..., 0]
        pi = pi + rho * (w_i - w)
        w = (w_i + pi / rho).mean(0)
    return w


def test_flame_with_large_lam_tends_to_fedadmm() -> None:
    """The distance of FLAME's w to FedADMM's falls like 1/λ."""
    q = quadratics()
    errors = []
    for lam in (10.0, 100.0):
        method = st.FLAME(lam=lam, rho=lam / q.m, anchor="global", solver=st.Exact())
        result = q.fit(method, rounds=int(40 * lam))
        target = fedadmm(q, 0.3, result.run.problem.start.numpy(), 500)
        errors.append(np.abs(result.run.server["w"].numpy() - target).max())
    np.testing.assert_allclose(target, np.linalg.solve(q.A.mean(0), q.b.mean(0)), atol=1e-8)
    assert errors[0] > 1e-3
    assert 7 < errors[0] / errors[1] < 13


def test_ewc_and_skl_with_small_lam_are_fedavg_with_fine_tuning() -> None:
    expected = personal(play(st.FedAvg(solver=SGD, finetune=SGD)))
    for method in (st.EWC(lam=1e-12, solver=SGD, finetune=SGD), st.SKL(lam=1e-12, solver=SGD, finetune=SGD)):
        np.testing.assert_allclose(personal(play(method)), expected, atol=1e-8)


def test_term_without_tilt_and_qffl_with_q_zero_are_fedavg() -> None:
    fedavg = play(st.FedAvg(solver=SGD)).run.server["w"]
    torch.testing.assert_close(play(st.TERM(t=0.0, solver=SGD)).run.server["w"], fedavg)
    torch.testing.assert_close(play(st.TERM(t=1e-9, solver=SGD)).run.server["w"], fedavg, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(play(st.QFFL(q=0.0, solver=SGD)).run.server["w"], fedavg)
