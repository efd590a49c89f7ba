"""Couplings: values, slopes and normal equations agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from method_runs import random

from sartor.core import Coupling
from sartor.couplings import Free, LpNorm, Projected, Projection, Quadratic


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


DOUBLE = torch.float64


c, d, k = 3, 7, 4


def couplings() -> dict[str, Coupling]:
    P = Projection(k, d, seed=1)
    each = torch.tensor([[0.5], [1.0], [2.0]], dtype=DOUBLE)
    out: dict[str, Coupling] = {
        "free": Free(),
        "quadratic": Quadratic(0.7, random(c, d)),
        "quadratic-each": Quadratic(each, random(c, d)),
    }
    for p in (1.0, 1.5, 2.0, 3.0):
        out[f"projected-{p:g}"] = Projected(0.7, random(c, k), P, p)
    return out | {
        "projected-each": Projected(each, random(c, k), P, 1.5),
        "orthogonal": Projected(0.7, random(c, k), Projection(k, d, 1, "orthogonal"), 2.0),
    }


@pytest.mark.parametrize("name", couplings())
def test_a_coupling_s_gradient_is_that_of_its_value(name: str) -> None:
    coupling = couplings()[name]
    theta = random(c, d).requires_grad_()
    expected = (
        torch.autograd.grad(coupling.value(theta).sum(), theta, allow_unused=True)[0]
        if name != "free"
        else torch.zeros(c, d)
    )
    start = random(c, d) + 1
    for a in (c, 2):  # and of the first a clients only
        found = start[:a].clone()
        coupling.add_grad_(found, theta.detach()[:a])
        torch.testing.assert_close(found - start[:a], expected[:a].to(DOUBLE))


@pytest.mark.parametrize("name", ["quadratic", "quadratic-each", "projected-2", "orthogonal", "free"])
def test_normal_terms_are_the_gradient(name: str) -> None:
    coupling, theta = couplings()[name], random(c, d)
    A, b = coupling.normal_terms(theta)
    grad = torch.zeros_like(theta)
    coupling.add_grad_(grad, theta)
    product = (A.expand(c, d, d) @ theta[..., None])[..., 0] if A.dim() else A * theta
    torch.testing.assert_close(product - b, grad)


def test_at_the_kink_the_slope_is_zero_however_it_was_computed() -> None:
    """STYLE's trap: with p = 1 and w = Pθ up to rounding, chance must not decide between −1 and +1."""
    P = Projection(40, 300, seed=0)
    theta = random(6, 300)
    one_by_one = torch.cat([P.project(t[None]) for t in theta])
    assert float(Projected(1.0, one_by_one, P, 1.0).slope(theta).abs().max()) == 0
    moved = Projected(1.0, one_by_one + 1e-9, P, 1.0).slope(theta)
    assert bool((moved == 1).all())


def test_projection_rows_are_of_unit_length_and_depend_on_the_seed() -> None:
    eye = torch.eye(d, dtype=DOUBLE)
    P = Projection(k, d, seed=1).project(eye).T
    torch.testing.assert_close(P.norm(dim=1), torch.ones(k, dtype=DOUBLE))
    assert not torch.allclose(P, Projection(k, d, seed=2).project(eye).T)
    Q = Projection(k, d, 1, "orthogonal").project(eye).T
    torch.testing.assert_close(Q @ Q.T, torch.eye(k, dtype=DOUBLE))
    torch.testing.assert_close(torch.linalg.matrix_rank(torch.cat([P, Q])), torch.tensor(k))  # they span the same space
    small = random(c, k)
    torch.testing.assert_close(Projection(k, d, seed=1).lift(small), small @ P)


def test_a_projection_too_large_to_keep_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    P, theta, small = Projection(k, d, seed=3), random(c, d), random(c, k)
    kept = P.project(theta), P.lift(small)
    monkeypatch.setattr("sartor.couplings._KEEP_BYTES", 0)
    monkeypatch.setattr("sartor.couplings._BLOCK_BYTES", d * 8 * 3)
    assert len(P._blocks(theta)) == 2
    torch.testing.assert_close((P.project(theta), P.lift(small)), kept)
