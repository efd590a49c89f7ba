"""Attacks by clients that see all messages."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
import torch
from attacked_runs import fixed, messages, ready

from sartor.wrappers.attacks import ALIE, IPM


def test_alie_is_just_inside_the_crowd() -> None:
    clients = fixed(m=50, n=6)
    under, clean = ready("fedavg", "alie", 0.24, clients), ready("fedavg", "none", 0.0, clients)
    h = under.run.hostile
    bad, good = messages(under)[0]["w"].numpy(), messages(clean)[0]["w"].numpy()
    z = NormalDist().inv_cdf((50 - 12 - 14) / (50 - 12))  # s = ⌊50/2 + 1⌋ − 12 = 14 benign make a majority
    oracle = good[~h].mean(0) - z * good[~h].std(0)
    np.testing.assert_allclose(bad[h], np.broadcast_to(oracle, bad[h].shape), rtol=1e-9, atol=1e-12)
    assert ALIE().z_of(50, 24) == NormalDist().inv_cdf((26 - 2) / 26)
    assert 0 < ALIE().z_of(50, 40) < 2 and ALIE().z_of(4, 1) == 0 and ALIE(z=1.5).z_of(4, 1) == 1.5


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 10.0])
def test_ipm_turns_the_mean_round_where_it_says(epsilon: float) -> None:
    clients = fixed()
    under, clean = ready("fedavg", f"ipm(epsilon={epsilon})", 0.25, clients), ready("fedavg", "none", 0.0, clients)
    h, w = under.run.hostile, clean.run.server["w"].numpy()
    bad, good = messages(under)[0]["w"].numpy() - w, messages(clean)[0]["w"].numpy() - w
    benign = good[~h].mean(0)
    np.testing.assert_allclose(bad[h], np.broadcast_to(-epsilon * benign, bad[h].shape), rtol=1e-9, atol=1e-12)
    assert (bad.mean(0) @ benign < 0) == (epsilon > (12 - 3) / 3)


def test_who_sees_all_but_has_nobody_to_look_at_stays_honest() -> None:
    x = torch.randn(3, 2)
    run = ready("fedavg", "ipm", 0.4).run
    ids = torch.from_numpy(np.flatnonzero(run.hostile))
    w = torch.randn(3, len(run.server["w"]), dtype=torch.float64)
    weights = run.problem.share[ids]
    after = run.method.server(run.server, ids, {"w": w}, weights, 0)["w"]
    torch.testing.assert_close(after, (weights / weights.sum()) @ w)
    assert IPM().together(x, 0 * x, torch.tensor([True, False, False])).shape == (1, 2)
