"""Attacks on a client's own message."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attacked_runs import ROUNDS, SOLVER, drawn, fixed, messages, ready
from groups import grouped

import sartor as st
from sartor.models import layers
from sartor.run.assemble import prepare
from sartor.run.named_parts import attack


def moments(values: np.ndarray, std: float) -> None:
    """Independent N(0, std²): mean, variance, fourth moment and no correlation of neighbours, at four sigma."""
    z = values.ravel() / std
    n = len(z)
    assert abs(z.mean()) < 4 / np.sqrt(n)
    assert abs((z**2).mean() - 1) < 4 * np.sqrt(2 / n)
    assert abs((z**4).mean() - 3) < 4 * np.sqrt(96 / n)
    assert abs((z[1:] * z[:-1]).mean()) < 4 / np.sqrt(n)


STDS = [
    ("same-value", {"": np.sqrt(0.1), "like=lp-proj": 100.0, "std=3": 3.0}),
    ("sign-flip", {"": np.sqrt(0.1), "like=lp-proj": 10.0, "std=3": 3.0}),
    ("gaussian", {"": np.sqrt(0.1), "like=lp-proj": 100.0, "std=3": 3.0}),
]


@pytest.mark.parametrize(
    ("name", "setting", "std"), [(n, s, v) for n, table in STDS for s, v in table.items()], ids=lambda v: str(v)
)
def test_messages_of_the_three_byzantine_attacks(name: str, setting: str, std: float) -> None:
    bad, honest, _ = drawn(f"{name}({setting})")
    if name == "same-value":
        assert (bad == bad[:, :, :1]).all()
        moments(bad[:, :, 0], std)
    if name == "sign-flip":
        scale = bad / honest
        np.testing.assert_allclose(scale, np.broadcast_to(scale[:, :, :1], scale.shape), rtol=1e-9)
        p = scale[:, :, 0]
        assert (p < 0).all()
        n = p.size
        assert abs((p / std).mean() + np.sqrt(2 / np.pi)) < 4 * np.sqrt((1 - 2 / np.pi) / n)  # of −|N(0, 1)|
        assert abs(((p / std) ** 2).mean() - 1) < 4 * np.sqrt(2 / n)
    if name == "gaussian":
        moments(bad, std)


@pytest.mark.parametrize("name", ["flame", "lp-proj-1", "fedavg"])
def test_attacks_act_on_the_message_as_sent(name: str) -> None:
    """FLAME's u, Lp-Proj's point of the subspace, FedAvg's model."""
    bad, honest, _ = drawn("sign-flip", name)
    assert bad.shape[-1] == (4 if name == "lp-proj-1" else 64)
    scale = bad / honest
    assert np.allclose(scale, scale[:, :, :1]) and (scale < 0).all()


def test_random_updates_have_the_spread_of_the_own_update() -> None:
    bad, honest, w = drawn("random-update")
    spread = (honest - w).std(axis=2, keepdims=True)
    moments((bad - w) / spread, 1.0)


def test_model_replacement_scales_the_poisoned_update() -> None:
    clients = fixed()
    under = ready("fedavg", "model-replacement", 0.5, clients, cohort=6)
    poisoned = ready("fedavg", "label-poison", 0.5, clients)
    honest = ready("fedavg", "model-replacement(scale=3, poison=false)", 0.5, clients)
    clean = ready("fedavg", "none", 0.0, clients)
    w, h = clean.run.server["w"], under.run.hostile
    one, two, three, four = (messages(r)[0]["w"][h] - w for r in (under, poisoned, honest, clean))
    torch.testing.assert_close(one, 6 * two)  # as many as are asked
    torch.testing.assert_close(three, 3 * four)
    assert not torch.allclose(two, four)


def test_scaled_poison_is_label_poison_times_a_normal_number() -> None:
    clients = fixed()
    bad, _, _ = drawn("scaled-poison")
    poisoned = ready("fedavg", "label-poison", 0.5, clients)
    base = np.stack([m["w"][poisoned.run.hostile].numpy() for m in messages(poisoned, ROUNDS)])
    scale = bad / base
    assert np.allclose(scale, scale[:, :, :1])
    moments(scale[:, :, 0], 20.0)


@pytest.mark.parametrize(
    "solver", [SOLVER, st.SGD(lr=0.1, momentum=0.5), st.Inexact(max_steps=3)], ids=["sgd", "m", "i"]
)
def test_gradient_flip_climbs(solver: st.SGD) -> None:
    """The first step of plain SGD is turned round exactly; on any solver the hostile clients' loss rises."""
    clients = fixed(n=7)
    method = st.FedAvg(solver=solver)
    options = {"seed": 3, "dtype": torch.float64, "attackers": 0.5}
    made = [
        prepare(method, layers(5, 4), clients, **grouped(attack=a, **options))
        for a in (attack("gradient-flip"), "none")
    ]  # type: ignore[arg-type]
    w, h = made[0].run.server["w"], made[0].run.hostile
    bad, good = (messages(r)[0]["w"][h] - w for r in made)
    if solver == SOLVER:  # one batch of 7 holds all
        torch.testing.assert_close(bad, -good)
    assert ((bad * good).sum(1) < 0).all()
