"""Attacks on a client's own data: labels that are poisoned."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attacked_runs import fixed
from federations import quadratics

import sartor as st
from sartor.data import Clients
from sartor.errors import SartorError
from sartor.run.assemble import prepare
from sartor.run.named_parts import attack


def changed(before: Clients, after: Clients, client: int, part: str) -> np.ndarray:
    rows = before.rows(client, part)
    return (before.y[rows] != after.y[rows]).numpy()


@pytest.mark.parametrize("text", ["label-poison", "dirty-labels(share=0.5)", "model-replacement", "scaled-poison"])
def test_only_training_labels_of_hostile_clients_change(text: str) -> None:
    clients, hostile = fixed(), frozenset({1, 4, 7})
    made = attack(text)
    assert made is not None
    after = made.data(clients, hostile, seed=0)
    assert torch.equal(clients.x, after.x) and np.array_equal(clients.bounds, after.bounds)
    for i in range(12):
        assert changed(clients, after, i, "train").any() == (i in hostile)
        assert not changed(clients, after, i, "validation").any() and not changed(clients, after, i, "test").any()
    assert torch.equal(after.y, made.data(clients, hostile, seed=0).y)
    assert not torch.equal(after.y, made.data(clients, hostile, seed=1).y)
    fewer = made.data(clients, frozenset({4}), seed=0)  # who else attacks does not matter
    assert torch.equal(fewer.y[clients.rows(4, "train")], after.y[clients.rows(4, "train")])


def test_poisoned_labels_are_uniform() -> None:
    clients = fixed(m=10, n=2000, classes=5)
    after = attack("label-poison").data(clients, frozenset(range(5)), 0)  # type: ignore[union-attr]
    for i in range(5):
        drawn = after.y[clients.rows(i, "train")].numpy()
        share = np.bincount(drawn, minlength=5) / 2000
        assert np.abs(share - 0.2).max() < 4 * np.sqrt(0.2 * 0.8 / 2000)
        assert abs(changed(clients, after, i, "train").mean() - 0.8) < 4 * np.sqrt(0.2 * 0.8 / 2000)


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6])
def test_dirty_labels_are_wrong_and_so_many(share: float) -> None:
    clients = fixed(m=6, n=2000, classes=5)
    after = attack(f"dirty-labels(share={share})").data(clients, frozenset({0, 3}), 0)  # type: ignore[union-attr]
    for i in (0, 3):
        wrong = changed(clients, after, i, "train")
        assert wrong.sum() == round(2000 * share)
        rows = clients.rows(i, "train")
        step = ((after.y[rows] - clients.y[rows]) % 5).numpy()[wrong]
        assert np.abs(np.bincount(step, minlength=5)[1:] / len(step) - 0.25).max() < 4 * np.sqrt(0.19 / len(step))


def test_two_classes_are_flipped() -> None:
    clients = fixed(classes=2)
    after = attack("label-poison").data(clients, frozenset({2}), 0)  # type: ignore[union-attr]
    assert changed(clients, after, 2, "train").all()
    signs = st.Clients(clients.x, 2.0 * clients.y - 1, clients.bounds, clients.names, 2)
    after = attack("label-poison").data(signs, frozenset({2}), 0)  # type: ignore[union-attr]
    assert torch.equal(after.y[signs.rows(2, "train")], -signs.y[signs.rows(2, "train")])


@pytest.mark.parametrize("text", ["label-poison", "dirty-labels"])
def test_numbers_have_no_labels_to_poison(text: str) -> None:
    world = quadratics()
    with pytest.raises(SartorError, match="needs labels"):
        prepare(
            st.FedAvg(),
            world.model(),
            world.clients,
            attack=st.Attacked(attack=attack(text), attackers=0.5),
        )
