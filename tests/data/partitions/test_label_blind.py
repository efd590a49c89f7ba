"""Partitions that do not look at labels."""

from __future__ import annotations

import numpy as np
import pytest
from dealt import KEYS, assign

from sartor.data import partitions as p
from sartor.errors import SartorError


def test_quantity_sizes_and_common_labels() -> None:
    y = np.tile(np.arange(10), 7000)
    out = p.Quantity(0.5).assign(y, 10, None, 10, 0, 100)
    sizes = np.array([len(r) for r in out.rows])
    assert sizes.sum() == 70_000 and sizes.min() >= 100 and 3 * np.median(sizes) < sizes.max()
    largest = out.rows[int(sizes.argmax())]
    assert np.abs(np.bincount(y[largest]) / len(largest) - 0.1).max() < 0.01


def test_noise_levels() -> None:
    stated = assign(p.Noise(0.4), clients=4).noise
    assert stated is not None
    np.testing.assert_allclose(stated**2, [0.1, 0.2, 0.3, 0.4])


def test_natural_takes_all_keys_in_order() -> None:
    out = assign(p.Natural(), clients=None)
    assert out.names == [f"writer {i}" for i in range(12)]
    for name, rows in zip(out.names, out.rows, strict=True):
        np.testing.assert_array_equal(rows, np.flatnonzero(name == KEYS))


def test_natural_leaves_small_keys_out_and_says_so() -> None:
    keys = np.repeat([3, 1, 2], [20, 5, 30])
    out = p.Natural().assign(np.zeros(55), None, keys, None, 0, 10)
    assert out.names == ["2", "3"] and [len(r) for r in out.rows] == [30, 20] and out.left_out == 1
    with pytest.raises(SartorError, match="3 clients asked for, but only 2 keys have at least 10"):
        p.Natural().assign(np.zeros(55), None, keys, 3, 0, 10)
    with pytest.raises(SartorError, match=r"none of the 3 keys has 31 samples .the most is 30."):
        p.Natural().assign(np.zeros(55), None, keys, None, 0, 31)
