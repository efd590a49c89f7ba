"""The synthetic data follow their definition."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.data import load
from sartor.errors import SartorError


def test_synthetic_follows_its_definition() -> None:
    data = load("synthetic", alpha=0, beta=0, clients=200, seed=1, cap=300)
    assert data.keys is not None and data.x.shape[1] == 60 and data.classes == 10
    sizes = np.unique(data.keys, return_counts=True)[1]
    assert len(sizes) == 200 and sizes.min() >= 250 and sizes.max() == 300 and (sizes % 5 == 0).all()
    within = np.mean([data.x[data.keys == f"client {k}"].var(axis=0) for k in range(50)], axis=0)
    np.testing.assert_allclose(within, np.arange(1, 61) ** -1.2, rtol=0.1)
    means = np.array([data.x[data.keys == f"client {k}"].mean(axis=0) for k in range(200)])
    assert means.mean() == pytest.approx(0, abs=0.05) and means.var() == pytest.approx(1, rel=0.05)  # v_k ~ N(0, 1)


@pytest.mark.parametrize(("as_std", "variance"), [(True, 16.0), (False, 4.0)])
def test_synthetic_beta_moves_the_data(as_std: bool, variance: float) -> None:
    data = load("synthetic(0, 4)", clients=400, cap=20, as_std=as_std)
    means = data.x.reshape(400, 20, 60).mean(axis=(1, 2))  # about B_k
    assert means.var() == pytest.approx(variance, rel=0.2)


def test_synthetic_alpha_has_no_effect() -> None:
    """u_k shifts all logits of a sample alike, so the label stays; beta does move the data."""
    one, two, three = (load(f"synthetic({ab})", clients=3, seed=5) for ab in ("0,0", "3,0", "0,3"))
    np.testing.assert_array_equal(one.x, two.x)
    np.testing.assert_array_equal(one.y, two.y)
    assert not np.allclose(one.x, three.x)


def test_synthetic_is_seeded_and_labels_are_linear() -> None:
    one, two, other = (load("synthetic", clients=5, seed=s) for s in (0, 0, 1))
    np.testing.assert_array_equal(one.x, two.x)
    assert len(one.x) != len(other.x) or not np.array_equal(one.x, other.x)
    for bad in ({"alpha": -1}, {"clients": 0}, {"beta": "x"}, {"cap": 0}, {"as_std": 3}):
        with pytest.raises(SartorError, match="synthetic needs"):
            load("synthetic", **bad)


def test_sizes_follow_the_power_law() -> None:
    data = load("synthetic", clients=100, dims=2, cap=None)
    assert data.keys is not None
    sizes = np.unique(data.keys, return_counts=True)[1]
    assert sizes.min() >= 250 and sizes.max() > 10 * np.median(sizes) and 300 < np.median(sizes) < 800
