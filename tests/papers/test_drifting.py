"""FLAME's authors' "Ditto": against a NumPy version of it, and against what it is not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import quadratics

import sartor as st
from sartor import methods
from sartor.errors import SartorError
from sartor.papers.authors import Drifting
from sartor.run.named_parts import method_from, to_table

LR = 0.05


def test_local_models_drift_and_their_mean_is_the_global_model() -> None:
    """One step a round on all of a client's data, as a batch larger than any client gives: known in closed form."""
    q, rounds = quadratics(), 7
    result = q.fit(Drifting(solver=st.SGD(lr=LR, steps=1, batch=100)), rounds)
    start = result.run.problem.start.numpy()
    each = []
    for A, b in zip(q.A, q.b, strict=True):
        w = start.copy()
        for _ in range(rounds):
            w = w - LR * (A @ w - b)
        each.append(w)
    np.testing.assert_allclose(result.run.server["w"].numpy(), np.mean(each, axis=0), atol=1e-12)


def test_it_equals_local_training_and_not_fedavg() -> None:
    q, solver = quadratics(), st.SGD(lr=LR, epochs=1, batch=4)
    drifting = q.fit(Drifting(solver=solver), 5)
    alone = q.fit(st.LocalOnly(solver=solver), 5).run.query_clients("personal")["personal"].mean(0)
    torch.testing.assert_close(drifting.run.server["w"], alone)
    together = q.fit(st.FedAvg(solver=solver, weighting="uniform"), 5).run.server["w"]
    assert float((together - drifting.run.server["w"]).norm()) > 1e-3


def test_who_sits_out_counts_with_the_last_model() -> None:
    q = quadratics()
    run = q.fit(Drifting(solver=st.SGD(lr=LR, steps=1, batch=100)), 4, cohort=2).run
    states = run.engine.save()
    torch.testing.assert_close(run.server["w"], torch.as_tensor(states["state/w"]).reshape(q.m, -1).mean(0))


def test_as_ditto_s_global_model_it_leaves_the_personal_step_as_it_is() -> None:
    """v_k is drawn to the average; written as settings and back it stays the same."""
    own = {"lam": 1.0, "global_method": {"method": "authors.drifting", "solver": {"lr": 0.1, "steps": 1, "batch": 100}}}
    made = method_from("ditto", own, {"lr": LR, "batch": 100, "epochs": 1, "weight_decay": 0.0})
    assert isinstance(made, st.Ditto) and Drifting(solver=st.SGD(lr=0.1, steps=1, batch=100)) == made.G
    assert method_from("ditto", to_table(made)) == made
    q = quadratics()
    result = q.fit(made, 1)
    start = result.run.problem.start.numpy()
    v = np.array([start - LR * (A @ start - b) for A, b in zip(q.A, q.b, strict=True)])  # the pull is 0 at the start
    np.testing.assert_allclose(result.run.query_clients("personal")["personal"].numpy(), v, atol=1e-12)


def test_it_is_no_public_method_but_a_run_can_name_it() -> None:
    assert "drifting" not in methods.NAMES and not hasattr(st, "Drifting")
    assert method_from("authors.drifting", {"solver.steps": 2}) == Drifting(solver=st.SGD(steps=2))
    with pytest.raises(SartorError, match="unknown method 'drifting'"):
        method_from("drifting", {})
    with pytest.raises(SartorError, match=r"unknown method 'authors\.flame-labels'"):  # a partition
        method_from("authors.flame-labels", {})
