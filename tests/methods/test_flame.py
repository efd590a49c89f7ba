"""FLAME: equations (135) to (137), Lemma 3, Theorem 1, and the Lagrangian."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from federations import Quadratics, quadratics, ragged
from method_runs import EXACT, SGD, play, shared, state, states
from subsets import first

import sartor as st
from sartor.methods.parts.flame_facts import flame_theorem1
from sartor.models import layers

SEEDS = [0, 1, 2]


@pytest.mark.parametrize("seed", first(SEEDS, 0))
@pytest.mark.parametrize("anchor", ["local", "global"])
@pytest.mark.parametrize(("lam", "rho"), [(1.0, 0.2), (0.3, 0.6)])
def test_flame_reaches_equation_135(seed: int, anchor: str, lam: float, rho: float) -> None:
    q = quadratics(seed=seed)
    result = q.fit(st.FLAME(lam=lam, rho=rho, anchor=anchor, solver=EXACT), rounds=600)
    w, theta = q.moreau(lam)
    np.testing.assert_allclose(shared(result), w, atol=1e-8)
    np.testing.assert_allclose(state(result, "theta"), theta, atol=1e-8)
    np.testing.assert_allclose(state(result, "w"), np.tile(w, (q.m, 1)), atol=1e-8)  # (16): w_i* = w*


@pytest.mark.parametrize("cohort", [1, 2, 5])
def test_flame_reaches_it_with_partial_participation(cohort: int) -> None:
    q = quadratics()
    result = q.fit(st.FLAME(lam=1.0, rho=0.3, solver=EXACT), rounds=1500 // cohort, cohort=cohort)
    w, theta = q.moreau(1.0)
    np.testing.assert_allclose(shared(result), w, atol=1e-8)
    np.testing.assert_allclose(state(result, "theta"), theta, atol=1e-8)


def test_flame_weighs_clients_by_size() -> None:
    q = quadratics()
    result = q.fit(st.FLAME(lam=1.0, rho=0.3, weighting="size", solver=EXACT), rounds=600)
    w, theta = q.moreau(1.0, q.share)
    np.testing.assert_allclose(shared(result), w, atol=1e-8)
    np.testing.assert_allclose(state(result, "theta"), theta, atol=1e-8)
    assert np.abs(w - q.moreau(1.0)[0]).max() > 1e-3  # the two weightings do differ here


def test_flame_isotropic_data_give_equations_136_and_137() -> None:
    """X_iᵀX_i = N b_i I: w* is the weighted mean of the local optima, and θ_i* lies between the two."""
    rng = np.random.default_rng(3)
    m, d, n, lam = 5, 3, 9, 0.7
    scale = rng.uniform(0.5, 2, size=m)
    parts, optimum = [], rng.normal(size=(m, d))
    for i in range(m):
        X = np.linalg.qr(rng.normal(size=(n, d)))[0] * np.sqrt(n * scale[i])
        parts.append({"train": (X, X @ optimum[i])})
    q = Quadratics(
        st.Clients.from_parts(parts), scale[:, None, None] * np.eye(d), scale[:, None] * optimum, np.full(m, 1 / m)
    )
    result = q.fit(st.FLAME(lam=lam, rho=0.3, solver=EXACT), rounds=500)
    pull = (scale / (scale + lam))[:, None]
    w = (pull * optimum).sum(0) / pull.sum()
    np.testing.assert_allclose(shared(result), w, atol=1e-8)
    np.testing.assert_allclose(state(result, "theta"), pull * optimum + (1 - pull) * w, atol=1e-8)


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
        st.FLAME(solver=SGD),
        layers(5, 6, 3),
        ragged(),
        200,
        federation=st.Federation(cohort=2),
        execution=st.Execution(dtype=dtype),
        evaluation=st.Evaluation(evaluate_every=200, diagnostics=False),
    )
    server = result.run.server
    tolerance = 1e-6 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(server["w"], server["u"].whole().mean(0), atol=tolerance, rtol=tolerance)


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
    result = q.fit(st.FLAME(lam=lam, rho=rho, solver=st.Exact()), rounds=1, cohort=cohort, diagnostics=True)
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
    facts = quadratics().fit(st.FLAME(solver=st.Exact()), rounds=1, diagnostics=True).history[-1]["diagnostics"]
    assert facts["theorem1_holds_max"] == 0
