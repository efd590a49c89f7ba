"""Random projections: Lp-Proj's own, and fresh ones."""

from __future__ import annotations

import numpy as np
import torch
from compressor_codes import draws, numbers, unbiased

import sartor as st
from sartor.compressors import (
    RandomProjection,
)


def test_the_projection_is_lp_projs_own() -> None:
    x = numbers(30)
    P = st.LpProj(d_sub=6, projection_seed=4).P(30)
    code, _ = RandomProjection(k=6, fresh=False, seed=4).encode(x, {}, draws())
    assert torch.equal(code.z, P.project(x))  # type: ignore[attr-defined]
    assert torch.equal(code.value(), P.lift(P.project(x) * (30 / 6)))


def test_a_fresh_projection_is_unbiased_with_the_variance_of_its_formula() -> None:
    x = torch.from_numpy(np.random.default_rng(4).normal(size=(1, 9)))
    found = torch.cat([RandomProjection(k=3).encode(x, {}, draws(r, 1))[0].value() for r in range(2_500)])
    unbiased(found, x[0])
    squares = (found - x).square().sum(1)
    expected = RandomProjection(k=3).omega(9) * float(x.square().sum())
    assert abs(float(squares.mean()) - expected) < 5 * float(squares.std()) / 50
