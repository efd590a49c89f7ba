"""QSGD: unbiased, with the variance of its lemma."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from compressor_codes import draws, unbiased

from sartor.compressors import (
    QSGD,
    Draws,
)
from sartor.compressors.qsgd import Levels


@pytest.mark.parametrize("settings", [{"s": 1}, {"s": 4}, {"s": 3, "bucket": 5}])
def test_qsgd_is_unbiased_with_the_variance_of_its_lemma(settings: dict[str, int]) -> None:
    n, d = 10_000, 17
    x = torch.from_numpy(np.random.default_rng(1).normal(size=d))
    code, _ = QSGD(**settings).encode(x.expand(n, -1), {}, draws(3, n))
    found = code.value()
    unbiased(found, x)
    assert float((found - x).square().sum(1).mean()) <= QSGD(**settings).omega(d) * float(x.square().sum())


def test_qsgd_by_hand() -> None:
    """‖(3, −4)‖ = 5: with s = 5 both are on the grid; with s = 1 they are 0 or ±5."""
    x = torch.tensor([[3.0, -4.0]], dtype=torch.float64)
    code, _ = QSGD(s=5).encode(x, {}, draws(clients=1))
    assert isinstance(code, Levels)
    assert code.norms.tolist() == [[5.0]] and code.q.tolist() == [[3.0, -4.0]] and torch.equal(code.value(), x)
    found = QSGD(s=1).encode(x.expand(400, -1), {}, draws(clients=400))[0].value()
    assert set(found[:, 0].tolist()) == {0.0, 5.0} and set(found[:, 1].tolist()) == {0.0, -5.0}


def test_each_client_draws_its_own_and_the_same_whoever_is_beside_it() -> None:
    x = torch.full((4, 50), 0.3, dtype=torch.float64)
    all_four = QSGD().encode(x, {}, draws(clients=4))[0].value()
    assert not torch.equal(all_four[0], all_four[1])
    alone = QSGD().encode(x[:1], {}, Draws(0, "test", 0, np.array([2])))[0].value()
    assert torch.equal(alone[0], all_four[2])
