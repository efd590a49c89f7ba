"""The stack of clients: validation losses, passes over all samples in blocks, mixtures of models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from method_runs import random_models, stack_of
from torch import nn

import sartor as st
from sartor.engines import stack
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


def several_sizes(classes: int | None) -> st.Clients:
    """Clients with fewer samples than a block of a pass has, as many, and several blocks of them."""
    draw, parts = np.random.default_rng(0), []
    for n in (7, 128, 129, 300):
        part = {}
        for name, size in (("train", n), ("validation", n // 2), ("test", n)):
            x = draw.normal(size=(size, 4))
            part[name] = x, x[:, 0] if classes is None else draw.integers(classes, size=size)
        parts.append(part)
    return st.Clients.from_parts(parts, classes)


@pytest.mark.parametrize(
    ("sizes", "loss"), [((4, 3), "cross-entropy"), ((4, 6, 3), "cross-entropy"), ((4, 1), "squared")]
)
def test_a_pass_over_all_samples_does_not_depend_on_its_blocks(
    sizes: tuple[int, ...], loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> list[torch.Tensor]:
        local = stack_of(several_sizes(None if loss == "squared" else 3), layers(*sizes), loss)
        theta = random_models(local)
        again = local.full_grad(theta)  # of samples that are kept from the pass before
        scores, test, merits = local.judged(theta)
        return [local.full_loss(theta), local.full_grad(theta), again, *scores, *test, merits.nan_to_num()]

    blocks = found()
    monkeypatch.setattr(stack, "_SWEEP", 1024)
    for one, other in zip(blocks, found(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("sizes", "loss"), [((4, 3), "cross-entropy"), ((4, 1), "squared")])
def test_mixtures_of_linear_models_are_judged_by_what_both_say(sizes: tuple[int, ...], loss: str) -> None:
    local = stack_of(several_sizes(None if loss == "squared" else 3), layers(*sizes), loss)
    one, other = random_models(local), random_models(local).flip(0)
    shares = (1.0, 0.75, 0.25, 0.0)
    assert local.mixes_outputs and not stack_of(several_sizes(3), layers(4, 6, 3)).mixes_outputs
    for share, mixed in zip(shares, local.judged_mixtures(one, other, shares), strict=True):
        plain = local.judged(torch.lerp(other, one, share))
        for a, b in zip((*mixed[0], *mixed[1], mixed[2]), (*plain[0], *plain[1], plain[2]), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12, equal_nan=True)
