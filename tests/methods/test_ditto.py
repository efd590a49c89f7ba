"""Ditto on another method's global model: what is said of the mean is said of the method that takes it."""

from __future__ import annotations

import pytest
import torch

import sartor as st
from sartor.aggregators import KLoss, Krum, Median
from sartor.core import Method
from sartor.models import layers
from sartor.run.assemble import prepare
from sartor.run.result import Result
from sartor.testing import ragged
from sartor.wrappers.dynamic_lam import DynamicLam


def ready(method: Method, **settings: object) -> Result:
    return prepare(method, layers(5, 6, 3), ragged(), dtype=torch.float64, **settings)  # type: ignore[arg-type]


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
    result = st.fit(INNER[name](KLoss(k=1)), layers(5, 6, 3), ragged(), rounds=2, evaluate_every=2)
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
