"""Top-k: the largest coordinates."""

from __future__ import annotations

import numpy as np
import torch
from compressor_codes import draws, numbers

from sartor.compressors import (
    TopK,
)


def test_top_k_is_the_largest_coordinates() -> None:
    x = numbers(20)
    found = TopK(k=0.15).encode(x, {}, draws())[0].value().numpy()
    for row, wanted in zip(found, x.numpy(), strict=True):
        kept = np.sort(np.argsort(-np.abs(wanted), kind="stable")[:3])
        expected = np.zeros(20)
        expected[kept] = wanted[kept]
        assert row.tolist() == expected.tolist()
    assert torch.equal(TopK(k=1.0).encode(x, {}, draws())[0].value(), x)
