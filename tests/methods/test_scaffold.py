"""SCAFFOLD: control variates take the drift away."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import quadratics, ragged
from method_runs import FULL, optimum, play, stack_of, states

import sartor as st
from sartor.models import layers


@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("cohort", [6, 3])
def test_scaffold_reaches_the_global_optimum_where_fedavg_does_not(option: str, cohort: int) -> None:
    q, solver = quadratics(), st.SGD(lr=0.1, steps=5, batch=FULL)
    scaffold = q.fit(st.SCAFFOLD(option=option, solver=solver), rounds=400, cohort=cohort).run.server
    np.testing.assert_allclose(scaffold["w"], optimum(q), atol=1e-8)
    np.testing.assert_allclose(scaffold["c"], 0, atol=1e-8)  # Σ ∇f_i(x*) = 0
    fedavg = q.fit(st.FedAvg(weighting="uniform", solver=solver), rounds=100).run.server["w"]
    assert np.abs(fedavg.numpy() - optimum(q)).max() > 1e-2


def test_scaffold_option_two_counts_its_steps_on_ragged_clients() -> None:
    """One epoch of minibatches: c_i⁺ is the mean of the gradients that were seen, so K is right for every client."""
    solver = st.SGD(lr=0.1, epochs=2, batch=7)
    result = play(st.SCAFFOLD(option="II", solver=solver), rounds=1)
    start, local = result.run.problem.start, stack_of(ragged(), layers(5, 6, 3))
    for at, i in enumerate(local.ids):
        y, seen = start[None].repeat(7, 1), []
        for a, batch in local.batches(7, epochs=2):
            if at < a:
                g = local.grad(y[:a], batch)[at]
                y[at] -= 0.1 * g
                seen.append(g)
        torch.testing.assert_close(states(result)["c"][i], torch.stack(seen).mean(0))
