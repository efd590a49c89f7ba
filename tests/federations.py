"""Small federations whose answers are known: quadratic ones with their normal equations, and ragged classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import sartor as st
from sartor.core import Method
from sartor.result import Result


@dataclass
class Quadratics:
    """m clients with f_i(θ) = 1/(2 n_i) ‖X_i θ − y_i‖², so ∇f_i = A_i θ − b_i."""

    clients: st.Clients
    A: np.ndarray  # [m, d, d]
    b: np.ndarray  # [m, d]
    share: np.ndarray  # [m]

    @property
    def m(self) -> int:
        return len(self.b)

    @property
    def d(self) -> int:
        return self.b.shape[1]

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(self.d, 1, bias=False))

    def moreau(self, lam: float, alpha: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """FLAME eq. (135): w* and θ* of min Σ α_i (f_i(θ_i) + λ/2 ‖θ_i − w‖²)."""
        alpha = np.full(self.m, 1 / self.m) if alpha is None else alpha
        inverse = np.linalg.inv(self.A + lam * np.eye(self.d))
        left = np.eye(self.d) - lam * np.einsum("i,ijk->jk", alpha, inverse)
        w = np.linalg.solve(left, np.einsum("i,ijk,ik->j", alpha, inverse, self.b))
        return w, np.einsum("ijk,ik->ij", inverse, self.b + lam * w)

    def fit(self, method: Method, rounds: int, **options: Any) -> Result:
        return st.fit(
            method,
            self.model(),
            self.clients,
            rounds,
            dtype=torch.float64,
            **{"evaluate_every": rounds, "diagnose": False} | options,
        )


def quadratics(m: int = 6, d: int = 4, seed: int = 0, low: int = 8, high: int = 30) -> Quadratics:
    rng = np.random.default_rng(seed)
    parts, A, b = [], [], []
    for _ in range(m):
        n = int(rng.integers(low, high))
        X = rng.normal(size=(n, d)) * rng.uniform(0.5, 1.5, size=d)
        y = X @ rng.normal(size=d) + 0.3 * rng.normal(size=n)
        test = rng.normal(size=(3, d))
        parts.append({"train": (X, y), "validation": (test, test[:, 0]), "test": (test, test[:, 0])})
        A.append(X.T @ X / n)
        b.append(X.T @ y / n)
    count = np.array([len(p["train"][1]) for p in parts])
    return Quadratics(st.Clients.from_parts(parts), np.array(A), np.array(b), count / count.sum())


def ragged(m: int = 7, seed: int = 0, classes: int = 3, features: int = 5) -> st.Clients:
    """Clients of very unequal size: one sample, fewer than a batch, one class only, no test part."""
    rng = np.random.default_rng(seed)
    sizes = [1, 3, 9, 17, 24, 40, 57, 20, 33][:m]
    parts = []
    for i, n in enumerate(sizes):
        centre = rng.normal(size=(classes, features))

        def draw(k: int, centre: np.ndarray = centre, i: int = i) -> tuple[np.ndarray, np.ndarray]:
            y = rng.integers(classes, size=k) if i != 2 else np.zeros(k, dtype=np.int64)
            return centre[y] + 0.5 * rng.normal(size=(k, features)), y

        part = {"train": draw(n), "validation": draw(4), "test": draw(6)}
        if i == 3:
            del part["test"]
        parts.append(part)
    return st.Clients.from_parts(parts, classes)


def two_sided(m: int = 7, seed: int = 0, features: int = 5) -> st.Clients:
    """The sizes of `ragged` with targets −1/+1, as a linear support vector machine takes them."""
    rng = np.random.default_rng(seed)
    parts, common = [], rng.normal(size=features)
    for n in [1, 3, 9, 17, 24, 40, 57, 20, 33][:m]:
        own = common + 0.5 * rng.normal(size=features)

        def draw(k: int, own: np.ndarray = own) -> tuple[np.ndarray, np.ndarray]:
            x = rng.normal(size=(k, features))
            return x, np.sign(x @ own + 0.3 * rng.normal(size=k))

        parts.append({"train": draw(n), "validation": draw(4), "test": draw(6)})
    return st.Clients.from_parts(parts, 2)
