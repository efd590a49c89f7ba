"""Newton and L-BFGS against SciPy's and scikit-learn's minimisers: alone, stacked, with couplings and penalties."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch
from federations import quadratics, ragged, two_sided
from method_runs import client_batch, quadratic_stack, random, random_models, stack_of
from sklearn.linear_model import LogisticRegression, Ridge
from torch import nn

import sartor as st
from sartor.core import Coupling
from sartor.couplings import Free, Linear, Quadratic
from sartor.engines.stack import Stack
from sartor.models import layers
from sartor.tasks.task import ModelTask

TIGHT = (st.Newton(ridge=0.7, tol=1e-11), st.LBFGS(ridge=0.7, tol=1e-11, max_steps=3000))
RIDGE = 0.7


def numbers() -> st.Clients:
    """Regression with clients of 1 to 60 samples."""
    rng, parts = np.random.default_rng(3), []
    for n in (60, 25, 9, 4, 1):
        x = rng.normal(size=(n, 5))
        parts.append({"train": (x, x @ rng.normal(size=5) + 2 + 0.3 * rng.normal(size=n))})
    return st.Clients.from_parts(parts, None)


CASES = {
    "softmax": lambda: stack_of(ragged(), layers(5, 3)),
    "softmax without intercepts": lambda: stack_of(ragged(), nn.Sequential(nn.Linear(5, 3, bias=False))),
    "two classes": lambda: stack_of(ragged(classes=2), layers(5, 2)),
    "squared": lambda: stack_of(numbers(), layers(5, 1), "squared"),
    "squared hinge": lambda: stack_of(two_sided(), layers(5, 1), "squared-hinge"),
}


def weights_of(local: Stack) -> torch.Tensor:
    """[d] 1 for weights, 0 for intercepts: the layers' weights come first."""
    found = torch.ones(local.task.size, dtype=torch.float64)
    if "1.bias" in local.task.blocks or "0.bias" in local.task.blocks:
        found[-local.task.dense.outputs :] = 0  # type: ignore[union-attr]
    return found


def by_scipy(local: Stack, i: int, lam: float, anchor: np.ndarray) -> np.ndarray:
    """argmin f_i + ridge/(2n) ‖W‖² + λ/2 ‖θ − a‖² by BFGS, from losses written again."""
    x, y = (v.numpy() for v in client_batch(local, i))
    k = local.task.dense.outputs  # type: ignore[union-attr]
    biased = local.task.size == k * 6

    def value(theta: np.ndarray) -> float:
        W, b = theta[: 5 * k].reshape(k, 5), theta[5 * k :] if biased else 0.0
        z = x @ W.T + b
        if local.kind == "cross-entropy":
            f = np.mean(np.log(np.exp(z - z.max(1, keepdims=True)).sum(1)) + z.max(1) - z[np.arange(len(y)), y])
        elif local.kind == "squared":
            f = np.mean(0.5 * (z[:, 0] - y) ** 2)
        else:
            f = np.mean(np.maximum(0, 1 - y * z[:, 0]) ** 2)
        return float(f + RIDGE / (2 * len(y)) * (W**2).sum() + lam / 2 * ((theta - anchor) ** 2).sum())

    found = scipy.optimize.minimize(value, anchor, method="BFGS", options={"gtol": 1e-7, "maxiter": 5000})
    return np.asarray(found.x)


@pytest.mark.parametrize("solver", TIGHT, ids=["newton", "lbfgs"])
@pytest.mark.parametrize("case", CASES)
def test_a_stack_reaches_scipy_s_minimiser_of_each_client(case: str, solver: st.Newton | st.LBFGS) -> None:
    local, lam = CASES[case](), 0.3
    anchor = random_models(local)
    found = solver.minimise(local, random_models(local, 9), Quadratic(lam, anchor))
    for i in range(len(local.ids)):
        # SciPy's differences end at 1e-7 or so; the slopes below say how near ours is.
        np.testing.assert_allclose(found[i].numpy(), by_scipy(local, i, lam, anchor[i].numpy()), atol=2e-5)
    slope = local.full_grad(found) + lam * (found - anchor) + RIDGE / local.samples[:, None] * weights_of(local) * found
    assert float(slope.abs().max()) < 1e-10


@pytest.mark.parametrize("case", CASES)
def test_newton_and_lbfgs_agree_to_eight_digits(case: str) -> None:
    local, coupling = CASES[case](), Quadratic(0.05, random_models(CASES[case]()))
    one, other = (s.minimise(local, random_models(local, 4), coupling) for s in TIGHT)
    torch.testing.assert_close(one, other, atol=1e-8, rtol=0)


@pytest.mark.parametrize("case", CASES)
def test_value_slope_and_curvature_are_autograd_s(case: str) -> None:
    local = CASES[case]()
    f, theta = local.objective(), random_models(local, 1)
    torch.testing.assert_close(f.loss(theta), local.full_loss(theta))
    torch.testing.assert_close(f.grad(theta), local.full_grad(theta))
    step = 1e-5 * random_models(local, 2)
    change = (f.grad(theta + step) - f.grad(theta - step)) / 2
    torch.testing.assert_close((f.hessian(theta) @ step[..., None])[..., 0], change, atol=1e-10, rtol=1e-5)
    torch.testing.assert_close(f.penalised, weights_of(local))


def test_alone_a_client_is_where_it_is_in_a_stack() -> None:
    local, solver = stack_of(ragged(), layers(5, 3)), st.Newton()
    together = solver.minimise(local, random_models(local), Free())
    for i in range(len(local.ids)):
        alone = solver.minimise(local.take(torch.tensor([i])), random_models(local)[i : i + 1], Free())
        torch.testing.assert_close(alone[0], together[i], atol=1e-10, rtol=0)


def test_newton_is_scikit_learn_s_logistic_regression_and_ridge() -> None:
    local = stack_of(ragged(classes=2), layers(5, 2))
    theta = st.Newton(ridge=2.0, tol=1e-12).minimise(local, random_models(local), Free())
    checked = 0
    for i in range(len(local.ids)):
        x, y = (v.numpy() for v in client_batch(local, i))
        if len(np.unique(y)) == 2:
            # Two outputs with the same penalty each: their difference has the penalty of one weight vector, doubled.
            theirs = LogisticRegression(C=1.0, tol=1e-12, max_iter=10000).fit(x, y)
            W = theta[i, :10].reshape(2, 5)
            np.testing.assert_allclose((W[1] - W[0]).numpy(), theirs.coef_[0], atol=1e-5)
            np.testing.assert_allclose(float(theta[i, 11] - theta[i, 10]), theirs.intercept_[0], atol=1e-5)
            checked += 1
    assert checked >= 3
    local = stack_of(numbers(), layers(5, 1), "squared")
    theta = st.Newton(ridge=2.0).minimise(local, random_models(local), Free())
    for i in range(len(local.ids)):
        x, y = (v.numpy() for v in client_batch(local, i))
        theirs = Ridge(alpha=2.0).fit(x, y)
        np.testing.assert_allclose(theta[i].numpy(), [*theirs.coef_, theirs.intercept_], atol=1e-7)


@pytest.mark.parametrize("coupling", [Free(), Quadratic(0.5, random(5, 5))], ids=["free", "prox"])
def test_on_quadratics_newton_without_a_penalty_is_exact(coupling: Coupling) -> None:
    q = quadratics()
    s, start = quadratic_stack(q), torch.zeros(q.m, q.d, dtype=torch.float64)
    if isinstance(coupling, Quadratic):
        coupling = Quadratic(0.5, random(q.m, q.d))
    torch.testing.assert_close(
        st.Newton(ridge=0.0).minimise(s, start, coupling), st.Exact().minimise(s, start, coupling), atol=1e-8, rtol=1e-8
    )


def test_a_linear_term_moves_the_minimiser() -> None:
    """Its slope is −∇f there: what ADMM's dual does."""
    local = stack_of(ragged(), nn.Sequential(nn.Linear(5, 3, bias=False)))
    dual = 0.01 * random_models(local, 5)
    theta = st.Newton(ridge=0.7, tol=1e-11).minimise(local, random_models(local), Linear(dual))
    slope = local.full_grad(theta) + 0.7 / local.samples[:, None] * theta + dual
    assert float(slope.abs().max()) < 1e-9


def test_separable_data_are_bounded_by_the_penalty() -> None:
    """A client whose classes a plane parts: the weights end where the penalty holds them, larger for a smaller one."""
    x = np.array([[-1.0], [-2.0], [1.0], [3.0]])
    clients = st.Clients.from_parts([{"train": (x, np.array([0, 0, 1, 1]))}], 2)
    local = stack_of(clients, layers(1, 2))
    sizes = []
    for ridge in (1.0, 0.01, 1e-4):
        theta = st.Newton(ridge=ridge).minimise(local, random_models(local), Free())
        assert bool(torch.isfinite(theta).all())
        sizes.append(float(theta.norm()))
    assert sizes[0] < sizes[1] < sizes[2] < 100


def test_lbfgs_trains_small_networks_and_newton_refuses_them() -> None:
    local = stack_of(ragged(), layers(5, 8, 3))
    start = random_models(local)
    theta = st.LBFGS(ridge=0.1, max_steps=100).minimise(local, start, Free())
    assert bool((local.full_loss(theta) < 0.5 * local.full_loss(start)).all())
    with pytest.raises(st.SartorError, match=r"newton solver needs a linear model .* use lbfgs or sgd"):
        st.Newton().minimise(local, start, Free())


def test_single_precision_models_are_minimised_in_double() -> None:
    wide = stack_of(ragged(), layers(5, 3))
    narrow = Stack(ModelTask(layers(5, 3)), ragged(), wide.ids, torch.ones(7), 0, 0)
    start = random_models(wide)
    found = st.Newton().minimise(narrow, start.float(), Free())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), st.Newton().minimise(wide, start, Free()), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["newton", "lbfgs"])
def test_settings_that_make_no_sense_are_refused(name: str) -> None:
    kind = {"newton": st.Newton, "lbfgs": st.LBFGS}[name]
    for bad in ({"ridge": -1.0}, {"tol": 0.0}, {"max_steps": 0}):
        with pytest.raises(st.SartorError, match=next(iter(bad))):
            kind(**bad)  # type: ignore[arg-type]
