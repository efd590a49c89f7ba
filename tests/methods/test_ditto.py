"""Ditto: equation (23), and Ditto around other methods."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import quadratics
from groups import grouped
from method_runs import EXACT, FULL, SGD, optimum, personal, play, shared, states

import sartor as st
from sartor.aggregators import KLoss, Krum, Median
from sartor.core import Method
from sartor.models import layers
from sartor.run.assemble import prepare
from sartor.run.result import Result
from sartor.testing import ragged
from sartor.wrappers.dynamic_lam import DynamicLam


def test_ditto_around_a_method_is_that_method_and_a_proximal_model_beside_it() -> None:
    inner = st.FedProx(mu=0.3, solver=SGD)
    result = play(st.Ditto(lam=0.7, global_method=inner, shared_batches=True, solver=SGD))
    alone = play(inner)
    torch.testing.assert_close(result.run.server["w"], alone.run.server["w"])
    default = play(st.Ditto(lam=0.7, solver=SGD))
    named = play(st.Ditto(lam=0.7, global_method=st.FedAvg(weighting="uniform", solver=SGD), solver=SGD))
    torch.testing.assert_close(states(default)["v"], states(named)["v"])
    scaffold = st.SCAFFOLD(solver=SGD)
    both = play(st.Ditto(global_method=scaffold, solver=SGD), cohort=3)
    torch.testing.assert_close(both.run.server["c"], play(scaffold, cohort=3).run.server["c"])


def test_ditto_around_scaffold_reaches_the_prox_of_the_true_optimum() -> None:
    """Where FedAvg's w is biased, Ditto's anchor is too; around SCAFFOLD it is the optimum of the mean loss."""
    q, lam = quadratics(), 0.6
    scaffold = st.SCAFFOLD(solver=st.SGD(lr=0.1, steps=5, batch=FULL))
    result = q.fit(st.Ditto(lam=lam, global_method=scaffold, solver=EXACT), rounds=300)
    v = np.linalg.solve(q.A + lam * np.eye(q.d), (q.b + lam * optimum(q))[..., None])[..., 0]
    np.testing.assert_allclose(personal(result), v, atol=1e-7)


@pytest.mark.parametrize("joint", [True, False])
def test_ditto_reaches_equation_23(joint: bool) -> None:
    """With exact solves G's solution is the mean of the local optima, and v_k = (A_k + λI)^{-1}(b_k + λ w*)."""
    q, lam = quadratics(), 0.6
    result = q.fit(st.Ditto(lam=lam, joint=joint, solver=EXACT), rounds=3)
    w = np.linalg.solve(q.A, q.b[..., None])[..., 0].mean(0)
    v = np.linalg.solve(q.A + lam * np.eye(q.d), (q.b + lam * w)[..., None])[..., 0]
    np.testing.assert_allclose(shared(result), w, atol=1e-8)
    personal = np.stack([p.detach().numpy()[0] for p in (next(result.personal(i).parameters()) for i in range(q.m))])
    np.testing.assert_allclose(personal, v, atol=1e-8)


# --- around a method with an aggregator ---


def ready(method: Method, **settings: object) -> Result:
    return prepare(method, layers(5, 6, 3), ragged(), **grouped(dtype=torch.float64, **settings))


INNER = {
    "ditto": lambda rule: st.Ditto(global_method=st.FedAvg(aggregate=rule)),
    "ditto with its own FedAvg": lambda rule: st.Ditto(aggregate=rule),
    "a choice of lam": lambda rule: DynamicLam(st.Ditto(global_method=st.FedAvg(aggregate=rule)), (0.1, 1.0)),
    "ditto on flame": lambda rule: st.Ditto(global_method=st.FLAME(aggregate=rule)),
}


@pytest.mark.parametrize("name", INNER)
def test_the_inner_methods_aggregator_is_checked_and_reported(name: str) -> None:
    """Krum with f = 3 needs 9 messages, and there are 7 clients."""
    with pytest.raises(st.SartorError, match=r"Krum with f = 3 needs n >= 2f \+ 3 = 9 messages a round; got 7"):
        ready(INNER[name](Krum(f=3)))
    assert ready(INNER[name](Median())).settings["aggregator"] == "median"


@pytest.mark.parametrize("name", INNER)
def test_the_inner_methods_aggregator_gets_the_losses_that_it_needs(name: str) -> None:
    result = st.fit(INNER[name](KLoss(k=1)), layers(5, 6, 3), ragged(), rounds=2)
    assert result.summary["aggregator"] == "k-loss(k=1)" and result.summary["chosen"] is not None


def test_without_a_mean_no_aggregator_is_reported() -> None:
    assert ready(st.Ditto(global_method=st.RSA())).settings["aggregator"] is None
    assert st.Ditto(global_method=st.RSA()).averaging() is None
    inner = st.FedAvg(aggregate=Median())
    assert DynamicLam(st.Ditto(global_method=inner), (0.1, 1.0)).averaging() is inner


@pytest.mark.parametrize("joint", [True, False])
def test_a_private_ditto_is_as_private_as_its_global_method(joint: bool) -> None:
    with pytest.raises(st.SartorError, match="SCAFFOLD cannot be made private"):
        ready(st.Ditto(global_method=st.SCAFFOLD(), joint=joint), privacy=st.Privacy(noise=1.0))
