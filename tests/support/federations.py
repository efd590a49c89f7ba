"""Small federations whose answers are known: quadratic ones with their normal equations, and ragged classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from groups import grouped
from torch import nn

import sartor as st
from sartor.core import Method
from sartor.run.result import Result
from sartor.testing import ragged, two_sided

__all__ = ["Quadratics", "quadratics", "ragged", "two_sided"]


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
            **grouped(**{"dtype": torch.float64, "evaluate_every": rounds, "diagnostics": False} | options),
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
