"""FedAMP and HeurFedAMP: stationary points, and weights."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch
from federations import quadratics
from method_runs import EXACT, shared

import sartor as st


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
    xi = st.HeurFedAMP(sigma=3.0, self_weight=0.3).weights(G[ids], G.diagonal(), ids, 3.0).numpy()
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
    xi = method.weights(G, G.diagonal(), torch.arange(6), sigma)
    torch.testing.assert_close(xi.sum(1), torch.ones(6, dtype=torch.float64))
    assert float(xi.min()) >= 0 and bool(torch.isfinite(xi).all())


def test_fedamp_whose_weights_leave_the_simplex_is_refused() -> None:
    with pytest.raises(st.SartorError, match=r"leave the simplex.*take alpha <="):
        st.FedAMP(sigma=1.0, alpha=1.0).weights(torch.zeros(4, 4), torch.zeros(4), torch.arange(4), 1.0)


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
        found.append(method.weights(G, G.diagonal(), torch.arange(6), sigma))
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
