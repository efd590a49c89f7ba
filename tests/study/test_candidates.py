"""What `advise` tries: linear models to the end, and networks that are trained neither too short nor too long."""

from __future__ import annotations

import pytest

from sartor.methods.mixed_effects import LARGEST
from sartor.run.complete import resolve, unsplit
from sartor.run.recipe import Recipe
from sartor.study.candidates import NETWORKS, ROWS_FOR_A_NETWORK, candidates

TABLE = Recipe(data="rows.csv", target="y", client_key="site", rounds=30)


def test_networks_are_tried_where_there_are_rows_for_them() -> None:
    few, many = (candidates(TABLE, None, 3, rows, 100) for rows in (ROWS_FOR_A_NETWORK - 1, ROWS_FOR_A_NETWORK))
    assert list(few) == [name for name in many if "mlp" not in name]
    assert [name for name in many if "mlp" in name] == [f"{m}, mlp(32)" for m in NETWORKS]
    assert next(iter(many)) == "local"  # the simplest first
    chosen = candidates(TABLE.replace(model="softmax"), None, 3, ROWS_FOR_A_NETWORK, 100)
    assert list(chosen) == list(few)


@pytest.mark.parametrize("method", NETWORKS)
def test_a_network_s_steps_become_shorter_and_its_best_round_is_taken(method: str) -> None:
    one = candidates(TABLE, None, 3, ROWS_FOR_A_NETWORK, 100)[f"{method}, mlp(32)"]
    next(one.settings)  # the defaults
    settings = next(one.settings)
    assert 1e-4 <= settings["solver.weight_decay"] <= 3e-2
    made = resolve(one.recipe(TABLE, settings))
    assert made.report == "best" and made.evaluate_every == 5 and made.model == "mlp(32)"
    solver = made.settings["solver"]
    assert solver["decay"] ** 30 == pytest.approx(0.1) and solver["weight_decay"] == settings["solver.weight_decay"]
    assert "decay" not in made.settings.get("finetune", {})  # which comes after the last round
    assert made.parts == TABLE.parts  # some samples are there to choose the round by


def test_on_a_wide_table_the_pooled_model_is_found_by_gradients() -> None:
    """Methods that send curvatures take no more than 3,000 parameters; Ditto's global model is one of them else."""
    narrow, wide = (candidates(TABLE, None, 3, 100, parameters) for parameters in (LARGEST, LARGEST + 1))
    assert "fednewton" in narrow and "fedlbfgs" not in narrow
    assert {"fednewton", "mixed-effects"}.isdisjoint(wide) and not wide["fedlbfgs"].by_steps
    for one in (narrow["ditto"], wide["ditto"]):
        made = resolve(one.recipe(TABLE, next(one.settings)))
        assert made.settings["solver"]["kind"] == "newton" and not one.by_steps
        assert made.settings["global_method"]["method"] == ("fedlbfgs" if one is wide["ditto"] else "mixed-effects")
    steps = resolve(wide["flame"].recipe(TABLE, next(wide["flame"].settings)))
    assert steps.settings["solver"]["kind"] == "sgd" and wide["flame"].by_steps and not unsplit(steps)
    assert "solver.lr" in next(wide["flame"].settings)
