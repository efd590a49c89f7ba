"""LG-FedAvg and FedPer: a model cut in two."""

from __future__ import annotations

import pytest
import torch
from method_runs import SGD, personal, play, states

import sartor as st
from sartor.core import Method


@pytest.mark.parametrize(("name", "shares_head"), [("lg-fedavg", True), ("fedper", False)])
def test_one_half_is_averaged_and_the_other_is_each_client_s_own(name: str, shares_head: bool) -> None:
    """One round from the common start: both halves are those of local training, one of them averaged by size."""
    k = 5 * 6 + 6
    method: Method = {"lg-fedavg": st.LGFedAvg(solver=SGD), "fedper": st.FedPer(solver=SGD)}[name]
    result, local = play(method, rounds=1), states(play(st.LocalOnly(solver=SGD), rounds=1))["theta"]
    share = result.run.problem.share
    own, common = (local[:, :k], local[:, k:]) if shares_head else (local[:, k:], local[:, :k])
    torch.testing.assert_close(states(result)["own part"], own)
    torch.testing.assert_close(result.run.server["w"], share @ common)
    halves = [own, (share @ common).expand(7, -1)]
    torch.testing.assert_close(torch.as_tensor(personal(result)), torch.cat(halves if shares_head else halves[::-1], 1))
