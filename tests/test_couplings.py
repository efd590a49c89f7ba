"""Couplings: values, slopes and normal equations agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sartor.couplings import LpNorm, Quadratic


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("norm", [True, False])
def test_lp_norm_slope_is_autograd_s(p: float, norm: bool) -> None:
    rng = np.random.default_rng(0)
    theta, anchor = (torch.as_tensor(rng.normal(size=(4, 5))) for _ in range(2))
    lam = torch.tensor([[0.5], [1.0], [2.0], [0.1]], dtype=torch.float64)
    coupling = LpNorm(lam, anchor, p, norm)
    x = theta.clone().requires_grad_()
    (expected,) = torch.autograd.grad(coupling.value(x).sum(), x)
    grad = torch.zeros_like(theta)
    coupling.add_grad_(grad, theta)
    torch.testing.assert_close(grad, expected)
    pulled = theta.clone()
    coupling.pull_(pulled, 0.3)
    torch.testing.assert_close(pulled, theta - 0.3 * expected)


def test_quadratic_coupling_with_a_weight_for_each_coordinate() -> None:
    """EWC's: value, slope and normal equations agree."""
    rng = np.random.default_rng(0)
    lam, anchor, theta = (torch.as_tensor(np.abs(rng.normal(size=(3, 4)))) for _ in range(3))
    coupling = Quadratic(lam, anchor)
    x = theta.clone().requires_grad_()
    (expected,) = torch.autograd.grad(coupling.value(x).sum(), x)
    A, b = coupling.normal_terms(theta)
    torch.testing.assert_close((A @ theta[..., None])[..., 0] - b, expected)
    pulled = theta.clone()
    coupling.pull_(pulled, 0.1)
    torch.testing.assert_close(pulled, theta - 0.1 * expected)
