"""How evenly a quantity is spread over clients: numbers of the fairness literature, for values [n] of at least zero.

    Jain      (Σ x_i)² / (n Σ x_i²)          1/n (one client has all) ... 1 (all alike)
    Gini      Σ_i Σ_j |x_i − x_j| / (2 n Σ x_i)   0 (all alike) ... (n − 1)/n (one client has all)
    entropy   −Σ p_i log p_i, p_i = x_i / Σ x_j   0 (one client has all) ... log n (all alike), in nats

Where a value is negative (R² can be) or all are zero, none of them says anything and they are None.
"""

from __future__ import annotations

import numpy as np


def _sharable(values: np.ndarray) -> bool:
    return bool((values >= 0).all() and values.sum() > 0)


def jain(values: np.ndarray) -> float | None:
    """Jain's index: the squared cosine between the values and the even spread."""
    if not _sharable(values):
        return None
    x = values / values.max()  # the index does not know units, and squares of small losses would underflow
    return float(x.sum() ** 2 / (len(x) * (x**2).sum()))


def gini(values: np.ndarray) -> float | None:
    """Gini's coefficient, half the mean absolute difference in units of the mean."""
    if not _sharable(values):
        return None
    x, n = np.sort(values), len(values)
    return float(((2 * np.arange(1, n + 1) - n - 1) * x).sum() / (n * x.sum()))


def entropy(values: np.ndarray) -> float | None:
    """The entropy of the values' shares of their sum, in nats."""
    if not _sharable(values):
        return None
    p = values / values.sum()
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def lowest(values: np.ndarray, share: float = 0.1) -> float:
    """The mean of the lowest `share` of clients, at least one."""
    count = max(1, int(np.ceil(share * len(values))))
    return float(np.sort(values)[:count].mean())


def highest(values: np.ndarray, share: float = 0.1) -> float:
    """The mean of the highest `share` of clients, at least one."""
    return -lowest(-values, share)
