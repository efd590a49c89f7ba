"""The Python of the documents runs, and what they say of it holds; the README's four commands, from an empty folder."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
import torch
from commandline import good, sartor
from sites import NAMES as SITES
from sites import SMALL, Federation, tables

import sartor as st
from sartor import methods
from sartor.data import hospitals
from sartor.run.assemble import clients_of
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe
from sartor.run.result import Result
from sartor.study.compare import compare
from sartor.testing import PROPERTIES

ROOT = Path(__file__).parents[2]


def blocks(path: str, kind: str = "python") -> list[str]:
    """The blocks of code of a kind; between two blocks is text."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / path).read_text(encoding="utf-8"), re.S | re.M)
    return [code for its, code in found if its == kind]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Everything that docs/write-a-method.md leaves behind, with its method in the table of names."""
    module = types.ModuleType("mine")
    space = module.__dict__
    with pytest.MonkeyPatch.context() as here:
        here.chdir(tmp_path_factory.mktemp("mine"))
        here.setitem(methods.NAMES, "halfway", methods.NAMES["local"])  # so that it is gone afterwards
        here.setitem(sys.modules, "mine", module)
        here.setattr(sys, "stdout", said := io.StringIO())
        for i, code in enumerate(blocks("docs/write-a-method.md")):
            exec(compile(code, f"write-a-method.md, block {i + 1}", "exec", dont_inherit=True), space)
        assert methods.NAMES["halfway"].make is space["Halfway"]
        here.undo()
        here.setitem(methods.NAMES, "halfway", methods.Entry(space["Halfway"], "-", "-"))
        yield space | {"said": said.getvalue()}


def test_the_method_of_the_document_has_thirty_lines_and_every_property(written: dict[str, Any]) -> None:
    code = blocks("docs/write-a-method.md")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 32
    assert written["said"].startswith(str(list(PROPERTIES)))
    assert written["own"].summary["chosen"]["accuracy_mean"] > 0.5
    x = written["clients"].x[:4]
    assert torch.equal(written["again"](x), written["own"].chosen(3)(x))


def test_its_limits_are_local_training_and_fedavg(written: dict[str, Any]) -> None:
    """a = 0: everybody alone. a = 1 on everyone: FedAvg with equal weights. Bit for bit."""
    clients, model, Halfway = written["clients"], written["model"], written["Halfway"]
    alone, lone = (st.fit(m, model, clients, rounds=3) for m in (Halfway(a=0.0), st.LocalOnly()))
    together, mean = (st.fit(m, model, clients, rounds=3) for m in (Halfway(a=1.0), st.FedAvg(weighting="uniform")))
    for a, b in zip(alone.personal(4).parameters(), lone.personal(4).parameters(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(together.shared().parameters(), mean.shared().parameters(), strict=True):
        assert torch.equal(a, b)


def test_it_is_compared_and_reported_like_the_others(written: dict[str, Any], tmp_path: Path) -> None:
    base = Recipe(model="softmax", rounds=2, clients=4)
    *_, step = compare(base, ["halfway", "local"], [0], st.data.load("digits"), tmp_path / "c", {"halfway": {"a": 0.3}})
    assert [s["method"] for s in step.table.summaries()] == ["halfway", "local"]
    assert Recipe.load(tmp_path / "c" / "halfway-0" / "recipe.toml").settings["a"] == 0.3
    hostile = ("--attack", "alie", "--attackers", 0.3, "--aggregator", "median")
    said = good(
        "compare", "--methods", "halfway,local", "--model", "softmax", "--rounds", 2, "--seeds", 0, *hostile
    ).out
    assert "halfway" in said


def test_it_runs_in_a_federation_with_the_same_numbers(written: dict[str, Any], tmp_path: Path) -> None:
    recipe = Recipe(method="halfway", settings={"a": 0.3}, **SMALL)
    paths = tables(tmp_path / "data")
    result = Federation(tmp_path, recipe, paths).play()
    own = {"data": str(paths["all"]), "target": "outcome", "client_key": "hospital", "engine": "serial"}
    simulated = recipe.replace(**own)
    *_, wanted = play_recipe(simulated, clients_of(simulated), None)
    assert isinstance(wanted, Result) and wanted.data.names == list(SITES)
    for a, b in zip(result.shared().parameters(), wanted.shared().parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_the_scikit_learn_of_the_document_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = [b for b in blocks("docs/own-data.md") if "sklearn" in b]
    assert len(code) == 1
    try:
        space: dict[str, Any] = {}
        exec(compile(code[0], "own-data.md", "exec"), space)
    finally:
        sklearn.set_config(enable_metadata_routing=False)
    assert "'lam'" in capsys.readouterr().out and "Seaside" in space["model"].guests_


# --- the README's four commands ---------------------------------------------------------------------------------------


def commands() -> list[list[str]]:
    found = [b for b in blocks("README.md", "") if "sartor advise" in b]
    assert len(found) == 1
    return [shlex.split(line, comments=True) for line in found[0].splitlines() if line.strip()]


@pytest.mark.long
def test_from_an_empty_folder_to_a_prediction_in_four_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they stand in the README, but with half a second for the advice in place of minutes, and one cut."""
    make, ask, play, serve = commands()
    monkeypatch.chdir(tmp_path)
    assert make == ["python", "-m", "sartor.data.hospitals"] and not list(tmp_path.iterdir())
    hospitals.write(Path())
    minutes = ask.index("--minutes") + 1
    said = " ".join(good(*ask[1:minutes], "0.01", *ask[minutes + 1 :], "--cuts", 1).out.split())
    assert "column age, glucose, pressure, pulse, sodium: numbers, to scale by each client's own mean" in said
    assert "Recommended: " in said and "On test data, which had no part in this" in said
    said = good(*play[1:]).out
    assert "St. Mary" in said and (tmp_path / "run" / "report.html").stat().st_size > 10_000
    answer = sartor(*serve[1:])
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert answer.code == 0 and [r["hospital"] for r in rows] == ["St. Mary", "Park", "Seaside"]
    assert all(r["prediction"] in ("home", "readmitted") and 0.5 <= float(r["probability"]) <= 1 for r in rows)
    assert "'Seaside' took no part" in answer.err
    advice = json.loads((tmp_path / "advice" / "advise.json").read_text())
    assert Recipe.load(tmp_path / "run" / "recipe.toml").method == advice["recommended"]
    inputs = json.loads((tmp_path / "run" / "inputs.json").read_text())
    bmi = next(c for c in inputs["columns"] if c["name"] == "bmi")
    assert bmi["missing"] and len(bmi["fill"]) == 12 and np.isfinite(bmi["spread"]).all()
