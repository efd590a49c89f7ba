"""Clients whose linear models have intercepts and slopes of their own, and what a method makes of them."""

from __future__ import annotations

import numpy as np

import sartor as st
from sartor.models import layers
from sartor.run.recipe import Execution
from sartor.run.result import Result

DOUBLE = Execution(dtype="float64")


def villages(m: int = 12, classes: int | None = None, seed: int = 0, slopes: float = 0.5) -> st.Clients:
    """Linear models with intercepts and slopes that differ between clients of 15 to 60 samples."""
    rng, parts = np.random.default_rng(seed), []
    common = np.array([1.0, -2.0, 0.5])
    for _ in range(m):
        own, level = common + slopes * rng.normal(size=3), 1.5 * rng.normal()
        each = {}
        for part, n in (("train", int(rng.integers(15, 60))), ("validation", 5), ("test", 30)):
            x = rng.normal(size=(n, 3))
            z = x @ own + level
            y = z + 0.7 * rng.normal(size=n) if classes is None else (rng.random(n) < 1 / (1 + np.exp(-z))).astype(int)
            each[part] = (x, y)
        parts.append(each)
    return st.Clients.from_parts(parts, classes)


def train(clients: st.Clients, i: int) -> tuple[np.ndarray, np.ndarray]:
    rows = clients.rows(i, "train")
    return clients.x[rows].double().numpy(), clients.y[rows].double().numpy()


def played(method: st.Method, clients: st.Clients, rounds: int = 30) -> Result:
    outputs = 1 if clients.classes is None else clients.classes
    return st.fit(method, layers(3, outputs), clients, rounds, execution=DOUBLE)
