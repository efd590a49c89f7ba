"""FedFomo: its weights by plain PyTorch; where nothing helps it is local training; who helped is sent again."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import ragged
from method_runs import SGD, client_batch, personal, play, random, stack_of
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

import sartor as st
from sartor.client_table import Rows
from sartor.models import layers

D = 5 * 6 + 6 + 6 * 3 + 3


def loss(theta: Tensor, x: Tensor, y: Tensor) -> float:
    z = linear(x, theta[:30].view(6, 5), theta[30:36]).relu()
    return float(cross_entropy(linear(z, theta[36:54].view(3, 6), theta[54:]), y))


def test_a_client_goes_to_those_that_help_by_gain_over_distance() -> None:
    local = stack_of(ragged(), layers(5, 6, 3))
    theta, others = random(7, D), random(7, 3, D)
    others[:, 2] = theta  # no distance: no weight
    method = st.FedFomo(M=3, solver=st.SGD(lr=1e-300, steps=1))
    state, sent = method.client({"theta": theta}, {"w": others}, local)
    helped = 0
    for i in range(7):
        x, y = client_batch(local, i, "validation")
        start, w = theta[i].clone(), torch.zeros(3, dtype=torch.float64)
        if len(y):
            for n in range(2):
                gain = loss(theta[i], x, y) - loss(others[i, n], x, y)
                w[n] = max(gain, 0.0) / float((others[i, n] - theta[i]).square().sum().sqrt())
        if w.sum() > 0:
            start += (w / w.sum()) @ (others[i] - theta[i])
            helped += 1
        torch.testing.assert_close(sent["weights"][i], w)
        torch.testing.assert_close(state["theta"][i], start)
    assert 0 < helped < 7  # both ways are taken


def test_without_validation_data_it_is_local_training() -> None:
    clients = ragged()
    clients.bounds[:, 2] = clients.bounds[:, 1]  # all of it is test data
    ours, theirs = (play(method, clients=clients) for method in (st.FedFomo(solver=SGD), st.LocalOnly(solver=SGD)))
    np.testing.assert_array_equal(personal(ours), personal(theirs))


def test_whose_models_are_sent() -> None:
    start = torch.zeros(3)
    P = torch.zeros(6, 6)
    P[0, 3], P[0, 5] = 2.0, 1.0
    server = {"theta": Rows(6, start), "P": P, "seed": torch.tensor(1)}
    greedy, curious = st.FedFomo(M=2, epsilon=0.0), st.FedFomo(M=2, epsilon=1.0)
    ids = torch.arange(6)
    drawn = set()
    for round in range(60):
        best, any_two = greedy.others(server, ids, round), curious.others(server, ids, round)
        assert best[0].tolist() == [3, 5]  # those that helped most, best first
        for found in (best, any_two):
            assert all(len(set(row)) == 2 and i not in row for i, row in enumerate(found.tolist()))
        drawn |= {frozenset(any_two[0].tolist())}
    assert len(drawn) == 10  # every pair of the five others comes
    assert st.FedFomo(M=9).others(server, ids, 0).shape == (6, 5)  # no more than there are


def test_the_server_remembers_models_and_weights() -> None:
    method = st.FedFomo(M=2, epsilon=0.5)
    server = {"theta": Rows(4, torch.zeros(3)), "P": torch.zeros(4, 4), "seed": torch.tensor(7)}
    ids, w = torch.tensor([1, 3]), torch.tensor([[0.5, 2.0], [0.0, 1.0]])
    theirs = method.others(server, ids, 5)
    models = torch.arange(6.0).view(2, 3)
    after = method.server(server, ids, {"w": models, "weights": w}, torch.ones(2), 5)
    expected = torch.zeros(4, 4)
    for row, i in enumerate(ids.tolist()):
        for column in range(2):
            expected[i, theirs[row, column]] = w[row, column]
    assert torch.equal(after["P"], expected)
    assert torch.equal(after["theta"].whole()[ids], models)
    down = method.downlink(after, torch.arange(4), 6)["w"]
    each = method.others(after, torch.arange(4), 6)
    assert torch.equal(down, after["theta"].whole()[each])


@pytest.mark.parametrize("settings", [{"M": 0}, {"epsilon": 1.5}])
def test_bad_settings(settings: dict[str, float]) -> None:
    with pytest.raises(st.SartorError, match=next(iter(settings))):
        st.FedFomo(**settings)  # type: ignore[arg-type]
