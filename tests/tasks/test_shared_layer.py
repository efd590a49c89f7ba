"""Models that share their data: value, slope, curvature and Newton's step are those of each model by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from sartor.core import Batch, Dense
from sartor.tasks.convex import OneLayer
from sartor.tasks.shared_layer import SharedLayer

U, S, N, FEATURES = 3, 4, 7, 2
CASES = [("cross-entropy", 2), ("cross-entropy", 3), ("squared", 1), ("squared-hinge", 1)]


def both(loss: str, outputs: int, biased: bool) -> tuple[SharedLayer, OneLayer, Tensor]:
    """U clients with S models each: together, and as U·S clients; and the models."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(U, N, FEATURES, generator=draw, dtype=torch.float64)
    y = torch.randint(0, max(outputs, 2), (U, N), generator=draw)
    y = {"squared": y.double(), "squared-hinge": 2.0 * y - 1}.get(loss, y)
    weight = torch.rand(U, N, generator=draw, dtype=torch.float64)
    weight[1, 4:] = 0  # padding
    batch, dense = Batch(x, y, weight, torch.zeros(U)), Dense((biased,), (FEATURES, outputs), loss)
    alone = Batch(*(v.repeat_interleave(S, 0) for v in batch))
    theta = torch.randn(U * S, outputs * (FEATURES + biased), generator=draw, dtype=torch.float64)
    return SharedLayer(dense, batch, S), OneLayer(dense, alone), theta


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("loss, outputs", CASES)
def test_as_each_by_itself(loss: str, outputs: int, biased: bool) -> None:
    shared, alone, theta = both(loss, outputs, biased)
    assert torch.equal(shared.penalised, alone.penalised)
    for name in ("loss", "grad", "hessian"):
        assert torch.allclose(getattr(shared, name)(theta), getattr(alone, name)(theta), atol=1e-12), name
    intercepts = slice(theta.shape[1] - outputs, None)
    if biased:
        found = shared.hessian(theta, intercepts)
        assert torch.allclose(found, alone.hessian(theta, intercepts), atol=1e-12)


@pytest.mark.parametrize("loss, outputs", CASES)
@pytest.mark.parametrize("held", ["alike", "unlike", "only weights"])
def test_equations_have_newtons_step(loss: str, outputs: int, held: str) -> None:
    """Two classes are solved by sum and difference only where both are held alike."""
    shared, alone, theta = both(loss, outputs, True)
    added = torch.full_like(theta, 0.3) * (shared.penalised if held == "only weights" else 1)
    if held == "unlike":
        added[:, 0] = 0.7
    slope = alone.grad(theta) + added * theta
    H, g, whole = shared.equations(theta, slope, added)
    assert (H.shape[1] < theta.shape[1]) == (loss == "cross-entropy" and outputs == 2 and held != "unlike")
    # free intercepts leave one direction without curvature; what is left of it by rounding is none
    inverse = torch.linalg.pinv(H, rtol=1e-10, hermitian=True)
    step = whole((inverse @ g[..., None])[..., 0])
    known = alone.hessian(theta) + torch.diag_embed(added)
    assert np.allclose((known @ step[..., None])[..., 0], slope, atol=1e-9)


def test_sure_predictions_do_not_overflow() -> None:
    shared, alone, theta = both("cross-entropy", 2, True)
    far = 1e4 * theta
    assert torch.isfinite(shared.loss(far)).all() and torch.allclose(shared.loss(far), alone.loss(far), rtol=1e-12)
    assert torch.isfinite(shared.grad(far)).all() and torch.isfinite(shared.hessian(far)).all()
