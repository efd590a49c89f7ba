"""LBGM: gradients that are recycled."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from compressor_codes import draws, numbers

from sartor.compressors import (
    HEADER,
    LBGM,
    lengths,
)


def test_lbgm_recycles_what_is_in_line_for_one_number() -> None:
    """Any multiple of the look-back gradient costs a scalar and is exact; what is at a right angle is sent whole."""
    g = numbers(50, torch.float32, seed=5)[:4]
    lbgm = LBGM(delta=0.0)
    code, memory = lbgm.encode(g, {"l": torch.zeros_like(g)}, draws(clients=4))
    assert lengths(code).tolist() == [HEADER + 200] * 4 and torch.equal(memory["l"], g)
    for factor in (1.0, -0.3, 1e-4, 250.0):
        again, kept = lbgm.encode(factor * g, memory, draws(clients=4))
        assert lengths(again).tolist() == [HEADER + 4] * 4 and torch.equal(kept["l"], g)
        torch.testing.assert_close(again.value(), factor * g, rtol=1e-5, atol=0)
    other = torch.from_numpy(np.random.default_rng(6).normal(size=(4, 50))).float()
    across = other - (other * g).sum(1, True) / (g * g).sum(1, True) * g
    code, memory = LBGM(delta=0.9).encode(across, memory, draws(clients=4))
    assert lengths(code).tolist() == [HEADER + 200] * 4 and torch.equal(memory["l"], across)


@pytest.mark.parametrize("angle", [0.1, 0.5, 1.0, 1.5])
def test_lbgm_errs_by_the_sine(angle: float) -> None:
    """At an angle α of the look-back gradient the error is sin²α of ‖g‖², or 0 where that is above δ."""
    l = torch.tensor([[2.0, 0.0, 0.0]], dtype=torch.float64)  # noqa: E741
    g = 3 * torch.tensor([[math.cos(angle), math.sin(angle), 0.0]], dtype=torch.float64)
    code, _ = LBGM(delta=0.5).encode(g, {"l": l}, draws(clients=1))
    error = float((code.value() - g).square().sum() / g.square().sum())
    sine = math.sin(angle) ** 2
    assert error == (pytest.approx(sine) if sine <= 0.5 else 0.0)
    assert lengths(code).tolist() == [HEADER + (8 if sine <= 0.5 else 24)]
