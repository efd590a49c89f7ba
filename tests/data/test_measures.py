"""The measures of skew on numbers small enough to check by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from sartor.data import Clients, describe, from_arrays, measure
from sartor.data.measures import emd, entropy
from sartor.judge import gini


def make(*labels: list[int], classes: int | None = 4, dtype: torch.dtype = torch.int64) -> Clients:
    ends = np.cumsum([len(rows) for rows in labels])
    bounds = np.array([[end - len(rows), end - 1, end - 1, end] for end, rows in zip(ends, labels, strict=True)])
    y = torch.tensor([c for rows in labels for c in rows], dtype=dtype)
    return Clients(torch.zeros(len(y), 1), y, bounds, [str(i) for i in range(len(labels))], classes)


@pytest.mark.parametrize(
    ("sizes", "value"), [([5, 5, 5], 0.0), ([0, 0, 0, 8], 0.75), ([1, 3], 0.25), ([6, 1, 2], 10 / 27)]
)
def test_gini(sizes: list[int], value: float) -> None:
    pairs = sum(abs(a - b) for a in sizes for b in sizes) / (2 * len(sizes) * sum(sizes))
    assert gini(np.array(sizes)) == pytest.approx(value) == pytest.approx(pairs)


def test_entropy_and_emd_by_hand() -> None:
    shares = np.array([[1.0, 0, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0, 0]])
    np.testing.assert_allclose(entropy(shares), [0, 1, 0.5])
    # Sizes 1, 1, 2: the common shares are (0.5625, 0.3125, 0.0625, 0.0625).
    np.testing.assert_allclose(emd(shares, np.array([1, 1, 2])), [0.875, 0.75, 0.375])
    assert entropy(np.array([[1.0]])).tolist() == [0.0]


def test_measure_two_opposite_clients() -> None:
    """One client has only label 0, the other 1 and 2: shares (1/3, 1/3, 1/3, 0) in common."""
    facts = measure(make([0, 0], [1, 2, 1, 2]))
    assert facts["clients"] == 2 and facts["samples"] == 6
    assert (facts["size_min"], facts["size_median"], facts["size_max"]) == (2, 3.0, 4)
    assert facts["size_gini"] == pytest.approx(1 / 6)
    assert facts["label_entropy_mean"] == pytest.approx(math.log(2) / math.log(4) / 2)
    assert facts["labels_per_client"] == 1.5
    assert facts["emd_max"] == pytest.approx(4 / 3)
    assert facts["emd_mean"] == pytest.approx((4 / 3 + 2 / 3) / 2)


def test_signs_are_classes_and_regression_has_sizes_only() -> None:
    signs = measure(make([-1, -1], [1, 1], classes=2, dtype=torch.float32))
    assert signs["emd_mean"] == pytest.approx(1.0)
    plain = measure(make([3, 4], [5, 6], classes=None, dtype=torch.float32))
    assert plain["samples"] == 4 and "emd_mean" not in plain


def test_describe_and_json() -> None:
    data = from_arrays(np.zeros((100, 2)), np.tile(np.arange(5), 20), name="toy")
    about = data.split("authors.flame-quantity", clients=4).about
    assert json.loads(json.dumps(about)) == about
    line = describe(about)
    assert line.startswith("toy: ") and "at 4 clients by authors.flame-quantity(beta=0.5)" in line
    assert line.endswith("clients share samples.") and "\n" not in line and "EMD" in line
    assert "EMD" not in describe(from_arrays(np.zeros((100, 2)), np.linspace(0, 1, 100)).split("iid").about)
