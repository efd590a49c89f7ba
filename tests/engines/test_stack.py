"""The stack of clients: validation losses."""

from __future__ import annotations

import numpy as np
import torch
from method_runs import random_models, stack_of
from torch import nn

import sartor as st
from sartor.models import layers


def test_validation_loss_is_plain_pytorch_s_and_nan_without_samples() -> None:
    parts = [
        {"train": (np.ones((3, 2)), np.array([0, 1, 0])), "validation": (np.eye(2), np.array([0, 1]))},
        {"train": (np.ones((2, 2)), np.array([0, 1]))},
    ]
    local = stack_of(st.Clients.from_parts(parts, 2), layers(2, 2))
    theta = random_models(local)
    found = local.validation(theta)[1]
    W, b = theta[0, :4].reshape(2, 2), theta[0, 4:]
    expected = nn.functional.cross_entropy(torch.eye(2, dtype=torch.float64) @ W.T + b, torch.tensor([0, 1]))
    torch.testing.assert_close(found[0], expected)
    assert bool(torch.isnan(found[1]))
