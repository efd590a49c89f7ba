"""Identities between methods, and limits: what must be equal, is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from federations import quadratics, ragged
from torch import Tensor

import sartor as st
from sartor.core import Method
from sartor.methods.parts.flame_facts import flame_theorem1
from sartor.models import layers

SGD = st.SGD(lr=0.1, epochs=2, batch=7, momentum=0.5, weight_decay=0.01)


def play(method: Method, rounds: int = 4, **options: Any) -> st.Result:
    clients = ragged()
    return st.fit(
        method, layers(5, 6, 3), clients, rounds, dtype=torch.float64, evaluate_every=rounds, diagnose=False, **options
    )


def states(result: st.Result) -> dict[str, Tensor]:
    return {k.removeprefix("state/"): v for k, v in result.run.engine.save().items()}


@pytest.mark.parametrize("cohort", [7, 3])
@pytest.mark.parametrize("weighting", ["uniform", "size"])
def test_flame_dual_variable_is_lam_alpha_times_theta_minus_w(cohort: int, weighting: str) -> None:
    """Lemma 3, with π_i followed by (13) alone, from the w_i and w that were seen."""
    lam, rho = 1.3, 0.4
    result = play(st.FLAME(lam=lam, rho=rho, weighting=weighting, solver=SGD), rounds=1, cohort=cohort)
    run, m = result.run, 7
    start = run.problem.start.expand(m, -1)
    pi, w_before, seen = torch.zeros_like(start), run.problem.start, states(result)
    pi = torch.where((seen["visits"] > 0)[:, None], pi + rho * (seen["w"] - w_before), pi)
    alpha = torch.full((m, 1), 1 / m, dtype=torch.float64) if weighting == "uniform" else run.problem.share[:, None]
    for _ in range(5):
        torch.testing.assert_close(pi, lam * alpha * (seen["theta"] - seen["w"]), atol=1e-12, rtol=1e-9)
        w_before, visits = run.server["w"], seen["visits"].clone()
        run.step()
        seen = states(result)
        pi = torch.where((seen["visits"] > visits)[:, None], pi + rho * (seen["w"] - w_before), pi)
    assert float(pi.abs().max()) > 1e-4
    # and the message is u_i = w_i + π_i/ρ, kept for those that sat out
    expected = torch.where((seen["visits"] > 0)[:, None], seen["w"] + pi / rho, start)
    torch.testing.assert_close(run.server["u"].whole(), expected)


def test_flame_with_lam_alpha_equal_rho_makes_w_the_mean_of_theta() -> None:
    lam = 1.4
    result = play(st.FLAME(lam=lam, rho=lam / 7, solver=SGD))
    torch.testing.assert_close(result.run.server["w"], states(result)["theta"].mean(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_flame_s_running_sum_is_the_mean_over_all_last_messages(dtype: torch.dtype) -> None:
    result = st.fit(
        st.FLAME(solver=SGD), layers(5, 6, 3), ragged(), 200, cohort=2, dtype=dtype, evaluate_every=200, diagnose=False
    )
    server = result.run.server
    tolerance = 1e-6 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(server["w"], server["u"].whole().mean(0), atol=tolerance, rtol=tolerance)


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
    theirs = play(st.FLAME(lam=1.2, rho=0.3, solver=SGD), cohort=4)
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


@pytest.mark.parametrize("cohort", [6, 2])
def test_flame_lagrangian_never_increases_for_large_rho(cohort: int) -> None:
    """With exact steps and ρ >= 2.5616 λα; L is recomputed here from eq. (10)."""
    for seed in range(3):
        q, lam = quadratics(seed=seed), 1.0
        rho = 2.57 * lam / q.m
        values = lagrangians(q, lam, rho, 60, cohort)
        assert np.diff(values).max() <= 1e-12
        assert values[0] - values[-1] > 1e-3


def test_flame_lagrangian_can_increase_for_small_rho() -> None:
    q, lam = quadratics(), 1.0
    assert np.diff(lagrangians(q, lam, 0.2 * lam / q.m, 60, 6)).max() > 1e-6


def lagrangians(q: Any, lam: float, rho: float, rounds: int, cohort: int) -> np.ndarray:
    result = q.fit(st.FLAME(lam=lam, rho=rho, solver=st.Exact()), rounds=1, cohort=cohort, diagnose=True)
    out = []
    for _ in range(rounds):
        s, w, a = states(result), result.run.server["w"].numpy(), 1 / q.m
        theta, w_i = s["theta"].numpy(), s["w"].numpy()
        f = np.array([0.5 * t @ A @ t - b @ t for t, A, b in zip(theta, q.A, q.b, strict=True)])
        constant = [
            0.5 * float((y**2).mean()) for y in (q.clients.y[q.clients.rows(i, "train")].numpy() for i in range(q.m))
        ]
        pi, away = lam * a * (theta - w_i), w_i - w
        L = (
            a * (f + constant + lam / 2 * ((theta - w_i) ** 2).sum(1)) + (pi * away).sum(1) + rho / 2 * (away**2).sum(1)
        ).sum()
        reported = result.run.evaluate(diagnose=True)["diagnostics"]["lagrangian_mean"]
        np.testing.assert_allclose(reported, L, atol=1e-10)
        out.append(L)
        result.run.step()
    return np.array(out)


def test_theorem_1_conditions_are_reported_as_printed() -> None:
    """At FLAME's Table III settings (λα = ρ = 0.1) C1 fails, C2 is an equality, C3 holds for L < 18.8."""
    assert flame_theorem1(0.1, 0.1, torch.tensor([1.87, 1.89])).tolist() == [[False, True, True], [False, True, False]]


def test_theorem_1_conditions_meet_only_for_a_nearly_flat_loss() -> None:
    """Near the best point (ρ = 0.166, λα = 0.0506) up to Lα = 0.0146, nowhere beyond; a run reports who meets them."""
    assert flame_theorem1(0.05, 0.166, torch.tensor([0.0100, 0.0110])).all(1).tolist() == [True, False]
    rho, x = np.meshgrid(np.linspace(0.01, 1, 200), np.linspace(0.001, 1, 1000))
    for r, v in zip(rho.ravel(), x.ravel(), strict=True):
        C1, C2 = v**2 * (1 + r) / r**2 < (v + r) / 2, r >= v
        assert not (C1 and C2 and (1 - r**2) * v**2 / r**2 > (0.0150 + r) / 2)
    facts = quadratics().fit(st.FLAME(solver=st.Exact()), rounds=1, diagnose=True).history[-1]["diagnostics"]
    assert facts["theorem1_holds_max"] == 0


def test_heurfedamp_weights_follow_equations_10_and_11() -> None:
    rng = np.random.default_rng(0)
    W = rng.normal(size=(5, 8))
    ids, G = torch.tensor([1, 4]), torch.as_tensor(W @ W.T)
    xi = st.HeurFedAMP(sigma=3.0, self_weight=0.3).weights(G[ids], G.diagonal(), ids).numpy()
    for row, i in zip(xi, (1, 4), strict=True):
        cosine = [W[i] @ W[j] / np.linalg.norm(W[i]) / np.linalg.norm(W[j]) for j in range(5)]
        s = np.exp(3.0 * np.array(cosine))
        s[i] = 0
        expected = 0.7 * s / s.sum()
        expected[i] = 0.3
        np.testing.assert_allclose(row, expected, atol=1e-12)


@pytest.mark.parametrize(
    "method",
    [
        st.FedAMP(sigma=1e-4, self_weight=0.2),
        st.FedAMP(attention="mcp", sigma=1e-4, alpha=1e-5),
        st.FedAMP(attention="scad", sigma=1e3),
        st.FedAMP(attention="sqrt", self_weight=0.0),
    ],
)
def test_fedamp_weights_are_a_simplex_even_far_apart(method: st.FedAMP) -> None:
    W = torch.as_tensor(np.random.default_rng(1).normal(size=(6, 9)) * 100)
    G = W @ W.T
    xi = method.weights(G, G.diagonal(), torch.arange(6))
    torch.testing.assert_close(xi.sum(1), torch.ones(6, dtype=torch.float64))
    assert float(xi.min()) >= 0 and bool(torch.isfinite(xi).all())


def test_fedamp_whose_weights_leave_the_simplex_is_refused() -> None:
    with pytest.raises(st.SartorError, match=r"leave the simplex.*take alpha <="):
        st.FedAMP(sigma=1.0, alpha=1.0).weights(torch.zeros(4, 4), torch.zeros(4), torch.arange(4))
