"""A damaged folder is named with its file and field, and keeps what it holds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commandline import QUICK, files, good, hospitals, refused
from safetensors import safe_open
from safetensors.torch import load_file, save_file

OWN = ("--target", "outcome", "--client-key", "hospital")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("whole")
    table = hospitals(place / "visits.csv", each=20)
    good("run", *QUICK, "--data", table, *OWN, "--method", "fedamp", "--quiet", "--out", place / "run")
    scene = ("--methods", "fedavg,local", "--seeds", "0")
    good("compare", *QUICK, "--data", table, *OWN, *scene, "--quiet", "--out", place / "compare")
    for made in place.rglob("report.html"):
        made.unlink()
    return place


@pytest.fixture
def place(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "a")
    return tmp_path / "a"


def _changed(path: Path, change: Callable[[Any], Any]) -> None:
    value = json.loads(path.read_text())
    path.write_text(json.dumps(change(value)))


def _set(*where: Any, to: Any) -> Callable[[Any], Any]:
    def change(value: Any) -> Any:
        inner = value
        for key in where[:-1]:
            inner = inner[key]
        inner[where[-1]] = to
        return value

    return change


CASES: list[tuple[str, Callable[[Any], Any], tuple[str, ...]]] = [
    ("data.json", lambda v: [], ("data.json", "valid dictionary", "got []")),
    ("data.json", _set("samples", to="many"), ("data.json", "samples", "got 'many'")),
    ("data.json", _set("labels", to=[[1]]), ("data.json", "different lengths")),
    ("data.json", _set("measures", "samples", to=None), ("data.json", "measures", "no samples")),
    ("data.json", _set("measures", "emd_max", to=None), ("data.json", "no emd_max")),
    ("clients.json", lambda v: {"a": 1}, ("clients.json", "valid list")),
    ("clients.json", _set(1, "name", to=7), ("clients.json", "1.name", "got 7")),
    ("clients.json", _set(0, "chosen_test_accuracy", to="good"), ("clients.json", "0.chosen_test_accuracy")),
    ("summary.json", lambda v: 3, ("summary.json", "got 3")),
    ("summary.json", _set("personal", to=[]), ("summary.json", "personal", "got []")),
    ("summary.json", _set("personal", "accuracy_mean", to=1e300), ("summary.json", "accuracy_mean")),
    ("summary.json", _set("warnings", to="none"), ("summary.json", "warnings")),
    ("collaboration.json", _set("weights", to=[[1.0]]), ("collaboration.json", "different lengths")),
]


@pytest.mark.parametrize(("file", "change", "words"), CASES)
def test_a_report_names_the_file_and_the_field(
    file: str, change: Callable[[Any], Any], words: tuple[str, ...], place: Path
) -> None:
    _changed(place / "run" / file, change)
    before = files(place / "run")
    line = refused("report", place / "run")
    assert all(word in line for word in words) and "not as Sartor writes it" in line, line
    assert files(place / "run") == before


@pytest.mark.parametrize("text", ["", "{", "[" * 5000, "NaN", '{"a": Infinity}', "\udcff"])
@pytest.mark.parametrize("file", ["summary.json", "clients.json", "data.json", "history.jsonl"])
def test_files_that_are_no_json(file: str, text: str, place: Path) -> None:
    (place / "run" / file).write_bytes(text.encode("utf-8", "surrogateescape"))
    if file == "history.jsonl" and text == "":
        good("report", place / "run")  # a run that was never scored
    else:
        assert f"{file}" in refused("report", place / "run")


def test_a_comparison_whose_cell_is_damaged(whole: Path, place: Path) -> None:
    _changed(place / "compare" / "local-0" / "clients.json", lambda v: "gone")
    assert "clients.json" in refused("report", place / "compare")
    scene = ("--methods", "fedavg,local", "--seeds", "0", "--out", place / "compare")
    before = files(place / "compare")
    assert "clients.json" in refused("compare", *QUICK, "--data", whole / "visits.csv", *OWN, *scene)
    assert files(place / "compare") == before


def test_a_plan_of_another_type(place: Path) -> None:
    _changed(place / "compare" / "plan.json", _set("cells", 0, "attackers", to="few"))
    assert "cells.0.attackers" in refused("report", place / "compare")


def test_predictions_and_exports_of_damaged_folders(place: Path) -> None:
    call = ("predict", "--run", place / "run", "--data", place / "visits.csv")
    _changed(place / "run" / "clients.json", _set(0, "chosen", to="both"))
    assert "0.chosen" in refused(*call)
    assert "0.chosen" in refused("export", "--run", place / "run", "--client", "A", "--out", place / "a.safetensors")
    _changed(place / "run" / "clients.json", lambda v: [])
    assert "lacks clients" in refused(*call)


def test_a_checkpoint_without_a_tensor(place: Path) -> None:
    path = place / "run" / "state" / "checkpoint.safetensors"
    with safe_open(path, framework="pt") as f:
        note = f.metadata()
    tensors = load_file(path)
    save_file({k: v for k, v in tensors.items() if not k.startswith("client/state")}, path, metadata=note)
    before = files(place / "run")
    assert "was changed after it was written" in refused("run", "--resume", place / "run", "--rounds", 3)
    assert files(place / "run") == before
    about = json.loads(note["sartor"]) | {"round": "two"}
    save_file(tensors, path, metadata={"sartor": json.dumps(about)})
    assert "round: Input should be a valid integer" in refused("run", "--resume", place / "run", "--rounds", 3)


def test_a_tuning_of_another_type(tmp_path: Path) -> None:
    good(
        "tune", *QUICK, "--clients", 3, "--methods", "fedavg", "--budget", 1, "--seeds", 0, "--quiet", "--out", tmp_path
    )
    _changed(tmp_path / "tune.json", _set("methods", "fedavg", "best", to=3))
    before = files(tmp_path)
    assert "methods.fedavg.best" in refused("compare", "--tuned", tmp_path)
    again = ("--clients", 3, "--methods", "fedavg", "--budget", 1, "--seeds", 0, "--out", tmp_path)
    assert "methods.fedavg.best" in refused("tune", *QUICK, *again)
    assert files(tmp_path) == before


def test_runs_of_different_clients_beside_each_other(place: Path, tmp_path: Path) -> None:
    good("run", *QUICK, "--clients", 4, "--method", "local", "--quiet", "--out", tmp_path / "four")
    out = tmp_path / "both.html"
    good("report", place / "run", tmp_path / "four", "--out", out)
    assert "runs of different clients are beside each other" in out.read_text()
