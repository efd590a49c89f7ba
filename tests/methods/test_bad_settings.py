"""What methods refuse: settings without meaning, tasks that break an assumption."""

from __future__ import annotations

from typing import Any

import pytest
from method_runs import EXACT, SGD, play
from torch import nn

import sartor as st
from sartor.core import Method
from sartor.models import layers


@pytest.mark.parametrize(
    ("method", "model", "says"),
    [
        (st.LGFedAvg(), layers(5, 3), r"LGFedAvg splits.*1 layer and.*Use a deeper model"),
        (st.FedPer(), layers(5, 3), r"FedPer splits.*1 layer and"),
        (st.FedRep(head=2), layers(5, 6, 3), r"FedRep splits.*2 layers and its head takes 2.*smaller head"),
        (st.FedPer(head=0), layers(5, 6, 3), "at least 1 layer"),
        (st.MOCHA(), layers(5, 6, 3), r"MOCHA is for convex.*cross-entropy loss on another model.*Use such a model"),
        (st.Ditto(global_method=st.LocalOnly()), layers(5, 3), "must train a global model.*LocalOnly"),
        (st.Ditto(global_method=st.LpProj(d_sub=2)), layers(5, 3), "must train a global model.*LpProj"),
        (st.Ditto(global_method=st.IFCA()), layers(5, 3), "must train a global model.*IFCA"),
    ],
)
def test_a_method_whose_assumption_the_task_breaks_is_refused_before_the_first_round(
    method: Method, model: nn.Module, says: str
) -> None:
    with pytest.raises(st.SartorError, match=says):
        play(method, model=model)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: st.APFL(alpha=1.5), r"alpha in \[0, 1\]; got 1.5"),
        (lambda: st.L2GD(p=1.0), "0 < p < 1; got 1.0"),
        (lambda: st.L2GD(solver=EXACT), "use the sgd solver"),
        (lambda: st.Mapper(lambdas=(0.5, 2.0)), r"lambdas in \[0, 1\]"),
        (lambda: st.SCAFFOLD(option="II", solver=SGD), "option II needs sgd without momentum"),
        (lambda: st.QFFL(solver=EXACT), "has no lr; give L"),
        (lambda: st.QFFL(q=-1.0), "q >= 0; got -1.0"),
        (lambda: st.FedMGDA(epsilon=2.0), r"epsilon in \[0, 1\] \(or none, for 1/clients\); got 2.0"),
        (lambda: st.IFCA(k=0), "k >= 1 clusters; got 0"),
        (lambda: st.RSA(p=0.5), "p >= 1"),
        (lambda: st.TERM(t=float("nan")), "finite t"),
        (lambda: st.MOCHA(lam1=0.0), "lam1 > 0; got 0.0"),
        (lambda: st.Early(patience=0), "patience >= 1; got 0"),
        (lambda: st.Ditto(weighting="size", global_method=st.FedAvg()), "give them to that one"),
    ],
)
def test_settings_without_meaning_are_refused(make: Any, says: str) -> None:
    with pytest.raises(st.SartorError, match=says):
        make()
