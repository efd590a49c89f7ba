"""What a recipe leaves open, and how it is filled: which runs solve their local problems to the end."""

from __future__ import annotations

from typing import Any

import pytest

from sartor.run.complete import resolve, to_the_end
from sartor.run.recipe import Recipe

TABLE: dict[str, Any] = {"data": "t.csv", "target": "y", "method": "ditto"}


def test_a_linear_model_of_a_table_is_solved_to_the_end() -> None:
    made = resolve(Recipe(**TABLE)).settings
    assert made["solver"]["kind"] == "newton" and made["global_method"]["method"] == "mixed-effects"
    assert made["global_method"]["random"] == "nothing"
    assert resolve(Recipe(**TABLE, solver={"ridge": 3.0})).settings["solver"]["ridge"] == 3.0
    assert resolve(Recipe(**TABLE, settings={"solver.ridge": 3.0})).settings["solver"]["ridge"] == 3.0
    assert resolve(Recipe(**TABLE | {"method": "pfedme"})).settings["R"] == 1
    assert resolve(resolve(Recipe(**TABLE))) == resolve(Recipe(**TABLE))


@pytest.mark.parametrize(
    "other",
    [
        {"target": None},
        {"model": "mlp"},
        {"method": "fedavg"},
        {"local_steps": 10},
        {"solver": {"lr": 0.1}},
        {"solver": {"kind": "sgd"}},
        {"settings": {"solver.lr": 0.1}},
        {"settings": {"global_solver.lr": 0.1}},
        {"settings": {"global_method": "scaffold"}},
        {"settings": {"weighting": "size"}},
        {"aggregator": "median"},
        {"attack": "sign-flip", "attackers": 0.2},
        {"dp_epsilon": 4.0},
        {"dp_noise": 1.0},
        {"compress": "int8"},
    ],
    ids=str,
)
def test_whatever_says_otherwise_keeps_the_steps_of_the_method(other: dict[str, Any]) -> None:
    recipe = Recipe(**TABLE | other)
    assert not to_the_end(recipe)
    assert resolve(recipe).settings["solver"]["kind"] == "sgd"
