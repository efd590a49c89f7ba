"""Rounding to grids and to half precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from compressor_codes import FLOATS, draws, numbers

from sartor.compressors import (
    CommonGrid,
    Compressor,
    Float16,
    Int4,
    Int8,
)


@pytest.mark.parametrize(("compressor", "levels"), [(Int8(), 127), (Int4(), 7)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_grids_err_by_half_a_step(compressor: Compressor, levels: int, dtype: torch.dtype) -> None:
    x = numbers(400, dtype)
    found = compressor.encode(x, {}, draws())[0].value()
    s = x.abs().amax(1, keepdim=True) / levels
    error = (found - x).abs()
    assert bool((error <= s / 2 * (1 + 400 * torch.finfo(dtype).eps)).all())
    assert float((error / s)[:-1].max()) > 0.45  # and the bound is nearly met
    assert bool((error <= x.abs()).all())  # never worse than sending nothing: a contraction
    assert torch.equal(found[-1], x[-1])  # 0


def test_a_grid_keeps_its_own_points() -> None:
    x = torch.tensor([[-7.0, -3.0, 0.0, 1.0, 7.0]])
    assert torch.equal(Int4().encode(x, {}, draws(clients=1))[0].value(), x)
    y = torch.arange(-127.0, 128.0)[None] / 4
    assert torch.equal(Int8().encode(y, {}, draws(clients=1))[0].value(), y)


def test_a_common_grid_errs_by_half_a_step_up_to_its_end() -> None:
    x = numbers(400)
    for grid in (CommonGrid(), CommonGrid(step=0.01, bits=32)):
        end = grid.step * (2 ** (grid.bits - 1) - 1)
        found = grid.encode(x, {}, draws())[0].value()
        within = x.abs() <= end
        assert bool(((found - x).abs()[within] <= grid.step / 2 * (1 + 1e-9)).all())
        assert bool((found[~within].abs() == end).all())
        assert bool(((found - x).abs() <= x.abs()).all())
    ends = CommonGrid(step=0.5).encode(torch.tensor([[1e9, -1e9, 0.75]]), {}, draws(clients=1))[0].value()
    assert ends.tolist() == [[16383.5, -16383.5, 1.0]]  # 1.5 steps: to the even one


def test_float16_is_exact_on_what_it_can_represent() -> None:
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    x = torch.from_numpy(every[np.isfinite(every)].astype(np.float64))[None]
    assert torch.equal(Float16().encode(x, {}, draws(clients=1))[0].value(), x)
    large = torch.tensor([[1e6, -1e300, 65504.0]], dtype=torch.float64)
    assert Float16().encode(large, {}, draws(clients=1))[0].value().tolist() == [[65504.0, -65504.0, 65504.0]]
