"""How samples and labels are dealt out."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sartor.data.partitions.assignment import divide
from sartor.data.partitions.by_label import deal


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(2, 12), st.data())
def test_deal_gives_distinct_labels_evenly(clients: int, classes: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, classes))
    labels = deal(clients, k, np.arange(classes), np.random.default_rng(0))
    counts = np.bincount(labels.ravel(), minlength=classes)
    assert all(len(set(row)) == k for row in labels.tolist())
    assert counts.max() - counts.min() <= 1


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20), st.integers(0, 5), st.integers(0, 1000))
def test_divide(weights: list[float], floor: int, extra: int) -> None:
    total = floor * len(weights) + extra
    counts = divide(np.array(weights), total, floor)
    exact = floor + extra * np.array(weights) / sum(weights)
    assert counts.sum() == total
    assert counts.min() >= floor
    assert np.abs(counts - exact).max() < 1 + 1e-9
