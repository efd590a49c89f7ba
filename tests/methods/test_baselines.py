"""The methods that the papers compare with, each against an answer known without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from federations import Quadratics, quadratics, ragged, two_sided
from torch import Tensor, nn
from torch.func import functional_call

import sartor as st
from sartor.aggregators import fair_weights
from sartor.core import Method
from sartor.couplings import Free, LpNorm, Quadratic
from sartor.engines.stack import Stack
from sartor.methods.ewc import fisher
from sartor.methods.parts.other_losses import Mixed, ModelPart
from sartor.methods.per_fedavg import Meta
from sartor.methods.skl import NearPredictions
from sartor.models import layers
from sartor.tasks.task import ModelTask

EXACT = st.Exact()
SGD = st.SGD(lr=0.1, epochs=2, batch=7, momentum=0.5, weight_decay=0.01)
FULL = 10_000  # a batch that holds all of a client's data


def play(method: Method, rounds: int = 4, model: nn.Module | None = None, **options: Any) -> st.Result:
    return st.fit(
        method,
        model or layers(5, 6, 3),
        options.pop("clients", ragged()),
        rounds,
        dtype=torch.float64,
        evaluate_every=rounds,
        diagnose=False,
        **options,
    )


def states(result: st.Result) -> dict[str, Tensor]:
    return {k.removeprefix("state/"): v for k, v in result.run.engine.save().items()}


def personal(result: st.Result) -> np.ndarray:
    return result.run.query_clients("personal")["personal"].numpy()


def stack_of(clients: st.Clients, model: nn.Module, loss: str = "cross-entropy", seed: int = 0) -> Stack:
    """All clients, by falling size, in double precision."""
    clients = clients.to(dtype=torch.float64)
    ids = np.argsort(-clients.counts("train"), kind="stable")
    return Stack(ModelTask(model.double(), loss), clients, ids, torch.ones(len(ids)), 0, seed)


def random_models(local: Stack, seed: int = 0, scale: float = 0.5) -> Tensor:
    rng = np.random.default_rng(seed)
    return torch.as_tensor(scale * rng.normal(size=(len(local.ids), local.task.size)))


def client_batch(local: Stack, i: int, part: str = "train") -> tuple[Tensor, Tensor]:
    rows = local.data.rows(int(local.ids[i]), part)
    return local.data.x[rows], local.data.y[rows]


def autograd_loss(local: Stack, i: int, theta: Tensor) -> Tensor:
    """f_i(θ) of the i-th client of the stack, by plain PyTorch."""
    task = local.task
    assert isinstance(task, ModelTask)
    x, y = client_batch(local, i)
    output = functional_call(task.original, dict(zip(task.names, task.unflatten(theta), strict=True)), (x,))
    return nn.functional.cross_entropy(output, y)


# --- Per-FedAvg ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hessian", [True, False])
def test_per_fedavg_gradient_is_autograd_s_of_the_adapted_loss(hessian: bool) -> None:
    """HF: ∇ f(w − α∇f(w)) by double backward, to 1e-5; FO: the same without the Hessian."""
    local, alpha = stack_of(ragged(), layers(5, 3)), 0.3
    theta = random_models(local)
    meta = Meta(local, alpha, 1e-3 if hessian else None)
    a, batch = next(meta.batches(FULL, steps=1))
    ours = meta.grad(theta, batch)
    assert a == len(theta)
    plain = Meta(local, alpha, None).grad(theta, batch)
    for i in range(len(theta)):
        w = theta[i].clone().requires_grad_()
        (g,) = torch.autograd.grad(autograd_loss(local, i, w), w, create_graph=True)
        (expected,) = torch.autograd.grad(autograd_loss(local, i, w - alpha * (g if hessian else g.detach())), w)
        torch.testing.assert_close(ours[i], expected, atol=1e-5, rtol=1e-5)
    assert not hessian or float((ours - plain).abs().max()) > 1e-2  # the Hessian does matter here


def test_per_fedavg_uses_three_batches_and_adapts_with_all_data() -> None:
    local = stack_of(ragged(), layers(5, 3))
    _, batch = next(Meta(local, 0.1, None).batches(7, steps=1))
    thirds = batch.x.chunk(3, dim=1)
    assert not torch.equal(thirds[0][0], thirds[1][0]) and not torch.equal(thirds[1][0], thirds[2][0])
    result = play(st.PerFedAvg(alpha=0.2, solver=SGD))
    w = result.run.server["w"]
    for i, ours in enumerate(personal(result)):
        local = stack_of(ragged(), layers(5, 6, 3))
        at = int(np.flatnonzero(local.ids == i)[0])
        theta = w.clone().requires_grad_()
        (g,) = torch.autograd.grad(autograd_loss(local, at, theta), theta)
        np.testing.assert_allclose(ours, (w - 0.2 * g).numpy(), atol=1e-12)


def test_per_fedavg_on_quadratics_reaches_the_minimum_of_the_adapted_losses() -> None:
    """F_i(w) = f_i((I − αA)w + αb): w* solves Σ (I − αA)A(I − αA) w = Σ (I − αA)(I − αA) b."""
    q, alpha = quadratics(), 0.1
    solver = st.SGD(lr=0.5, steps=1, batch=FULL)
    w = q.fit(st.PerFedAvg(alpha=alpha, solver=solver), rounds=250).run.server["w"].numpy()
    S = np.eye(q.d) - alpha * q.A
    expected = np.linalg.solve((S @ q.A @ S).sum(0), np.einsum("ijk,ikl,il->j", S, S, q.b))
    np.testing.assert_allclose(w, expected, atol=1e-8)


# --- APFL ------------------------------------------------------------------------------------------------------------


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


# --- L2SGD, L2GD -----------------------------------------------------------------------------------------------------


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


# --- mapper ----------------------------------------------------------------------------------------------------------


def test_mapper_with_lambda_one_is_local_training_and_with_zero_fedavg() -> None:
    plain = st.SGD(lr=0.1, epochs=2, batch=7)
    zero = play(st.Mapper(lambdas=(0.0,), solver=plain))
    torch.testing.assert_close(zero.run.server["w"], play(st.FedAvg(solver=plain)).run.server["w"])
    q, solver = quadratics(), st.SGD(lr=0.1, steps=3, batch=FULL)
    one, alone = q.fit(st.Mapper(lambdas=(1.0,), solver=solver), 5), q.fit(st.LocalOnly(solver=solver), 5)
    np.testing.assert_allclose(personal(one), states(alone)["theta"], atol=1e-12)
    torch.testing.assert_close(one.run.server["w"], one.run.problem.start)  # nobody has a use for it


def test_mapper_takes_the_lambda_with_the_lowest_validation_loss() -> None:
    q, grid = quadratics(), (0.0, 0.3, 0.7, 1.0)
    solver = st.SGD(lr=0.1, steps=4, batch=FULL)
    result = q.fit(st.Mapper(lambdas=grid, solver=solver), rounds=1)
    w = result.run.problem.start.numpy()
    for i in range(q.m):
        losses, models = [], []
        x, y = (t[q.clients.rows(i, "validation")].numpy() for t in (q.clients.x, q.clients.y))
        for lam in grid:
            h = w.copy()
            for _ in range(4):
                h = h - 0.1 * lam * (q.A[i] @ (lam * h + (1 - lam) * w) - q.b[i])
            models.append(h)
            losses.append(0.5 * np.mean((x @ (lam * h + (1 - lam) * w) - y) ** 2))
        best = int(np.argmin(losses))
        assert float(states(result)["lambda"][i]) == pytest.approx(grid[best])
        np.testing.assert_allclose(states(result)["h"][i], models[best], atol=1e-12)


# --- EWC, SKL --------------------------------------------------------------------------------------------------------


def test_ewc_s_fisher_is_the_mean_square_of_the_samples_gradients() -> None:
    local = stack_of(ragged(), layers(5, 6, 3))
    theta = random_models(local)
    ours = fisher(local, theta, FULL)
    for i in range(len(theta)):
        x, y = client_batch(local, i)
        total = torch.zeros(local.task.size, dtype=torch.float64)
        for j in range(len(y)):
            w = theta[i].clone().requires_grad_()
            task = local.task
            assert isinstance(task, ModelTask)
            output = functional_call(
                task.original, dict(zip(task.names, task.unflatten(w), strict=True)), (x[j : j + 1],)
            )
            (g,) = torch.autograd.grad(torch.log_softmax(output, 1)[0, y[j]], w)
            total += g**2
        torch.testing.assert_close(ours[i], total / len(y), atol=1e-12, rtol=1e-9)


def test_ewc_reaches_its_minimum_on_quadratics() -> None:
    """(A + λF) w = b + λF w* with F from the residuals: F_ii = mean (x_i (x·w* − y))²."""
    q, lam = quadratics(), 0.7
    result = q.fit(st.EWC(lam=lam, fisher_batch=FULL, solver=st.SGD(lr=0.05), finetune=EXACT), rounds=3)
    w = result.run.server["w"].numpy()
    for i, ours in enumerate(personal(result)):
        X, y = (t[q.clients.rows(i, "train")].numpy() for t in (q.clients.x, q.clients.y))
        F = np.mean((X * (X @ w - y)[:, None]) ** 2, axis=0)
        np.testing.assert_allclose(ours, np.linalg.solve(q.A[i] + lam * np.diag(F), q.b[i] + lam * F * w), atol=1e-9)


@pytest.mark.parametrize("vectorise", [True, False])
def test_skl_s_gradient_is_autograd_s(vectorise: bool) -> None:
    local, lam = stack_of(ragged(), layers(5, 6, 3)), 0.8
    task = local.task
    assert isinstance(task, ModelTask)
    task.vectorise = vectorise
    theta, w = random_models(local, 1), random_models(local, 2)
    _, batch = next(local.batches(FULL, steps=1))
    ours = NearPredictions(local, lam, w).grad(theta, batch)
    for i in range(len(theta)):
        x, _ = client_batch(local, i)

        def log_p(v: Tensor, x: Tensor = x) -> Tensor:
            return torch.log_softmax(
                functional_call(task.original, dict(zip(task.names, task.unflatten(v), strict=True)), (x,)), 1
            )

        v = theta[i].clone().requires_grad_()
        p, q = log_p(v), log_p(w[i])
        both = (p.exp() * (p - q)).sum(1).mean() + (q.exp() * (q - p)).sum(1).mean()
        (expected,) = torch.autograd.grad(autograd_loss(local, i, v) + lam / 2 * both, v)
        torch.testing.assert_close(ours[i], expected, atol=1e-10, rtol=1e-8)


def test_ewc_and_skl_with_small_lam_are_fedavg_with_fine_tuning() -> None:
    expected = personal(play(st.FedAvg(solver=SGD, finetune=SGD)))
    for method in (st.EWC(lam=1e-12, solver=SGD, finetune=SGD), st.SKL(lam=1e-12, solver=SGD, finetune=SGD)):
        np.testing.assert_allclose(personal(play(method)), expected, atol=1e-8)


# --- a model cut in two ----------------------------------------------------------------------------------------------


def test_part_and_mixed_train_as_autograd_would() -> None:
    local = stack_of(ragged(), layers(5, 6, 3))
    theta, other = random_models(local, 3), random_models(local, 4)
    _, batch = next(local.batches(FULL, steps=1))
    k = 5 * 6 + 6
    part = ModelPart(local, theta, slice(k, None)).grad(other[:, k:], batch)
    mixed = Mixed(local, 0.3, other).grad(theta, batch)
    for i in range(len(theta)):
        head, v = other[i, k:].clone().requires_grad_(), theta[i].clone().requires_grad_()
        (expected,) = torch.autograd.grad(autograd_loss(local, i, torch.cat([theta[i, :k], head])), head)
        torch.testing.assert_close(part[i], expected, atol=1e-10, rtol=1e-8)
        (expected,) = torch.autograd.grad(autograd_loss(local, i, 0.3 * v + 0.7 * other[i]), v)
        torch.testing.assert_close(mixed[i], expected, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize(("name", "shares_head"), [("lg-fedavg", True), ("fedper", False)])
def test_one_half_is_averaged_and_the_other_is_each_client_s_own(name: str, shares_head: bool) -> None:
    """One round from the common start: both halves are those of local training, one of them averaged by size."""
    k = 5 * 6 + 6
    method: Method = {"lg-fedavg": st.LGFedAvg(solver=SGD), "fedper": st.FedPer(solver=SGD)}[name]
    result, local = play(method, rounds=1), states(play(st.LocalOnly(solver=SGD), rounds=1))["theta"]
    share = result.run.problem.share
    own, common = (local[:, :k], local[:, k:]) if shares_head else (local[:, k:], local[:, :k])
    torch.testing.assert_close(states(result)["body" if shares_head else "head"], own)
    torch.testing.assert_close(result.run.server["w"], share @ common)
    halves = [own, (share @ common).expand(7, -1)]
    torch.testing.assert_close(torch.as_tensor(personal(result)), torch.cat(halves if shares_head else halves[::-1], 1))


def test_fedrep_trains_the_head_first_and_then_the_body_under_the_new_head() -> None:
    k, solver = 5 * 6 + 6, st.SGD(lr=0.1, steps=2, batch=FULL, weight_decay=0.1)
    result = play(st.FedRep(solver=solver, head_solver=st.SGD(lr=0.2, steps=3, batch=FULL)), rounds=1)
    local, start = stack_of(ragged(), layers(5, 6, 3)), result.run.problem.start
    bodies = []
    for i in range(7):
        at = int(np.flatnonzero(local.ids == i)[0])
        phi, h = start[:k].clone(), start[k:].clone()
        for _ in range(3):
            h.requires_grad_()
            (g,) = torch.autograd.grad(autograd_loss(local, at, torch.cat([phi, h])), h)
            h = (h - 0.2 * g).detach()
        for _ in range(2):
            phi.requires_grad_()
            (g,) = torch.autograd.grad(autograd_loss(local, at, torch.cat([phi, h])), phi)
            phi = (phi - 0.1 * (g + 0.1 * phi)).detach()
        torch.testing.assert_close(states(result)["head"][i], h)
        bodies.append(phi)
    torch.testing.assert_close(result.run.server["w"], torch.stack(bodies).mean(0))


# --- RSA -------------------------------------------------------------------------------------------------------------


def test_rsa_with_the_squared_norm_reaches_pfedme_s_and_l2sgd_s_point() -> None:
    q, lam = quadratics(), 0.8
    method = st.RSA(lam=lam, p=2, norm=False, server_lr=0.2, solver=EXACT)
    result = q.fit(method, rounds=400)
    w, x = q.moreau(lam)
    np.testing.assert_allclose(result.run.server["w"], w, atol=1e-8)
    np.testing.assert_allclose(states(result)["x"], x, atol=1e-8)


def test_rsa_with_p_one_equals_an_executed_oracle_and_a_liar_moves_it_by_one_step() -> None:
    q, lam, lr, decay = quadratics(), 0.05, 0.1, 0.02
    method = st.RSA(lam=lam, server_lr=0.2, decay=decay, solver=st.SGD(lr=lr, steps=1, batch=FULL))
    result = q.fit(method, rounds=30)
    x_0 = result.run.problem.start.numpy()
    x = np.tile(x_0, (q.m, 1))
    for _ in range(30):
        x = x - lr * (np.einsum("ijk,ik->ij", q.A, x) - q.b + lam * np.sign(x - x_0))
        x_0 = x_0 - 0.2 * (decay * x_0 + lam * np.sign(x_0 - x).sum(0))
    np.testing.assert_allclose(result.run.server["w"], x_0, atol=1e-10)
    np.testing.assert_allclose(states(result)["x"], x, atol=1e-10)
    honest, server = torch.as_tensor(x), {"w": torch.as_tensor(x_0)}
    lie = honest.clone()
    lie[2] = 1e12
    ids, alike = torch.arange(q.m), torch.ones(q.m)
    truth, lied = (method.server(server, ids, {"x": sent}, alike, 0)["w"] for sent in (honest, lie))
    moved = truth - lied
    assert float(moved.abs().max()) <= 2 * 0.2 * lam + 1e-12


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("norm", [True, False])
def test_lp_norm_slope_is_autograd_s(p: float, norm: bool) -> None:
    rng = np.random.default_rng(0)
    theta, anchor = (torch.as_tensor(rng.normal(size=(4, 5))) for _ in range(2))
    lam = torch.tensor([[0.5], [1.0], [2.0], [0.1]], dtype=torch.float64)
    coupling = LpNorm(lam, anchor, p, norm)
    x = theta.clone().requires_grad_()
    (expected,) = torch.autograd.grad(coupling.value(x).sum(), x)
    grad = torch.zeros_like(theta)
    coupling.add_grad_(grad, theta)
    torch.testing.assert_close(grad, expected)
    pulled = theta.clone()
    coupling.pull_(pulled, 0.3)
    torch.testing.assert_close(pulled, theta - 0.3 * expected)


# --- global methods --------------------------------------------------------------------------------------------------


def optimum(q: Quadratics, weights: np.ndarray | None = None) -> np.ndarray:
    weights = np.full(q.m, 1 / q.m) if weights is None else weights
    return np.linalg.solve(np.einsum("i,ijk->jk", weights, q.A), weights @ q.b)


@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("cohort", [6, 3])
def test_scaffold_reaches_the_global_optimum_where_fedavg_does_not(option: str, cohort: int) -> None:
    q, solver = quadratics(), st.SGD(lr=0.1, steps=5, batch=FULL)
    scaffold = q.fit(st.SCAFFOLD(option=option, solver=solver), rounds=400, cohort=cohort).run.server
    np.testing.assert_allclose(scaffold["w"], optimum(q), atol=1e-8)
    np.testing.assert_allclose(scaffold["c"], 0, atol=1e-8)  # Σ ∇f_i(x*) = 0
    fedavg = q.fit(st.FedAvg(weighting="uniform", solver=solver), rounds=100).run.server["w"]
    assert np.abs(fedavg.numpy() - optimum(q)).max() > 1e-2


def test_scaffold_option_two_counts_its_steps_on_ragged_clients() -> None:
    """One epoch of minibatches: c_i⁺ is the mean of the gradients that were seen, so K is right for every client."""
    solver = st.SGD(lr=0.1, epochs=2, batch=7)
    result = play(st.SCAFFOLD(option="II", solver=solver), rounds=1)
    start, local = result.run.problem.start, stack_of(ragged(), layers(5, 6, 3))
    for at, i in enumerate(local.ids):
        y, seen = start[None].repeat(7, 1), []
        for a, batch in local.batches(7, epochs=2):
            if at < a:
                g = local.grad(y[:a], batch)[at]
                y[at] -= 0.1 * g
                seen.append(g)
        torch.testing.assert_close(states(result)["c"][i], torch.stack(seen).mean(0))


@pytest.mark.parametrize("weighting", ["uniform", "size"])
def test_fedadmm_reaches_the_global_optimum(weighting: str) -> None:
    q = quadratics()
    result = q.fit(st.FedADMM(rho=1.0, weighting=weighting, solver=EXACT), rounds=300)
    expected = optimum(q, q.share if weighting == "size" else None)
    np.testing.assert_allclose(result.run.server["w"], expected, atol=1e-8)
    np.testing.assert_allclose(states(result)["w"], np.tile(expected, (q.m, 1)), atol=1e-7)


def test_fedadmm_equals_an_executed_oracle() -> None:
    """The same program as FLAME's limit λ → ∞ is held against in test_identities."""
    q, rho = quadratics(), 1.5
    result = q.fit(st.FedADMM(rho=rho, solver=EXACT), rounds=7)
    w, pi = result.run.problem.start.numpy(), np.zeros((q.m, q.d))
    for _ in range(7):
        w_i = np.linalg.solve(q.A + rho * np.eye(q.d), (q.b + rho * w - q.m * pi)[..., None])[..., 0]
        pi = pi + rho / q.m * (w_i - w)
        w = (w_i + q.m * pi / rho).mean(0)
    np.testing.assert_allclose(result.run.server["w"], w, atol=1e-10)


def one_step(lr: float) -> st.SGD:
    return st.SGD(lr=lr, steps=1, batch=FULL)


@pytest.mark.parametrize("t", [2.0, -1.0])
def test_term_steps_along_autograd_s_gradient_of_the_tilted_loss(t: float) -> None:
    result = play(st.TERM(t=t, solver=one_step(0.1)), rounds=1)
    local, w = stack_of(ragged(), layers(5, 6, 3)), result.run.problem.start.clone().requires_grad_()
    losses = torch.stack([autograd_loss(local, i, w) for i in range(7)])
    tilted = torch.logsumexp(t * losses + local.share[:, 0].log(), 0) / t
    (g,) = torch.autograd.grad(tilted, w)
    torch.testing.assert_close(result.run.server["w"], w.detach() - 0.1 * g, atol=1e-10, rtol=1e-8)


def test_term_without_tilt_and_qffl_with_q_zero_are_fedavg() -> None:
    fedavg = play(st.FedAvg(solver=SGD)).run.server["w"]
    torch.testing.assert_close(play(st.TERM(t=0.0, solver=SGD)).run.server["w"], fedavg)
    torch.testing.assert_close(play(st.TERM(t=1e-9, solver=SGD)).run.server["w"], fedavg, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(play(st.QFFL(q=0.0, solver=SGD)).run.server["w"], fedavg)


def test_qffl_equals_its_formulas() -> None:
    q_, q, lr = 1.5, quadratics(), 0.1
    result = q.fit(st.QFFL(q=q_, weighting="uniform", solver=one_step(lr)), rounds=4)
    y2 = [float((q.clients.y[q.clients.rows(i, "train")] ** 2).mean()) for i in range(q.m)]
    w, L = result.run.problem.start.numpy(), 1 / lr
    for _ in range(4):
        top, bottom = np.zeros(q.d), 0.0
        for A, b, c in zip(q.A, q.b, y2, strict=True):
            F, g = 0.5 * w @ A @ w - b @ w + 0.5 * c, A @ w - b
            top += F**q_ * g
            bottom += q_ * F ** (q_ - 1) * g @ g + L * F**q_
        w = w - top / bottom
    np.testing.assert_allclose(result.run.server["w"], w, atol=1e-10)


def test_qffl_minimises_the_sum_of_powers_and_so_makes_losses_more_alike() -> None:
    q, power = quadratics(), 2.0
    X, y = ([t[q.clients.rows(i, "train")].numpy() for i in range(q.m)] for t in (q.clients.x, q.clients.y))

    def losses(w: np.ndarray) -> np.ndarray:
        return np.array([0.5 * np.mean((A @ w - b) ** 2) for A, b in zip(X, y, strict=True)])

    method = st.QFFL(q=power, weighting="uniform", solver=one_step(0.3))
    w = q.fit(method, rounds=400).run.server["w"].numpy()
    found = scipy.optimize.minimize(
        lambda v: (losses(v) ** (power + 1)).sum(),
        np.zeros(q.d),
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-14, "maxiter": 20_000, "maxfev": 20_000},
    )
    np.testing.assert_allclose(w, found.x, atol=1e-5)
    assert losses(w).var() < losses(optimum(q)).var()


# --- FedMGDA+ --------------------------------------------------------------------------------------------------------


def test_min_norm_point_of_two_vectors_is_the_foot_of_the_perpendicular() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.normal(size=(2, 3))
        lam = np.clip(b @ (b - a) / ((a - b) @ (a - b)), 0, 1)
        G = np.array([[a @ a, a @ b], [a @ b, b @ b]])
        ours = fair_weights(torch.as_tensor(G), torch.full((2,), 0.5, dtype=torch.float64), 1.0)
        np.testing.assert_allclose(ours, [lam, 1 - lam], atol=1e-5)


@pytest.mark.parametrize(("n", "d", "epsilon"), [(5, 3, 1.0), (8, 30, 1.0), (8, 30, 0.05), (20, 4, 0.02)])
def test_min_norm_agrees_with_scipy(n: int, d: int, epsilon: float) -> None:
    rng = np.random.default_rng(n)
    g = rng.normal(size=(n, d)) + 0.4
    G, first = g @ g.T, np.full(n, 1 / n)
    ours = fair_weights(torch.as_tensor(G), torch.as_tensor(first), epsilon).numpy()
    found = scipy.optimize.minimize(
        lambda x: x @ G @ x,
        first,
        jac=lambda x: 2 * G @ x,
        bounds=[(max(0, f - epsilon), min(1, f + epsilon)) for f in first],
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": lambda x: np.ones(n)},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert ours @ G @ ours <= found.fun + 1e-8 * np.abs(G).max()
    assert abs(ours.sum() - 1) < 1e-12 and ours.min() >= 0 and np.abs(ours - first).max() <= epsilon + 1e-12


def test_fedmgda_serves_everyone_and_plain_without_room_is_fedavg() -> None:
    fedavg = play(st.FedAvg(solver=SGD)).run.server["w"]
    plain = play(st.FedMGDA(normalise=False, epsilon=0.0, eta=1.0, solver=SGD)).run.server["w"]
    torch.testing.assert_close(plain, fedavg)
    run = play(st.FedMGDA(epsilon=1.0, eta=1.0, solver=SGD), rounds=1).run
    models = states(play(st.LocalOnly(solver=SGD), rounds=1))["theta"]
    g = run.problem.start - models
    g = g / g.norm(dim=1, keepdim=True)
    direction = run.problem.start - run.server["w"]
    assert float((g @ direction).min()) >= float(direction @ direction) - 1e-6


# --- IFCA ------------------------------------------------------------------------------------------------------------


def grouped(seed: int, m: int = 8, d: int = 4) -> tuple[Quadratics, np.ndarray]:
    """Clients of two groups, each with its own truth; who is in which group."""
    rng = np.random.default_rng(seed)
    truth, group = rng.normal(size=(2, d)) * 2, np.arange(m) % 2
    parts, A, b = [], [], []
    for i in range(m):
        X = rng.normal(size=(20, d))
        y = X @ truth[group[i]] + 0.1 * rng.normal(size=20)
        parts.append({"train": (X, y), "test": (X[:3], y[:3])})
        A.append(X.T @ X / 20)
        b.append(X.T @ y / 20)
    return Quadratics(st.Clients.from_parts(parts), np.array(A), np.array(b), np.full(m, 1 / m)), group


@pytest.mark.parametrize("seed", range(4))
def test_ifca_recovers_the_groups_and_their_optima(seed: int) -> None:
    """From a start within the paper's basin, nearer to the own group's optimum than half their distance."""
    q, group = grouped(seed)
    solver = st.SGD(lr=0.4, steps=1, batch=FULL)  # one step: the average is then a gradient step of the cluster
    result = q.fit(st.IFCA(k=2, weighting="uniform", solver=solver), rounds=1)
    optima = np.stack([np.linalg.solve(q.A[group == g].mean(0), q.b[group == g].mean(0)) for g in (0, 1)])
    off = np.random.default_rng(seed).normal(size=optima.shape)
    off *= 0.3 * np.linalg.norm(optima[0] - optima[1]) / np.linalg.norm(off, axis=1, keepdims=True)
    result.run.server["w"] = torch.as_tensor(optima + off)
    for _ in range(150):
        result.run.step()
    ours = personal(result)
    for g in (0, 1):
        np.testing.assert_allclose(ours[group == g], np.tile(optima[g], (4, 1)), atol=1e-8)


def test_ifca_recovers_the_groups_from_a_random_start() -> None:
    q, group = grouped(1)
    solver = st.SGD(lr=0.4, steps=1, batch=FULL)
    ours = personal(q.fit(st.IFCA(k=2, weighting="uniform", solver=solver), rounds=100))
    for g in (0, 1):
        expected = np.linalg.solve(q.A[group == g].mean(0), q.b[group == g].mean(0))
        np.testing.assert_allclose(ours[group == g], np.tile(expected, (4, 1)), atol=1e-8)


def test_ifca_with_one_cluster_is_fedavg_and_an_empty_one_stays() -> None:
    fedavg = play(st.FedAvg(solver=SGD)).run.server["w"]
    torch.testing.assert_close(play(st.IFCA(k=1, solver=SGD)).run.server["w"][0], fedavg)
    method = st.IFCA(k=2)
    server = {"w": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
    sent = {"w": torch.tensor([[0.0, 0.0], [2.0, 2.0]]), "s": torch.tensor([[1.0, 0.0], [1.0, 0.0]])}
    after = method.server(server, torch.tensor([0, 1]), sent, torch.tensor([0.5, 0.5]), 0)["w"]
    assert after.tolist() == [[1.0, 1.0], [3.0, 4.0]]


# --- fine-tuning with early stopping, Ditto around others ------------------------------------------------------------


def test_early_stopping_keeps_the_best_epoch_on_validation() -> None:
    local = stack_of(ragged(), layers(5, 6, 3))
    start, epochs = random_models(local, 7), 12
    early = st.Early(lr=0.3, epochs=epochs, patience=3, batch=7)
    ours = early.minimise(local, start, Free(), stream=1)
    theta, trail = start, [start]
    for e in range(epochs):
        theta = st.SGD(lr=0.3, batch=7).minimise(local, theta, Free(), stream=1 + 1000 * e)
        trail.append(theta)
    losses = torch.stack([local.validation(t)[1] for t in trail])  # [epochs + 1, c]
    kept = set()
    for i in range(7):
        best = 0
        for e in range(1, epochs + 1):
            if losses[e, i] < losses[best, i]:
                best = e
            elif e - best >= 3:
                break
        torch.testing.assert_close(ours[i], trail[best][i])
        kept.add(best)
    assert len(kept) > 2  # clients did stop at different epochs


def test_validation_loss_is_plain_pytorch_s_and_nan_without_samples() -> None:
    parts = [
        {"train": (np.ones((3, 2)), np.array([0, 1, 0])), "validation": (np.eye(2), np.array([0, 1]))},
        {"train": (np.ones((2, 2)), np.array([0, 1]))},
    ]
    local = stack_of(st.Clients.from_parts(parts, 2), layers(2, 2))
    theta = random_models(local)
    found = local.validation(theta)[1]
    W, b = theta[0, :4].reshape(2, 2), theta[0, 4:]
    expected = nn.functional.cross_entropy(torch.eye(2, dtype=torch.float64) @ W.T + b, torch.tensor([0, 1]))
    torch.testing.assert_close(found[0], expected)
    assert bool(torch.isnan(found[1]))


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


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "model", "says"),
    [
        (st.LGFedAvg(), layers(5, 3), r"LGFedAvg splits.*1 layer and.*Use a deeper model"),
        (st.FedPer(), layers(5, 3), r"FedPer splits.*1 layer and"),
        (st.FedRep(head=2), layers(5, 6, 3), r"FedRep splits.*2 layers and its head takes 2.*smaller head"),
        (st.FedPer(head=0), layers(5, 6, 3), "at least 1 layer"),
        (st.MOCHA(), layers(5, 6, 3), r"MOCHA is for convex.*cross-entropy loss on another model.*Use such a model"),
        (st.Ditto(global_method=st.LocalOnly()), layers(5, 3), "must train a global model.*LocalOnly"),
        (st.Ditto(global_method=st.LpProj(d_sub=2)), layers(5, 3), "must train a global model.*LpProj"),
        (st.Ditto(global_method=st.IFCA()), layers(5, 3), "must train a global model.*IFCA"),
    ],
)
def test_a_method_whose_assumption_the_task_breaks_is_refused_before_the_first_round(
    method: Method, model: nn.Module, says: str
) -> None:
    with pytest.raises(st.SartorError, match=says):
        play(method, model=model)


def test_skl_needs_class_probabilities() -> None:
    with pytest.raises(st.SartorError, match=r"needs cross-entropy; got hinge loss.*Use ewc or ditto"):
        play(st.SKL(), model=layers(5, 1), clients=two_sided())


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: st.APFL(alpha=1.5), r"alpha in \[0, 1\]; got 1.5"),
        (lambda: st.L2GD(p=1.0), "0 < p < 1; got 1.0"),
        (lambda: st.L2GD(solver=EXACT), "use the sgd solver"),
        (lambda: st.Mapper(lambdas=(0.5, 2.0)), r"lambdas in \[0, 1\]"),
        (lambda: st.SCAFFOLD(option="II", solver=SGD), "option II needs sgd without momentum"),
        (lambda: st.QFFL(solver=EXACT), "has no lr; give L"),
        (lambda: st.QFFL(q=-1.0), "q >= 0; got -1.0"),
        (lambda: st.FedMGDA(epsilon=2.0), r"epsilon in \[0, 1\]; got 2.0"),
        (lambda: st.IFCA(k=0), "k >= 1 clusters; got 0"),
        (lambda: st.RSA(p=0.5), "p >= 1"),
        (lambda: st.TERM(t=float("nan")), "finite t"),
        (lambda: st.MOCHA(lam1=0.0), "lam1 > 0; got 0.0"),
        (lambda: st.Early(patience=0), "patience >= 1; got 0"),
        (lambda: st.Ditto(weighting="size", global_method=st.FedAvg()), "give them to that one"),
    ],
)
def test_settings_without_meaning_are_refused(make: Any, says: str) -> None:
    with pytest.raises(st.SartorError, match=says):
        make()


def test_quadratic_coupling_with_a_weight_for_each_coordinate() -> None:
    """EWC's: value, slope and normal equations agree."""
    rng = np.random.default_rng(0)
    lam, anchor, theta = (torch.as_tensor(np.abs(rng.normal(size=(3, 4)))) for _ in range(3))
    coupling = Quadratic(lam, anchor)
    x = theta.clone().requires_grad_()
    (expected,) = torch.autograd.grad(coupling.value(x).sum(), x)
    A, b = coupling.normal_terms(theta)
    torch.testing.assert_close((A @ theta[..., None])[..., 0] - b, expected)
    pulled = theta.clone()
    coupling.pull_(pulled, 0.1)
    torch.testing.assert_close(pulled, theta - 0.1 * expected)


def test_blocks_name_every_parameter() -> None:
    task = ModelTask(layers(5, 6, 3))
    assert {k: (v.start, v.stop) for k, v in task.blocks.items()} == {
        "1.weight": (0, 30),
        "1.bias": (30, 36),
        "3.weight": (36, 54),
        "3.bias": (54, 57),
    }
