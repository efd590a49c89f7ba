"""IFCA: the groups, and their optima."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import Quadratics
from method_runs import FULL, SGD, personal, play

import sartor as st


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
