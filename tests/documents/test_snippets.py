"""The Python of docs/own-data.md runs; the README's four commands and the tutorial, from an empty folder."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from commandline import good, sartor
from snippets import blocks

from sartor.data import hospitals
from sartor.run.recipe import Recipe


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
    assert "column age, glucose, pressure, pulse, sodium: numbers, to scale by the mean and standard deviation" in said
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
    assert bmi["missing"] and len(bmi["fill"]) == 1 and np.isfinite(bmi["spread"]).all()  # one scale for all


# --- the tutorial -----------------------------------------------------------------------------------------------------


def rows(text: str) -> set[tuple[str, ...]]:
    """The lines of tables, by their words; numbers with three digits."""
    lines = (line.replace(",", " ").split() for line in text.splitlines())
    return {tuple(re.sub(r"^(0\.\d{3})\d+$", r"\1", word) for word in line) for line in lines}


@pytest.mark.long
def test_the_tutorial_from_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands one after the other, as they stand on the page; and what they print is what the page shows."""
    monkeypatch.chdir(tmp_path)
    page = "docs/getting-started.md"
    lines = "".join(blocks(page, "")).replace("\\\n", "").splitlines()
    said, asked = "", [shlex.split(line, comments=True) for line in lines]
    assert [words[:2] for words in asked[:2]] == [["pip", "install"], ["sartor", "doctor"]]
    for program, *words in asked[1:]:
        if program == "python":
            assert words == ["-m", "sartor.data.hospitals"]
            hospitals.write(Path())
        else:
            answer = sartor(*words)
            assert program == "sartor" and answer.code == 0, answer
            said += answer.out
    run, comparison, warning, predictions = blocks(page, "text")
    assert rows(run) <= rows(said) and rows(predictions) <= rows(said)
    shown = {row[:-1] for row in rows(comparison) if row and row[0] in ("flame", "ditto", "fedavg", "local")}
    assert len(shown) == 4 and shown <= {row[:-1] for row in rows(said)}  # but for the seconds
    assert " ".join(warning.split()) in " ".join(said.split())
    assert json.loads((tmp_path / "runs" / "first" / "compare.json").read_text())
