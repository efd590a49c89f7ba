"""Labels to deal out, and partitions of them."""

from __future__ import annotations

import numpy as np

from sartor.data import partitions as p

Y = np.repeat(np.arange(10), 200)[np.random.default_rng(7).permutation(2000)]


KEYS = np.array([f"writer {i}" for i in np.random.default_rng(8).integers(0, 12, 2000)])


def assign(partition: p.Partition, clients: int | None = 10, seed: int = 0, minimum: int = 10, y=Y, classes=10):
    return partition.assign(y, classes, KEYS[: len(y)], clients, seed, minimum)
