"""Losses of a part of a model and of a mixture of two."""

from __future__ import annotations

import torch
from federations import ragged
from method_runs import FULL, autograd_loss, random_models, stack_of

from sartor.methods.parts.other_losses import Mixed, ModelPart
from sartor.models import layers


def test_part_and_mixed_train_as_autograd_would() -> None:
    local = stack_of(ragged(), layers(5, 6, 3))
    theta, other = random_models(local, 3), random_models(local, 4)
    _, batch = next(local.batches(FULL, steps=1))
    k = 5 * 6 + 6
    part = ModelPart(local, theta, slice(k, None)).grad(other[:, k:], batch)
    mixed = Mixed(local, 0.3, other).grad(theta, batch)
    for i in range(len(theta)):
        head, v = other[i, k:].clone().requires_grad_(), theta[i].clone().requires_grad_()
        (expected,) = torch.autograd.grad(autograd_loss(local, i, torch.cat([theta[i, :k], head])), head)
        torch.testing.assert_close(part[i], expected, atol=1e-10, rtol=1e-8)
        (expected,) = torch.autograd.grad(autograd_loss(local, i, 0.3 * v + 0.7 * other[i]), v)
        torch.testing.assert_close(mixed[i], expected, atol=1e-10, rtol=1e-8)
