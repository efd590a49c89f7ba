"""Server optimisers against NumPy, number by number; FedAvgM without momentum is FedAvg."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from method_runs import SGD, play

import sartor as st
from sartor.methods import FedOpt


@pytest.mark.parametrize("rule", ["adam", "yogi", "adagrad", "momentum"])
def test_the_server_s_steps_are_the_paper_s(rule: str) -> None:
    method = FedOpt(rule=rule, server_lr=0.2, beta1=0.8, beta2=0.7, tau=0.05)
    draw = np.random.default_rng(0)
    start = draw.normal(size=3)
    server = {
        "w": torch.tensor(start),
        "m": torch.zeros(3).double(),
        "v": torch.full((3,), 0.05**2, dtype=torch.float64),
    }
    w, m, v = list(start), [0.0] * 3, [0.05**2] * 3
    for round in range(5):
        messages, weights = draw.normal(size=(4, 3)), draw.uniform(1, 5, size=4)
        ids = torch.arange(4)
        server = method.server(server, ids, {"w": torch.tensor(messages)}, torch.tensor(weights), round)
        for j in range(3):
            delta = sum(weights[k] * messages[k, j] for k in range(4)) / sum(weights) - w[j]
            if rule == "momentum":
                m[j] = 0.8 * m[j] + delta
                w[j] += 0.2 * m[j]
                continue
            m[j] = 0.8 * m[j] + 0.2 * delta
            if rule == "adagrad":
                v[j] += delta**2
            elif rule == "adam":
                v[j] = 0.7 * v[j] + 0.3 * delta**2
            elif v[j] > delta**2:
                v[j] -= 0.3 * delta**2
            else:
                v[j] += 0.3 * delta**2
            w[j] += 0.2 * m[j] / (v[j] ** 0.5 + 0.05)
        np.testing.assert_allclose(server["w"].numpy(), w, rtol=1e-12)


def test_without_momentum_fedavgm_is_fedavg() -> None:
    ours = play(FedOpt(rule="momentum", server_lr=1.0, beta1=0.0, solver=SGD), rounds=3)
    theirs = play(st.FedAvg(solver=SGD), rounds=3)
    torch.testing.assert_close(ours.run.server["w"], theirs.run.server["w"])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rule": "adma"}, "rule"),
        ({"beta1": 1.0}, r"beta1 in \[0, 1\); got 1.0"),
        ({"server_lr": 0.0}, "server_lr"),
        ({"tau": -1.0}, "tau"),
    ],
)
def test_bad_settings(settings: dict[str, object], said: str) -> None:
    with pytest.raises(st.SartorError, match=said):
        FedOpt(**settings)  # type: ignore[arg-type]
