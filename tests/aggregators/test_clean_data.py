"""A robust aggregator is no neutral swap: what it does to every method where nobody attacks (docs/aggregators.md)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import Quadratics, quadratics
from subsets import first

import sartor as st
from sartor.aggregators import NAMES, Aggregator
from sartor.core import Method
from sartor.methods import NAMES as METHODS
from sartor.run.named_parts import method_from, to_table

WORLD = quadratics(m=9, d=4, seed=1)
RULES = [n for n in NAMES if n != "mean"]
AVERAGING = [n for n, e in METHODS.items() if e.make.aggregate is not None]
DOCUMENTED = ["flame", "flame-lp-proj", "pfedme", "ditto", "lp-proj-2", "fedavg", "fedprox"]


def method(name: str, rule: str) -> Method:
    """The method with exact local steps, tuned so that its fixed point is the paper's optimum within 100 rounds."""
    settings: dict[str, object] = {"aggregate": rule, "solver.kind": "exact"}
    settings |= {
        "flame": {"lam": 1.0, "rho": 0.2},
        "flame-lp-proj": {"lam": 1.0, "rho": 0.2, "d_sub": 3},
        "pfedme": {"lam": 1.0, "R": 1, "eta": 1.0},
        "lp-proj-2": {"lam": 1.0, "eta": 0.5, "d_sub": 3},
        "ditto": {"lam": 1.0},
        "fedprox": {"mu": 1.0, "weighting": "uniform"},
    }.get(name, {})
    return method_from(name, settings)


def end(world: Quadratics, name: str, rule: str, rounds: int = 100) -> np.ndarray:
    """Where the server's w ends."""
    result = world.fit(method(name, rule), rounds)
    w: torch.Tensor = result.run.server["w"]
    return w.numpy()


@pytest.mark.parametrize("name", first(DOCUMENTED, "flame", "ditto"))
def test_clean_and_different_clients_are_served_otherwise(name: str) -> None:
    """On clients with different data every rule but the mean ends somewhere else, and says so in no other way."""
    exact = end(WORLD, name, "mean")
    if name == "flame":
        np.testing.assert_allclose(exact, WORLD.moreau(1.0)[0], atol=1e-6)
    scale = np.linalg.norm(exact)
    for rule in RULES:
        away = np.linalg.norm(end(WORLD, name, rule) - exact) / scale
        assert away > 1e-3, (name, rule, away)
        assert away < 10, (name, rule, away)  # inexact, not broken


@pytest.mark.parametrize("name", DOCUMENTED)
def test_clients_with_the_same_data_are_served_the_same(name: str) -> None:
    """Where all messages are alike no rule has anything to choose, so the method is what it was."""
    one = quadratics(m=1, d=4, seed=2)
    rows = one.clients.rows(0, "train")
    part = {"train": (one.clients.x[rows].numpy(), one.clients.y[rows].numpy())}
    part |= {p: (one.clients.x[-3:].numpy(), one.clients.y[-3:].numpy()) for p in ("validation", "test")}
    world = Quadratics(
        st.Clients.from_parts([part] * 5), np.repeat(one.A, 5, 0), np.repeat(one.b, 5, 0), np.full(5, 0.2)
    )
    exact = end(world, name, "mean", 20)
    for rule in RULES:
        np.testing.assert_allclose(end(world, name, rule, 20), exact, atol=1e-6, err_msg=rule)


def test_every_averaging_method_takes_every_rule_and_the_others_refuse() -> None:
    for name in METHODS:
        for rule in NAMES:
            if name in AVERAGING:
                made = method_from(name, {"aggregate": rule})
                assert isinstance(made.aggregate, Aggregator)  # type: ignore[attr-defined]
                assert method_from(name, to_table(made)) == made
            else:
                with pytest.raises(st.SartorError, match="takes no mean"):
                    method_from(name, {"aggregate": rule})
    assert {"fedamp", "heurfedamp", "local"} <= set(METHODS) - set(AVERAGING)
