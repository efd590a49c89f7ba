"""ρ in its natural unit: the same speed does the same in federations of any size."""

from __future__ import annotations

import pytest
import torch
from federations import quadratics

import sartor as st
from sartor.errors import SartorError
from sartor.wrappers.dynamic_lam import DynamicLam


@pytest.mark.parametrize("kind", [st.FLAME, st.FlameLpProj])
def test_the_speed_is_lam_alpha_over_rho(kind: type) -> None:
    """Given either way, the bits are the same; α = 1/m."""
    q = quadratics()
    lam, speed = 0.4, 0.7
    more = {"d_sub": 2} if kind is st.FlameLpProj else {}
    by_speed = q.fit(kind(lam=lam, speed=speed, **more), rounds=3).run.models()
    by_rho = q.fit(kind(lam=lam, rho=lam / (q.m * speed), **more), rounds=3).run.models()
    assert torch.equal(by_speed["client/personal"], by_rho["client/personal"])
    assert kind().speed == (3.0 if kind is st.FLAME else 1.0) and kind(rho=0.1).speed is None


def test_one_and_not_both() -> None:
    with pytest.raises(SartorError, match=r"FLAME takes speed = λα/ρ, or rho itself, not both; got 1\.0 and 0\.1\."):
        st.FLAME(speed=1.0, rho=0.1)
    for bad in ({"speed": 0.0}, {"rho": -1.0}, {"speed": float("nan")}):
        with pytest.raises(SartorError, match="FLAME needs"):
            st.FLAME(**bad)


@pytest.mark.parametrize("speed", [0.03, 0.3, 1.0, 3.0])
def test_how_far_w_moves_in_the_first_round(speed: float) -> None:
    """2·speed/(1 + speed) of the way from the first model to the mean of the clients' θ_i, whatever m is."""
    q = quadratics()
    result = q.fit(st.FLAME(lam=0.5, speed=speed, solver=st.Exact()), rounds=1)
    theta, start = result.run.models()["client/personal"], result.run.problem.start
    moved, whole = result.run.server["w"] - start, theta.mean(0) - start
    torch.testing.assert_close(moved, 2 * speed / (1 + speed) * whole, rtol=1e-9, atol=1e-12)


def test_clients_with_lams_of_their_own_have_one_rho() -> None:
    """Of the middle candidate: with ρ_i of their own the mean of the messages would not be the minimiser."""
    method = DynamicLam(st.FLAME(speed=0.5), (0.1, 0.4, 2.0))
    assert [method.at(lam).penalty(10) for lam in (0.1, 0.4, 2.0)] == pytest.approx([0.4 / 10 / 0.5] * 3)  # type: ignore[attr-defined]
    each = method.at(torch.tensor([[0.1], [2.0]])).penalty(10)  # type: ignore[attr-defined]
    torch.testing.assert_close(each, torch.full((2, 1), 0.08))
    given = DynamicLam(st.FLAME(rho=0.3), (0.1, 2.0))
    assert given.at(0.1).penalty(10) == given.at(2.0).penalty(10) == 0.3  # type: ignore[attr-defined]
