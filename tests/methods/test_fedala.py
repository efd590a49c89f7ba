"""FedALA: the weights' step is autograd's of the mixture; without steps on them it is FedAvg with own models."""

from __future__ import annotations

import pytest
import torch
from federations import ragged
from method_runs import FULL, SGD, autograd_loss, play, stack_of

import sartor as st
from sartor.models import layers

K = 5 * 6 + 6


@pytest.mark.parametrize("count", [1, 2])
def test_the_weights_go_down_the_slope_of_the_mixture(count: int) -> None:
    first = K if count == 1 else 0
    method = st.FedALA(eta=20.0, layers=count, weight_steps=2, solver=st.SGD(lr=0.1, batch=FULL))
    local, draw = stack_of(ragged(), layers(5, 6, 3)), torch.Generator().manual_seed(0)
    theta, w = (torch.randn(7, K + 21, generator=draw).double() for _ in range(2))
    W = torch.rand(7, K + 21 - first, generator=draw).double()
    start, found = method.mixed({"theta": theta, "W": W}, w, local)
    for at in range(7):
        mine = W[at].clone()

        def mixture(weights: torch.Tensor, at: int = at) -> torch.Tensor:
            return torch.cat([w[at, :first], theta[at, first:] + (w - theta)[at, first:] * weights])

        for _ in range(2):
            mine.requires_grad_()
            (g,) = torch.autograd.grad(autograd_loss(local, at, mixture(mine)), mine)
            mine = (mine - 20.0 * g).clamp(0, 1).detach()
        torch.testing.assert_close(found[at], mine)
        torch.testing.assert_close(start[at], mixture(mine))
    assert ((found == 0).any() or (found == 1).any()) and not torch.equal(found, W)


def test_without_steps_on_its_weights_it_is_fedavg() -> None:
    ours, theirs = play(st.FedALA(eta=0.0, solver=SGD), rounds=3), play(st.FedAvg(solver=SGD), rounds=3)
    torch.testing.assert_close(ours.run.server["w"], theirs.run.server["w"])


@pytest.mark.parametrize("settings", [{"eta": -1.0}, {"layers": 0}, {"weight_steps": 0}])
def test_bad_settings(settings: dict[str, float]) -> None:
    with pytest.raises(st.SartorError, match=next(iter(settings))):
        st.FedALA(**settings)  # type: ignore[arg-type]
