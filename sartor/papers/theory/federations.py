"""Clients for the papers' linear problems, many federations at once (client r·m + i is client i of federation r)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ...data.clients import Clients
from ...seeds import stream
from ...tasks.task import Loss, ModelTask
from .bowls import Bowl
from .regression import Regression


def linear_task(d: int, loss: str | Loss = "squared") -> ModelTask:
    """A linear model with one output and squared error ½(xᵀθ − y)², or another loss, started at 0."""
    layer = nn.Linear(d, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(layer.weight)
    return ModelTask(nn.Sequential(nn.Flatten(), layer), loss)


def orthogonal_design(N: int, d: int, b: float, seed: int) -> np.ndarray:
    """X [N, d] with XᵀX = N b I."""
    basis: np.ndarray = np.linalg.qr(stream(seed, "design").standard_normal((N, d)))[0]
    scaled: np.ndarray = np.sqrt(N * b) * basis
    return scaled


def regression(p: Regression, replicas: int, seed: int, theta: np.ndarray | None = None) -> tuple[ModelTask, Clients]:
    """Linear regression with N noisy samples a client. `theta` [R, m, d]: true models that differ by federation.

    Test samples are without noise, Xθ_i at d orthogonal inputs, so the library's test loss is b/2 ‖θ − θ_i‖² exactly;
    what a noisy test set would add on average is σ²/2.
    """
    true = np.broadcast_to(p.theta if theta is None else theta, (replicas, p.m, p.d)).reshape(-1, p.d)
    X, test = orthogonal_design(p.N, p.d, p.b, seed), orthogonal_design(p.d, p.d, p.b, seed + 1)
    noise = stream(seed, "noise").standard_normal((len(true), p.N))
    y = np.concatenate([true @ X.T + p.sigma * noise, true @ test.T], axis=1)
    x = np.broadcast_to(np.concatenate([X, test]), (len(true), p.N + p.d, p.d))
    return linear_task(p.d), _clients(x, y, p.N)


def statistics(p: Regression, replicas: int, seed: int) -> tuple[Bowl, Clients]:
    """The same problem by its sufficient statistics: f_i = b/2 ‖θ − θ̂_i‖² + const with θ̂_i ~ N(θ_i, σ²/(bN) I)."""
    true = np.broadcast_to(p.theta, (replicas, p.m, p.d)).reshape(-1, 1, p.d)
    local = true + np.sqrt(p.s) * stream(seed, "noise").standard_normal(true.shape)
    return Bowl(p.d), _clients(np.concatenate([local, true], axis=1), np.full((len(true), 2), p.b), 1)


def bowls(centre: np.ndarray, steepness: np.ndarray, **shape: float | str) -> tuple[Bowl, Clients]:
    """f_i = a_i Σ_j φ(θ_j − c_ij) for centres [m, d] or, with samples, [m, n, d] and steepness a [m]."""
    x = centre[:, None] if centre.ndim == 2 else centre
    y = np.broadcast_to(steepness[:, None], x.shape[:2])
    return Bowl(x.shape[2], **shape), _clients(x, y, x.shape[1])  # type: ignore[arg-type]


def least_squares(X: np.ndarray, y: np.ndarray) -> tuple[ModelTask, Clients]:
    """f_i = 1/(2n) ‖X_iθ − y_i‖² for X [m, n, d], y [m, n]: quadratics of any shape."""
    return linear_task(X.shape[2]), _clients(X, y, X.shape[1])


def log_regression(X: np.ndarray, y: np.ndarray) -> tuple[ModelTask, Clients]:
    """The same with log(1 + t²) of each sample's t = xᵀθ − y: smooth, not convex, and of slope at most 1."""
    return linear_task(X.shape[2], _log_loss), _clients(X, y, X.shape[1])


def _log_loss(output: Tensor, target: Tensor) -> Tensor:
    return torch.log1p((output.reshape(target.shape) - target) ** 2)


def _clients(x: np.ndarray, y: np.ndarray, train: int) -> Clients:
    """Clients with equally many samples [c, n, d], [c, n]: the first `train` for training, the rest for testing."""
    c, n = y.shape
    first = n * np.arange(c)[:, None]
    bounds = first + np.array([0, train, train, n])
    rows = torch.from_numpy(np.array(x, dtype=np.float64).reshape(c * n, -1))
    targets = torch.from_numpy(np.array(y, dtype=np.float64).reshape(-1))
    return Clients(rows, targets, bounds, list(map(str, range(c))), None)
