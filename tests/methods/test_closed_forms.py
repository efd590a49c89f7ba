"""Every personal method reaches its closed form on federated linear regression, to 1e-8 in float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from federations import Quadratics, quadratics
from subsets import first

import sartor as st
from sartor.client_table import Rows

EXACT = st.Exact()
SEEDS = [0, 1, 2]


def shared(result: st.Result) -> np.ndarray:
    w = result.run.server["w"]
    return (w.whole() if isinstance(w, Rows) else w).numpy()


def state(result: st.Result, name: str) -> np.ndarray:
    return result.run.engine.save()[f"state/{name}"].numpy()


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


@pytest.mark.parametrize("seed", SEEDS)
def test_pfedme_reaches_the_minimum_of_the_mean_envelope(seed: int) -> None:
    q = quadratics(seed=seed)
    result = q.fit(st.PFedMe(lam=0.8, eta=1.0, R=1, solver=EXACT), rounds=400)
    w, theta = q.moreau(0.8)
    np.testing.assert_allclose(shared(result), w, atol=1e-8)
    np.testing.assert_allclose(state(result, "theta"), theta, atol=1e-8)


def test_pfedme_with_local_rounds_and_beta_equals_an_executed_oracle() -> None:
    q, lam, eta, beta, R = quadratics(), 2.0, 0.3, 1.5, 3
    result = q.fit(st.PFedMe(lam=lam, eta=eta, beta=beta, R=R, solver=EXACT), rounds=7)
    inverse = np.linalg.inv(q.A + lam * np.eye(q.d))
    w = result.run.problem.start.numpy()
    for _ in range(7):
        w_i = np.tile(w, (q.m, 1))
        for _ in range(R):
            theta = np.einsum("ijk,ik->ij", inverse, q.b + lam * w_i)
            w_i = w_i - eta * lam * (w_i - theta)
        w = (1 - beta) * w + beta * w_i.mean(0)
    np.testing.assert_allclose(shared(result), w, atol=1e-10)
    np.testing.assert_allclose(state(result, "theta"), theta, atol=1e-10)


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


def lp_proj_2_fixed_point(q: Quadratics, lam: float, P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    inverse = np.linalg.inv(q.A + lam * P.T @ P)
    left = np.eye(len(P)) - lam * np.mean(P @ inverse @ P.T, axis=0)
    w = np.linalg.solve(left, np.mean(np.einsum("kd,ide,ie->ik", P, inverse, q.b), axis=0))
    return w, np.einsum("ijk,ik->ij", inverse, q.b + lam * P.T @ w)


@pytest.mark.parametrize("projection", ["gaussian", "orthogonal"])
def test_lp_proj_2_reaches_its_fixed_point(projection: str) -> None:
    q, lam = quadratics(d=6), 0.9
    method = st.LpProj(p=2, lam=lam, eta=1.0, d_sub=3, projection=projection, projection_seed=5, solver=EXACT)
    result = q.fit(method, rounds=400)
    P = method.P(q.d).project(result.run.problem.start.new_tensor(np.eye(q.d))).numpy().T
    np.testing.assert_allclose(np.linalg.norm(P, axis=1), 1, atol=1e-12)
    w, x = lp_proj_2_fixed_point(q, lam, P)
    np.testing.assert_allclose(shared(result), w, atol=1e-8)
    np.testing.assert_allclose(state(result, "x"), x, atol=1e-8)


@pytest.mark.parametrize("cohort", [6, 2])
def test_flame_on_lp_proj_reaches_the_same_fixed_point(cohort: int) -> None:
    q, lam = quadratics(d=6), 0.9
    method = st.FlameLpProj(lam=lam, rho=0.4, d_sub=3, projection_seed=5, solver=EXACT)
    result = q.fit(method, rounds=2400 // cohort, cohort=cohort)
    P = method.P(q.d).project(result.run.problem.start.new_tensor(np.eye(q.d))).numpy().T
    w, x = lp_proj_2_fixed_point(q, lam, P)
    np.testing.assert_allclose(shared(result), w, atol=1e-8)
    np.testing.assert_allclose(state(result, "theta"), x, atol=1e-8)


def attention_slope(kind: str, s: float, t: np.ndarray) -> np.ndarray:
    """A'(t), written again from the definitions."""
    if kind == "exp":
        return np.exp(-t / s) / s
    if kind == "sqrt":
        return np.where(t <= s * s, 1 / (2 * s), 1 / (2 * np.sqrt(np.maximum(t, s * s))))
    if kind == "scad":
        return np.where(t <= s, 1.0, np.maximum(3.7 * s - t, 0) / (2.7 * s)) / s
    return np.maximum(1 - t / (3 * s), 0) / s


@pytest.mark.parametrize(("kind", "sigma"), [("exp", 4.0), ("sqrt", 1.5), ("scad", 3.0), ("mcp", 3.0)])
def test_fedamp_reaches_a_stationary_point_of_its_objective(kind: str, sigma: float) -> None:
    """∇F_i(w_i) + 2λ Σ_j A'(‖w_i − w_j‖²)(w_i − w_j) = 0 with λ = α/(2β); the paper's (4) drops the 2."""
    q, alpha, beta = quadratics(), 0.2, 0.5
    lam = alpha / (2 * beta)
    result = q.fit(st.FedAMP(attention=kind, sigma=sigma, alpha=alpha, beta=beta, solver=EXACT), rounds=500)

    def gradient(flat: np.ndarray) -> np.ndarray:
        W = flat.reshape(q.m, q.d)
        apart = W[:, None] - W[None]
        slope = attention_slope(kind, sigma, (apart**2).sum(-1))
        return (np.einsum("ijk,ik->ij", q.A, W) - q.b + 2 * lam * (slope[..., None] * apart).sum(1)).ravel()

    W = shared(result)
    assert np.abs(gradient(W.ravel())).max() < 1e-8
    alone = np.linalg.solve(q.A, q.b[..., None])[..., 0]
    found = scipy.optimize.root(gradient, alone.ravel(), tol=1e-13)
    assert found.success
    np.testing.assert_allclose(W, found.x.reshape(q.m, q.d), atol=1e-8)
    assert np.abs(W - alone).max() > 1e-3  # the clients did pull on each other


def test_local_training_reaches_each_client_s_own_optimum() -> None:
    q = quadratics()
    result = q.fit(st.LocalOnly(solver=EXACT), rounds=1)
    np.testing.assert_allclose(state(result, "theta"), np.linalg.solve(q.A, q.b[..., None])[..., 0], atol=1e-10)


def test_fedprox_equals_an_executed_oracle() -> None:
    q, mu = quadratics(), 0.7
    result = q.fit(st.FedProx(mu=mu, solver=EXACT), rounds=5)
    w = result.run.problem.start.numpy()
    for _ in range(5):
        w = q.share @ np.linalg.solve(q.A + mu * np.eye(q.d), (q.b + mu * w)[..., None])[..., 0]
    np.testing.assert_allclose(shared(result), w, atol=1e-10)
