"""What methods report of themselves, and warn of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import quadratics, ragged
from method_runs import quadratic_stack, random

import sartor as st
from sartor.couplings import Quadratic
from sartor.methods.parts.diagnostics import curvature, inner_loop_warnings, prox_facts
from sartor.models import layers

DOUBLE = torch.float64


c, d, k = 3, 7, 4


def test_flame_reports_whether_equation_17_was_met() -> None:
    q = quadratics()
    good = q.fit(
        st.FLAME(speed=0.5, solver=st.Inexact(lr=0.1, eps=1e-2, shrink=0.8, max_steps=500)), rounds=10, diagnostics=True
    ).history[-1]
    assert good["diagnostics"]["inexact_missed_mean"] == 0
    assert good["diagnostics"]["inexact_gap_max"] <= 1e-2 * 0.8**9 * (1 + 1e-6)
    assert good["warnings"] == []
    bad = q.fit(
        st.FLAME(solver=st.Inexact(lr=0.01, eps=1e-6, shrink=0.5, max_steps=2)), rounds=10, diagnostics=True
    ).history[-1]
    assert any("did not reach" in w for w in bad["warnings"])


def test_curvature_is_the_largest_eigenvalue() -> None:
    q = quadratics()
    s = quadratic_stack(q)
    theta = random(q.m, q.d)
    largest = np.array([np.linalg.eigvalsh(q.A[i])[-1] for i in s.ids])
    found = curvature(s, theta, s.full_grad(theta), steps=200).numpy()
    np.testing.assert_allclose(found, largest, rtol=1e-4)


def test_the_inner_loop_warning_tells_a_diverging_step_from_a_converging_one() -> None:
    """On a quadratic the bound is sharp: below it the loop converges, above it diverges, and we say so."""
    q = quadratics()
    s = quadratic_stack(q)
    L, lam = max(np.linalg.eigvalsh(A)[-1] for A in q.A), 1.0
    coupling = Quadratic(lam, random(q.m, q.d))
    for factor, converges in ((0.95, True), (1.05, False)):
        solver = st.SGD(lr=factor * 2 / (lam + L), steps=200, batch=1000)
        theta = solver.minimise(s, torch.zeros(q.m, q.d, dtype=DOUBLE), coupling)
        assert (float(theta.abs().max()) < 100) == converges
        facts = {f"{k}_max": float(v.max()) for k, v in prox_facts(s, theta, coupling, solver).items()}
        assert facts["smoothness_max"] == pytest.approx(L, rel=0.04)
        warned = inner_loop_warnings("pFedMe", solver, lam, facts)
        assert (warned == []) == converges
    assert "take lr <" in warned[0]


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (st.FLAME(lam=10.0, rho=0.1), "at λα/ρ = 14 the global model overshoots"),
        (st.FLAME(lam=0.1, speed=0.03), "at λα/ρ = 0.03 the global model moves 6% of the way"),
        (st.PFedMe(lam=15.0, eta=0.2, R=1, solver=st.SGD(lr=0.01)), "η·λ = 3 > 2"),
        (st.LpProj(lam=5.0, eta=1.0, d_sub=4, solver=st.SGD(lr=0.01)), "η·λ = 5 > 2"),
        (st.FedAMP(sigma=1e-9, alpha=1e-10, solver=st.SGD(lr=0.1)), "one-hot: this equals local training"),
        (st.FedAMP(self_weight=1.0), "one-hot: this equals local training"),
        (st.Ditto(lam=100.0, solver=st.SGD(lr=0.0199)), "lr·(λ + L)"),
    ],
)
def test_warnings_say_what_is_wrong(method: object, says: str) -> None:
    warnings = st.fit(
        method,
        layers(5, 3),
        ragged(),
        2,
        evaluation=st.Evaluation(evaluate_every=2),
        execution=st.Execution(dtype=DOUBLE),
    ).summary["warnings"]  # type: ignore[arg-type]
    assert any(says in w for w in warnings), warnings


def test_fedamp_with_one_hot_weights_does_equal_local_training() -> None:
    solver = st.SGD(lr=0.1, batch=7)
    amp = st.fit(
        st.FedAMP(self_weight=1.0, beta=1e12, solver=solver),
        layers(5, 3),
        ragged(),
        3,
        evaluation=st.Evaluation(evaluate_every=3),
        execution=st.Execution(dtype=DOUBLE),
    )
    local = st.fit(
        st.LocalOnly(solver=solver),
        layers(5, 3),
        ragged(),
        3,
        evaluation=st.Evaluation(evaluate_every=3),
        execution=st.Execution(dtype=DOUBLE),
    )
    alone = local.run.engine.save()["state/theta"]
    torch.testing.assert_close(amp.run.server["w"].whole(), alone, atol=1e-9, rtol=1e-9)


def test_sensible_settings_warn_of_nothing() -> None:
    for method in (st.FLAME(lam=0.5, rho=0.5, solver=st.SGD(lr=0.05)), st.Ditto(lam=0.5, solver=st.SGD(lr=0.05))):
        assert (
            st.fit(
                method,
                layers(5, 3),
                ragged(),
                2,
                evaluation=st.Evaluation(evaluate_every=2),
                execution=st.Execution(dtype=DOUBLE),
            ).summary["warnings"]
            == []
        )


def test_moreau_gradient_vanishes_at_the_solution_and_not_before() -> None:
    q = quadratics()
    far, near = (
        q.fit(st.PFedMe(lam=0.8, eta=1.0, R=1, solver=st.Exact()), rounds=r, diagnostics=True).history[-1][
            "diagnostics"
        ]
        for r in (1, 400)
    )
    assert far["envelope_gradient_norm"] > 1e-2 and near["envelope_gradient_norm"] < 1e-8
