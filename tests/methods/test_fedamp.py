"""FedAMP and HeurFedAMP: stationary points, and weights."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch
from federations import quadratics
from method_runs import EXACT, shared

import sartor as st
from sartor.solvers import Solver


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


def test_heurfedamp_weights_follow_equations_10_and_11() -> None:
    rng = np.random.default_rng(0)
    W = rng.normal(size=(5, 8))
    ids, G = torch.tensor([1, 4]), torch.as_tensor(W @ W.T)
    xi = st.HeurFedAMP(sigma=3.0, self_weight=0.3).weights(G[ids], G.diagonal(), ids, 3.0, 0.3).numpy()
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
    sigma = method.scale(float(G.diagonal().sum()), float(G.sum()), 6)
    xi = method.weights(G, G.diagonal(), torch.arange(6), sigma, method.self_weight)  # type: ignore[arg-type]
    torch.testing.assert_close(xi.sum(1), torch.ones(6, dtype=torch.float64))
    assert float(xi.min()) >= 0 and bool(torch.isfinite(xi).all())


def test_fedamp_whose_weights_leave_the_simplex_is_refused() -> None:
    with pytest.raises(st.SartorError, match=r"leave the simplex.*take alpha <="):
        st.FedAMP(sigma=1.0, alpha=1.0).weights(torch.zeros(4, 4), torch.zeros(4), torch.arange(4), 1.0, 0.8)


@pytest.mark.parametrize("kind", ["exp", "sqrt", "scad", "mcp"])
def test_fedamp_s_reach_is_measured_by_the_distances_between_models(kind: str) -> None:
    """Models that are a hundred times as far apart attend to each other as before; σ is what pairwise distances say."""
    W = np.random.default_rng(2).normal(size=(6, 9))
    pairs = [((W[i] - W[j]) ** 2).sum() for i in range(6) for j in range(i)]
    method, found = st.FedAMP(attention=kind, reach=0.5), []
    for far in (1.0, 100.0):
        G = torch.as_tensor(far**2 * W @ W.T)
        sigma = method.scale(float(G.diagonal().sum()), float(G.sum()), 6)
        expected = 0.5 * far**2 * np.mean(pairs)
        np.testing.assert_allclose(sigma, expected**0.5 if kind == "sqrt" else expected, rtol=1e-10)
        found.append(method.weights(G, G.diagonal(), torch.arange(6), sigma, 0.8))
    torch.testing.assert_close(found[0], found[1])
    assert float(found[0].var()) > 0


def test_fedamp_takes_one_unit_for_sigma() -> None:
    assert st.FedAMP().reach == 1 and st.FedAMP().sigma is None
    assert st.FedAMP(sigma=3.0).reach is None
    assert st.FedAMP(alpha=0.1).sigma == st.HeurFedAMP().sigma == 10
    with pytest.raises(st.SartorError, match=r"takes reach, or sigma itself, not both; got 1.0 and 2.0"):
        st.FedAMP(reach=1.0, sigma=2.0)
    with pytest.raises(st.SartorError, match="with alpha takes sigma, not reach"):
        st.FedAMP(reach=1.0, alpha=0.1)
    with pytest.raises(st.SartorError, match="with cosine attention takes sigma, not reach"):
        st.HeurFedAMP(reach=1.0)


# --- a self weight and a β for each client (Algorithm 2) --------------------------------------------------------------


@pytest.mark.parametrize("attention", ["cosine", "exp"])
def test_every_client_may_have_its_own_self_weight_and_beta(attention: str) -> None:
    """Algorithm 2 by NumPy, line by line: (10), (11) with τ_i, (5) with β_k,i, for clients of different sizes."""
    q, sigma = quadratics(), 3.0
    own, beta = np.linspace(0.0, 0.9, q.m), np.geomspace(0.1, 20, q.m)
    method = st.FedAMP(
        attention=attention, sigma=sigma, self_weight=tuple(own), beta=tuple(beta), beta_decay=0.5, beta_every=2,
        solver=EXACT,
    )  # fmt: skip
    result = q.fit(method, rounds=5)
    W = np.tile(result.run.problem.start.numpy(), (q.m, 1))
    for k in range(5):
        U = np.empty_like(W)
        for i in range(q.m):
            others = [j for j in range(q.m) if j != i]
            if attention == "cosine":
                norms = np.linalg.norm(W, axis=1)
                s = np.exp([sigma * W[i] @ W[j] / (norms[i] * norms[j]) for j in others])
            else:
                s = np.exp([-((W[i] - W[j]) ** 2).sum() / sigma for j in others])
            tau = 1 - own[i]
            U[i] = (1 - tau) * W[i] + tau * (s @ W[others]) / s.sum()
        b = beta * 0.5 ** (k // 2)
        W = np.stack([np.linalg.solve(q.A[i] + np.eye(q.d) / b[i], q.b[i] + U[i] / b[i]) for i in range(q.m)])
    np.testing.assert_allclose(shared(result), W, atol=1e-9)
    same = st.FedAMP(
        attention=attention, sigma=sigma, self_weight=float(own.mean()), beta=float(beta.mean()), beta_decay=0.5,
        beta_every=2, solver=EXACT,
    )  # fmt: skip
    assert np.abs(shared(q.fit(same, rounds=5)) - W).max() > 1e-2


@pytest.mark.parametrize("solver", [EXACT, st.SGD(lr=0.05, steps=5, batch=5)], ids=["exact", "sgd"])
@pytest.mark.parametrize("among", ["all", "cohort"])
def test_equal_values_for_all_clients_are_the_one_value(among: str, solver: Solver) -> None:
    """The same bits, with cohorts of clients that come in another order than their ids."""
    q = quadratics()

    def W(**settings: object) -> np.ndarray:
        return shared(q.fit(st.HeurFedAMP(among=among, solver=solver, **settings), rounds=4, cohort=3))

    one = W(self_weight=0.3, beta=2.0)
    np.testing.assert_array_equal(W(self_weight=(0.3,) * q.m, beta=2.0), one)
    np.testing.assert_array_equal(W(self_weight=0.3, beta=(2.0,) * q.m), one)
    other = W(self_weight=(0.3,) * (q.m - 1) + (0.9,), beta=2.0)
    assert not np.array_equal(other, one)  # one client's own value is enough to tell


def test_a_cohort_s_self_weights_are_those_of_its_clients() -> None:
    """Clients 2 and 4 of five, whose places among the cohort are 0 and 1."""
    method = st.HeurFedAMP(among="cohort", self_weight=(0.1, 0.2, 0.3, 0.4, 0.5))
    W, ids = torch.as_tensor(np.random.default_rng(0).normal(size=(5, 3))), torch.tensor([2, 4])
    U = method.downlink({"w": W}, ids, 1)["u"]
    torch.testing.assert_close(U, torch.stack([0.3 * W[2] + 0.7 * W[4], 0.5 * W[4] + 0.5 * W[2]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_steps_know_each_client_s_own_beta(dtype: torch.dtype) -> None:
    """Two steps on all samples from u, the second of which feels 1/β_i."""
    q, lr = quadratics(), 0.1
    beta = tuple(np.geomspace(0.2, 20, q.m))
    result = q.fit(st.HeurFedAMP(beta=beta, solver=st.SGD(lr=lr, steps=2, batch=100)), rounds=1, dtype=dtype)
    u = result.run.problem.start.double().numpy()
    for w, A, b, one in zip(shared(result), q.A, q.b, beta, strict=True):
        first = u - lr * (A @ u - b)
        second = first - lr * (A @ first - b + (first - u) / one)
        np.testing.assert_allclose(w, second, atol=1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"self_weight": (0.5, 1.5)}, r"self_weight in \[0, 1\]; got 1.5"),
        ({"self_weight": (0.5, float("nan"))}, r"self_weight in \[0, 1\]; got nan"),
        ({"beta": (1.0, 0.0)}, "beta > 0; got 0.0"),
        ({"beta": (1.0, float("inf"))}, "beta > 0; got inf"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(settings: dict[str, tuple[float, ...]], says: str) -> None:
    with pytest.raises(st.SartorError, match=says):
        st.HeurFedAMP(**settings)


@pytest.mark.parametrize("values", [(), (0.5,), (0.5, 0.5)])
@pytest.mark.parametrize("name", ["self_weight", "beta"])
def test_a_list_that_does_not_fit_the_clients_is_refused(name: str, values: tuple[float, ...]) -> None:
    q = quadratics()
    with pytest.raises(
        st.SartorError, match=rf"one {name} for all, or one for each of the {q.m} clients; got {len(values)}"
    ):
        q.fit(st.HeurFedAMP(**{name: values}), rounds=1)


def test_the_theory_s_fedamp_has_one_beta() -> None:
    with pytest.raises(st.SartorError, match="takes one beta for all clients"):
        st.FedAMP(alpha=0.1, beta=(1.0, 2.0))
