"""Samples for a model that is trained, from files that do not fit it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commandline import QUICK, good, hospitals, refused

from sartor.data.inputs import Inputs
from sartor.data.tables.new_samples import read_like
from sartor.errors import SartorError


def test_a_text_column_for_a_model_of_arrays(tmp_path: Path) -> None:
    (tmp_path / "later.csv").write_text("a,b\n1,2\n3,east\n")
    with pytest.raises(SartorError, match="column b must be numbers; got 'east'"):
        read_like(tmp_path / "later.csv", Inputs((2,), 2))


def test_a_text_target_for_a_model_of_numbers(tmp_path: Path) -> None:
    (tmp_path / "later.csv").write_text("a,b,y\n1,2,high\n")
    with pytest.raises(SartorError, match="column y must be numbers; got 'high'"):
        read_like(tmp_path / "later.csv", Inputs((2,), None), target="y")


@pytest.mark.parametrize(
    "change",
    [
        {"shape": []},
        {"shape": [2, 2]},
        {"shape": [10**12]},
        {"classes": 2.0},
        {"how": "nan"},
        {"names": ["A"]},
        {"ends": [1.0]},
        {"target_scale": [0.0]},
        {"target_scale": [0.0, 0.0]},
    ],
)
def test_inputs_that_contradict_themselves(change: dict[str, object], tmp_path: Path) -> None:
    table, run = hospitals(tmp_path / "visits.csv", each=20), tmp_path / "run"
    own = ("--target", "outcome", "--client-key", "hospital")
    good("run", *QUICK, "--data", table, *own, "--quiet", "--out", run)
    found = json.loads((run / "inputs.json").read_text())
    (run / "inputs.json").write_text(json.dumps(found | change))
    assert "inputs.json" in refused("predict", "--run", run, "--data", table)
    (run / "inputs.json").write_text(json.dumps(found))
    text = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(text.replace('"softmax"', '"mlp(7)"'))
    assert "do not fit its recipe.toml" in refused("predict", "--run", run, "--data", table)
