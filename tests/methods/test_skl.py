"""SKL: the symmetric Kullback-Leibler divergence of predictions."""

from __future__ import annotations

import pytest
import torch
from federations import ragged, two_sided
from method_runs import FULL, autograd_loss, client_batch, play, random_models, stack_of
from torch import Tensor
from torch.func import functional_call

import sartor as st
from sartor.methods.skl import NearPredictions
from sartor.models import layers
from sartor.tasks.task import ModelTask


@pytest.mark.parametrize("vectorise", [True, False])
def test_skl_s_gradient_is_autograd_s(vectorise: bool) -> None:
    local, lam = stack_of(ragged(), layers(5, 6, 3)), 0.8
    task = local.task
    assert isinstance(task, ModelTask)
    task.vectorise = vectorise
    theta, w = random_models(local, 1), random_models(local, 2)
    _, batch = next(local.batches(FULL, steps=1))
    ours = NearPredictions(local, lam, w).grad(theta, batch)
    for i in range(len(theta)):
        x, _ = client_batch(local, i)

        def log_p(v: Tensor, x: Tensor = x) -> Tensor:
            return torch.log_softmax(
                functional_call(task.original, dict(zip(task.names, task.unflatten(v), strict=True)), (x,)), 1
            )

        v = theta[i].clone().requires_grad_()
        p, q = log_p(v), log_p(w[i])
        both = (p.exp() * (p - q)).sum(1).mean() + (q.exp() * (q - p)).sum(1).mean()
        (expected,) = torch.autograd.grad(autograd_loss(local, i, v) + lam / 2 * both, v)
        torch.testing.assert_close(ours[i], expected, atol=1e-10, rtol=1e-8)


def test_skl_needs_class_probabilities() -> None:
    with pytest.raises(st.SartorError, match=r"needs cross-entropy; got hinge loss.*Use ewc or ditto"):
        play(st.SKL(), model=layers(5, 1), clients=two_sided())
