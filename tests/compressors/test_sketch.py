"""The count sketch: unbiased, and it finds heavy hitters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from compressor_codes import draws, unbiased

from sartor.compressors import (
    Sketch,
)


@pytest.mark.parametrize("rows", [1, 4, 5])
def test_the_count_sketch_is_unbiased(rows: int) -> None:
    """Over 10,000 keys; one row has the variance (‖x‖² − x_j²) / columns in every coordinate."""
    d = 12
    x = torch.from_numpy(np.random.default_rng(2).normal(size=(1, d)))
    sketch = Sketch(k=4 * rows, rows=rows)
    assert sketch.columns(d) == min(d, 4 * rows) // rows
    found = torch.cat([sketch.encode(x, {}, draws(r, 1))[0].value() for r in range(10_000)])
    unbiased(found, x[0])
    if rows == 1:
        squares = (found - x).square()
        expected = (x.square().sum() - x.square()) / 4
        wrong = (squares.mean(0) - expected).abs() / (squares.std(0) / 100)
        assert float(wrong.max()) < 5
    else:
        assert float((found - x).square().sum(1).mean()) <= sketch.omega(d) * float(x.square().sum())


def test_the_sketch_finds_heavy_hitters() -> None:
    """The few large coordinates of a vector are the largest estimates, and nearly right."""
    x = 1e-3 * torch.from_numpy(np.random.default_rng(3).normal(size=(1, 500)))
    x[0, [7, 300]] = torch.tensor([5.0, -4.0], dtype=x.dtype)
    found = Sketch(k=400, rows=5).encode(x, {}, draws(clients=1))[0].value()
    assert sorted(found[0].abs().topk(2).indices.tolist()) == [7, 300]
    torch.testing.assert_close(found[0, [7, 300]], x[0, [7, 300]], atol=0.05, rtol=0)
