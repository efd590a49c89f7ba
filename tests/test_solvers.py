"""Couplings against autograd, solvers against PyTorch's own, diagnostics and warnings."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import quadratics, ragged
from torch import Tensor

import sartor as st
from sartor.core import ClientStack, Coupling
from sartor.couplings import Free, Projected, Projection, Quadratic
from sartor.engines.stack import Stack
from sartor.methods.parts.diagnostics import curvature, inner_loop_warnings, prox_facts
from sartor.models import layers
from sartor.solvers import Solver
from sartor.tasks.task import ModelTask

DOUBLE = torch.float64
c, d, k = 3, 7, 4


def random(*shape: int) -> Tensor:
    return torch.as_tensor(np.random.default_rng(sum(shape)).normal(size=shape))


def couplings() -> dict[str, Coupling]:
    P = Projection(k, d, seed=1)
    each = torch.tensor([[0.5], [1.0], [2.0]], dtype=DOUBLE)
    out: dict[str, Coupling] = {
        "free": Free(),
        "quadratic": Quadratic(0.7, random(c, d)),
        "quadratic-each": Quadratic(each, random(c, d)),
    }
    for p in (1.0, 1.5, 2.0, 3.0):
        out[f"projected-{p:g}"] = Projected(0.7, random(c, k), P, p)
    return out | {
        "projected-each": Projected(each, random(c, k), P, 1.5),
        "orthogonal": Projected(0.7, random(c, k), Projection(k, d, 1, "orthogonal"), 2.0),
    }


@pytest.mark.parametrize("name", couplings())
def test_a_coupling_s_gradient_is_that_of_its_value(name: str) -> None:
    coupling = couplings()[name]
    theta = random(c, d).requires_grad_()
    expected = (
        torch.autograd.grad(coupling.value(theta).sum(), theta, allow_unused=True)[0]
        if name != "free"
        else torch.zeros(c, d)
    )
    start = random(c, d) + 1
    for a in (c, 2):  # and of the first a clients only
        found = start[:a].clone()
        coupling.add_grad_(found, theta.detach()[:a])
        torch.testing.assert_close(found - start[:a], expected[:a].to(DOUBLE))


@pytest.mark.parametrize("name", ["quadratic", "quadratic-each", "projected-2", "orthogonal", "free"])
def test_normal_terms_are_the_gradient(name: str) -> None:
    coupling, theta = couplings()[name], random(c, d)
    A, b = coupling.normal_terms(theta)
    grad = torch.zeros_like(theta)
    coupling.add_grad_(grad, theta)
    product = (A.expand(c, d, d) @ theta[..., None])[..., 0] if A.dim() else A * theta
    torch.testing.assert_close(product - b, grad)


def test_at_the_kink_the_slope_is_zero_however_it_was_computed() -> None:
    """STYLE's trap: with p = 1 and w = Pθ up to rounding, chance must not decide between −1 and +1."""
    P = Projection(40, 300, seed=0)
    theta = random(6, 300)
    one_by_one = torch.cat([P.project(t[None]) for t in theta])
    assert float(Projected(1.0, one_by_one, P, 1.0).slope(theta).abs().max()) == 0
    moved = Projected(1.0, one_by_one + 1e-9, P, 1.0).slope(theta)
    assert bool((moved == 1).all())


def test_projection_rows_are_of_unit_length_and_depend_on_the_seed() -> None:
    eye = torch.eye(d, dtype=DOUBLE)
    P = Projection(k, d, seed=1).project(eye).T
    torch.testing.assert_close(P.norm(dim=1), torch.ones(k, dtype=DOUBLE))
    assert not torch.allclose(P, Projection(k, d, seed=2).project(eye).T)
    Q = Projection(k, d, 1, "orthogonal").project(eye).T
    torch.testing.assert_close(Q @ Q.T, torch.eye(k, dtype=DOUBLE))
    torch.testing.assert_close(torch.linalg.matrix_rank(torch.cat([P, Q])), torch.tensor(k))  # they span the same space
    small = random(c, k)
    torch.testing.assert_close(Projection(k, d, seed=1).lift(small), small @ P)


def test_a_projection_too_large_to_keep_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    P, theta, small = Projection(k, d, seed=3), random(c, d), random(c, k)
    kept = P.project(theta), P.lift(small)
    monkeypatch.setattr("sartor.couplings._KEEP_BYTES", 0)
    monkeypatch.setattr("sartor.couplings._BLOCK_BYTES", d * 8 * 3)
    assert len(P._blocks(theta)) == 2
    torch.testing.assert_close((P.project(theta), P.lift(small)), kept)


# --- solvers --------------------------------------------------------------------------------------------------------


def one_client(client: int = 5) -> Stack:
    return Stack(
        ModelTask(layers(5, 4, 3).to(DOUBLE)), ragged().to(dtype=DOUBLE), np.array([client]), torch.ones(1), 0, 0
    )


@pytest.mark.parametrize(
    ("solver", "theirs"),
    [
        (st.SGD(lr=0.1, epochs=3, batch=7), lambda p: torch.optim.SGD(p, 0.1)),
        (
            st.SGD(lr=0.1, epochs=2, batch=7, momentum=0.9, weight_decay=0.02),
            lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.02),
        ),
        (st.SGD(lr=0.1, steps=5, batch=7), lambda p: torch.optim.SGD(p, 0.1)),
        (st.Adam(lr=0.01, epochs=3, batch=7, weight_decay=0.1), lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1)),
    ],
)
def test_solvers_step_like_pytorch_s(solver: Solver, theirs: object) -> None:
    s = one_client()
    start, anchor, lam = s.task.init(1), s.task.init(2), 0.3
    ours = solver.minimise(s, start[None], Quadratic(lam, anchor[None]))
    theta = start.clone().requires_grad_()
    assert callable(theirs)
    optimiser = theirs([theta])
    schedule = {"epochs": solver.epochs, "steps": solver.steps}  # type: ignore[attr-defined]
    for _, batch in s.batches(7, **schedule):
        optimiser.zero_grad()
        (s.task.loss(theta[None], batch).sum() + lam / 2 * ((theta - anchor) ** 2).sum()).backward()
        optimiser.step()
    torch.testing.assert_close(ours[0], theta.detach())
    assert torch.equal(start, s.task.init(1))  # the start is left as it was


def test_reuse_takes_all_steps_on_one_batch() -> None:
    s = one_client()
    start = s.task.init(1)[None]
    ours = st.SGD(lr=0.1, steps=4, batch=7, reuse=True).minimise(s, start, Free(), start=2)
    _, batch = next(iter(s.batches(7, steps=1, start=2)))
    theta = start.clone()
    for _ in range(4):
        theta = theta - 0.1 * s.grad(theta, batch)
    torch.testing.assert_close(ours, theta)


def stack_of(q: object, visits: int = 1) -> Stack:
    from federations import Quadratics

    assert isinstance(q, Quadratics)
    ids = np.argsort(-q.clients.counts("train"), kind="stable")
    task = ModelTask(q.model().to(DOUBLE), "squared")
    return Stack(task, q.clients.to(dtype=DOUBLE), ids, torch.full((q.m,), visits), 0, 0)


def test_exact_and_long_gradient_descent_agree() -> None:
    q = quadratics()
    s = stack_of(q)
    coupling = Quadratic(0.5, random(q.m, q.d))
    exact = st.Exact().minimise(s, torch.zeros(q.m, q.d, dtype=DOUBLE), coupling)
    slow = st.SGD(lr=0.2, steps=3000, batch=1000).minimise(s, torch.zeros(q.m, q.d, dtype=DOUBLE), coupling)
    torch.testing.assert_close(exact, slow, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("visits", [1, 4])
def test_inexact_stops_when_and_only_when_equation_17_holds(visits: int) -> None:
    q = quadratics()
    s = stack_of(q, visits)
    coupling, solver = Quadratic(0.5, random(q.m, q.d)), st.Inexact(lr=0.1, eps=1e-3, shrink=0.1, max_steps=5000)
    theta = solver.minimise(s, torch.zeros(q.m, q.d, dtype=DOUBLE), coupling)

    def gap(theta: Tensor) -> Tensor:
        g = s.full_grad(theta)
        coupling.add_grad_(g, theta)
        return g.square().sum(1)

    assert float(gap(theta).max()) <= 1e-3 * 0.1 ** (visits - 1)
    assert float(gap(theta).min()) > 1e-3 * 0.1 ** (visits - 1) * 0.1  # and no further than asked


def test_flame_reports_whether_equation_17_was_met() -> None:
    q = quadratics()
    good = q.fit(
        st.FLAME(rho=0.5, solver=st.Inexact(lr=0.1, eps=1e-2, shrink=0.8, max_steps=500)), rounds=10, diagnose=True
    ).history[-1]
    assert good["diagnostics"]["inexact_missed_mean"] == 0
    assert good["diagnostics"]["inexact_gap_max"] <= 1e-2 * 0.8**9 * (1 + 1e-6)
    assert good["warnings"] == []
    bad = q.fit(
        st.FLAME(solver=st.Inexact(lr=0.01, eps=1e-6, shrink=0.5, max_steps=2)), rounds=10, diagnose=True
    ).history[-1]
    assert any("did not reach" in w for w in bad["warnings"])


# --- diagnostics and warnings ---------------------------------------------------------------------------------------


def test_curvature_is_the_largest_eigenvalue() -> None:
    q = quadratics()
    s = stack_of(q)
    theta = random(q.m, q.d)
    largest = np.array([np.linalg.eigvalsh(q.A[i])[-1] for i in s.ids])
    found = curvature(s, theta, s.full_grad(theta), steps=200).numpy()
    np.testing.assert_allclose(found, largest, rtol=1e-4)


def test_the_inner_loop_warning_tells_a_diverging_step_from_a_converging_one() -> None:
    """On a quadratic the bound is sharp: below it the loop converges, above it diverges, and we say so."""
    q = quadratics()
    s = stack_of(q)
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
        (st.FLAME(lam=10.0, rho=0.1), "ρ = 0.1 < λα"),
        (st.PFedMe(lam=15.0, eta=0.2, R=1, solver=st.SGD(lr=0.01)), "η·λ = 3 > 2"),
        (st.LpProj(lam=5.0, eta=1.0, d_sub=4, solver=st.SGD(lr=0.01)), "η·λ = 5 > 2"),
        (st.FedAMP(sigma=1e-9, alpha=1e-10, solver=st.SGD(lr=0.1)), "one-hot: this equals local training"),
        (st.FedAMP(self_weight=1.0), "one-hot: this equals local training"),
        (st.Ditto(lam=100.0, solver=st.SGD(lr=0.0199)), "lr·(λ + L)"),
    ],
)
def test_warnings_say_what_is_wrong(method: object, says: str) -> None:
    warnings = st.fit(method, layers(5, 3), ragged(), 2, evaluate_every=2, dtype=DOUBLE).summary["warnings"]  # type: ignore[arg-type]
    assert any(says in w for w in warnings), warnings


def test_fedamp_with_one_hot_weights_does_equal_local_training() -> None:
    solver = st.SGD(lr=0.1, batch=7)
    amp = st.fit(
        st.FedAMP(self_weight=1.0, beta=1e12, solver=solver), layers(5, 3), ragged(), 3, evaluate_every=3, dtype=DOUBLE
    )
    local = st.fit(st.LocalOnly(solver=solver), layers(5, 3), ragged(), 3, evaluate_every=3, dtype=DOUBLE)
    alone = local.run.engine.save()["state/theta"]
    torch.testing.assert_close(amp.run.server["w"].whole(), alone, atol=1e-9, rtol=1e-9)


def test_sensible_settings_warn_of_nothing() -> None:
    for method in (st.FLAME(lam=0.5, rho=0.5, solver=st.SGD(lr=0.05)), st.Ditto(lam=0.5, solver=st.SGD(lr=0.05))):
        assert st.fit(method, layers(5, 3), ragged(), 2, evaluate_every=2, dtype=DOUBLE).summary["warnings"] == []


def test_moreau_gradient_vanishes_at_the_solution_and_not_before() -> None:
    q = quadratics()
    far, near = (
        q.fit(st.PFedMe(lam=0.8, eta=1.0, R=1, solver=st.Exact()), rounds=r, diagnose=True).history[-1]["diagnostics"]
        for r in (1, 400)
    )
    assert far["envelope_gradient_norm"] > 1e-2 and near["envelope_gradient_norm"] < 1e-8


def local_protocol(s: Stack) -> ClientStack:
    return s  # the type checker's proof that a Stack is what methods are promised
