"""TERM: the gradient of the tilted loss."""

from __future__ import annotations

import pytest
import torch
from federations import ragged
from method_runs import autograd_loss, one_step, play, stack_of

import sartor as st
from sartor.models import layers


@pytest.mark.parametrize("t", [2.0, -1.0])
def test_term_steps_along_autograd_s_gradient_of_the_tilted_loss(t: float) -> None:
    result = play(st.TERM(t=t, solver=one_step(0.1)), rounds=1)
    local, w = stack_of(ragged(), layers(5, 6, 3)), result.run.problem.start.clone().requires_grad_()
    losses = torch.stack([autograd_loss(local, i, w) for i in range(7)])
    tilted = torch.logsumexp(t * losses + local.share[:, 0].log(), 0) / t
    (g,) = torch.autograd.grad(tilted, w)
    torch.testing.assert_close(result.run.server["w"], w.detach() - 0.1 * g, atol=1e-10, rtol=1e-8)
