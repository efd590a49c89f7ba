"""Partitions by label."""

from __future__ import annotations

import numpy as np
import pytest
from dealt import Y, assign

from sartor.data import partitions as p


@pytest.mark.parametrize("k", [1, 2, 5, 10])
@pytest.mark.parametrize("seed", range(5))
def test_labels_are_exactly_k(k: int, seed: int) -> None:
    out = assign(p.Labels(k), seed=seed)
    assert [len(np.unique(Y[r])) for r in out.rows] == [k] * 10
    assert [len(r) for r in out.rows] == [200] * 10


def test_labels_hold_the_minimum_by_another_deal() -> None:
    """Classes of 30 and 2: with one unlucky pair (2 + 2 samples) the minimum fails, and a lucky deal exists."""
    y = np.repeat(np.arange(4), [30, 30, 2, 2])
    for seed in range(20):
        out = p.Labels(2).assign(y, 4, None, 2, seed, 10)
        assert [len(r) for r in out.rows] == [32, 32]


def test_shards_are_contiguous_in_label_and_of_one_size() -> None:
    out = assign(p.Shards(2))
    assert all(len(r) == 200 and len(np.unique(Y[r])) <= 2 for r in out.rows)


def test_dirichlet_small_beta_is_more_skewed() -> None:
    def top(beta: float) -> float:
        rows = assign(p.Dirichlet(beta)).rows
        return float(np.mean([np.bincount(Y[r]).max() / len(r) for r in rows]))

    assert top(100.0) < 0.2 < 0.4 < top(0.1)
