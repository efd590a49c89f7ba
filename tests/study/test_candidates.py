"""What `advise` tries: linear models to the end, and networks that are trained neither too short nor too long."""

from __future__ import annotations

import pytest

from sartor.methods.mixed_effects import LARGEST
from sartor.run.assemble import resolve, unsplit
from sartor.run.recipe import Recipe
from sartor.study.candidates import NETWORKS, ROWS_FOR_A_NETWORK, by_steps_if_wide, candidates

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


def test_on_a_wide_table_everything_is_trained_by_steps_and_a_pooled_model_is_among_them() -> None:
    """Methods that send curvatures take no more than 3,000 parameters, and the others' step sizes are tuned."""
    narrow, wide = (candidates(by_steps_if_wide(TABLE, p), None, 3, 100, p) for p in (LARGEST, LARGEST + 1))
    assert "fednewton" in narrow and not narrow["ditto"].by_steps
    assert {"fednewton", "mixed-effects"}.isdisjoint(wide) and "fedadam" in wide
    assert all(one.by_steps for one in wide.values())
    assert all("solver.lr" in list(one.settings)[1] for one in wide.values())
    assert not unsplit(by_steps_if_wide(TABLE.replace(method="ditto"), LARGEST + 1))  # takes as many steps as all
