"""Partitions as the authors' code deals samples out: clients share samples, or take what the paper does not say."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...data import Dirichlet, Hybrid, Labels, Noise, PowerLaw, Quantity
from ...data.partitions.assignment import Assignment, room
from ...data.partitions.by_label import present
from ...seeds import stream


@dataclass(frozen=True)
class FlameLabels(Labels):
    """FLAME's draw of k labels: each class is cut into ceil(k m / C) shards, all are shuffled, and each client takes k
    in turn. It may meet a label twice, and some shards may be left over."""

    def draw(self, y: np.ndarray, occurring: np.ndarray, m: int, rng: np.random.Generator) -> list[np.ndarray]:
        each = math.ceil(self.k * m / len(occurring))
        shards = [s for c in occurring for s in np.array_split(rng.permutation(np.flatnonzero(y == c)), each)]
        order = rng.permutation(len(shards))
        return [np.concatenate([shards[s] for s in order[i * self.k : (i + 1) * self.k]]) for i in range(m)]


@dataclass(frozen=True)
class FlameDirichlet(Dirichlet):
    """FLAME's Dirichlet skew: client i draws int(p_i n_c) samples of class c independently of the others."""

    overlap = True

    def counts(self, shares: np.ndarray, members: list[np.ndarray]) -> np.ndarray:
        return np.array([(p * len(r)).astype(np.int64) for p, r in zip(shares, members, strict=True)])

    def draw(self, members: list[np.ndarray], counts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
        return [
            np.concatenate([rng.choice(r, k, replace=False) for r, k in zip(members, column, strict=True)])
            for column in counts.T
        ]


@dataclass(frozen=True)
class FlameQuantity(Quantity):
    """FLAME's quantity skew: each client draws max(minimum, int(p_i n)) samples from all data, independently of the
    others (there minimum = 100)."""

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """Draw the sizes, then samples at random."""
        m = room("FlameQuantity", len(y), clients, minimum, overlap=True)
        rng = stream(seed, "partition/quantity")
        sizes = np.maximum(minimum, (rng.dirichlet(np.full(m, self.beta)) * len(y)).astype(np.int64))
        return Assignment([rng.choice(len(y), int(size), replace=False) for size in sizes], overlap=True)


@dataclass(frozen=True)
class FlameHybrid(Hybrid):
    """FLAME's hybrid skew: both halves draw from all data, as FlameLabels and FlameQuantity do."""

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """Label skew for the first half, quantity skew for the others."""
        present("FlameHybrid", y, self.labels, classes)
        m = room("FlameHybrid", len(y), clients, minimum, overlap=True)
        first = self.first_half(m)
        left = FlameLabels(self.labels).assign(y, classes, None, first, seed, minimum)
        right = FlameQuantity(self.beta).assign(y, classes, None, m - first, seed, minimum)
        return Assignment([*left.rows, *right.rows], overlap=True)


@dataclass(frozen=True)
class FlameNoise(Noise):
    """FLAME's quality skew: client i of m, i = 0..m−1, gets noise of standard deviation sigma · i/m."""

    def deviations(self, m: int) -> np.ndarray:
        levels: np.ndarray = self.sigma * np.arange(m) / m
        return levels


@dataclass(frozen=True)
class PFedMePowerLaw(PowerLaw):
    """pFedMe's clients: as many samples of a class as in PowerLaw, but all take the class's first ones.

    Clients that share a label share images, and most test samples of one client are training samples of another.
    """

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """The sizes of PowerLaw, the first samples of each class."""
        apart = super().assign(y, classes, keys, clients, seed, minimum).rows
        sizes = [np.unique(y[r], return_counts=True) for r in apart]
        rows = [np.concatenate([np.flatnonzero(y == c)[:n] for c, n in zip(*held, strict=True)]) for held in sizes]
        return Assignment(rows, overlap=True)
