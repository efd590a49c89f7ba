"""What every compressor does with bad numbers, and refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from compressor_codes import SOME, code_of, numbers

import sartor as st
from sartor.compressors import (
    DGC,
    LBGM,
    QSGD,
    CommonGrid,
    Compressor,
    Float16,
    RandomProjection,
    Sketch,
    TopK,
    lengths,
)


@pytest.mark.parametrize("compressor", SOME, ids=str)
def test_nan_and_inf_are_not_turned_into_numbers(compressor: Compressor) -> None:
    """A broken vector stays broken, so that the server leaves it out; the others are not touched by it."""
    clean = numbers(64)
    for bad in (math.nan, math.inf):
        x = clean.clone()
        x[1, 3] = bad
        code, _ = code_of(compressor, x)
        assert lengths(code).shape == (5,)
        others = [0, 2, 3, 4]
        torch.testing.assert_close(code.value()[others], code_of(compressor, clean)[0].value()[others])
        if not (isinstance(compressor, Float16) and bad == math.inf):  # a number that is too large becomes the largest
            assert not bool(torch.isfinite(code.value()[1]).all())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TopK(k=0), r"top-k needs k in \(0, 1\].*got 0"),
        (lambda: TopK(k=2.5), "whole number above 1"),
        (lambda: DGC(momentum=1.0), r"dgc needs momentum in \[0, 1\)"),
        (lambda: DGC(warmup=-1), "dgc needs warmup >= 0"),
        (lambda: DGC(clip=0.0), "dgc needs clip > 0"),
        (lambda: QSGD(s=0), "qsgd needs 1 <= s"),
        (lambda: QSGD(bucket=0), "qsgd needs bucket >= 1"),
        (lambda: Sketch(rows=16), "sketch needs 1 to 15 rows"),
        (lambda: RandomProjection(seed=-1), "projection needs a seed"),
        (lambda: CommonGrid(step=0.0), "grid needs a step above 0"),
        (lambda: CommonGrid(bits=8), "grid needs words of 16 or 32 bits"),
        (lambda: LBGM(delta=1.0), r"lbgm needs delta in \[0, 1\)"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any, message: str) -> None:
    with pytest.raises(st.SartorError, match=message):
        make()
