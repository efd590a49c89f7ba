"""What earlier versions have left is read by this one: a recipe, a run's folder, its models and its checkpoint.

store.py made the folders. Once released they are never made anew: where a version gives other numbers on purpose,
CHANGELOG.md says so, and the line here that shows it is changed together with it.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from commandline import good, sartor

from sartor import __version__
from sartor.run.recipe import Recipe

VERSIONS = sorted(p.parent for p in Path(__file__).parent.glob("*/expected.json"))
pytestmark = pytest.mark.parametrize("stored", VERSIONS, ids=lambda p: p.name)


@pytest.fixture
def folder(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy in which commands run, as they did when it was made."""
    shutil.copytree(stored, tmp_path / "stored", copy_function=shutil.copyfile)
    monkeypatch.chdir(tmp_path / "stored")
    return Path()


def same(run: str, model: str, expected: list[str]) -> None:
    answer = sartor("predict", "--run", run, "--data", "new.csv", "--probabilities", "--model", model)
    assert answer.code == 0, answer.err
    ours = [row for row in csv.DictReader(answer.out.splitlines()) if "unknown client" not in row["model"]]
    theirs = list(csv.DictReader(expected))
    assert [row["prediction"] for row in ours] == [row["prediction"] for row in theirs] and len(ours) >= 4
    for mine, wanted in zip(ours, theirs, strict=True):
        for name in ("p(ill)", "p(well)"):
            assert float(mine[name]) == pytest.approx(float(wanted[name]), abs=1e-5), (model, mine, wanted)


def test_its_models_predict_what_they_predicted(stored: Path, folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    for model in ("personal", "global"):
        same("run", model, expected["run"][model])


def test_its_run_goes_on_to_where_it_would_have_come(stored: Path, folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    assert expected["run"] != expected["whole"]
    good("run", "--resume", "run", "--rounds", 6, "--quiet")
    assert json.loads((folder / "run" / "summary.json").read_text(encoding="utf-8"))["rounds"] == 6
    for model in ("personal", "global"):
        same("run", model, expected["whole"][model])


def test_its_report_is_written_anew(stored: Path, folder: Path) -> None:
    good("report", "run")
    page = (folder / "run" / "report.html").read_text(encoding="utf-8")
    assert "flame" in page and all(ward in page for ward in ("north", "south", "east", "west"))


def test_its_recipe_means_the_same(stored: Path, folder: Path) -> None:
    """Written by hand or by the run: the settings that were asked for, all of them."""
    by_hand, by_run = Recipe.load(folder / "recipe.toml"), Recipe.load(folder / "run" / "recipe.toml")
    for recipe in (by_hand, by_run):
        assert (recipe.method, recipe.model, recipe.rounds, recipe.seed) == ("flame", "mlp(8)", 4, 5)
        assert (recipe.target, recipe.client_key, recipe.cohort) == ("outcome", "ward", 3)
        assert (recipe.calibrate, recipe.evaluate_every) == ("temperature", 2)
        assert recipe.compress.startswith("top-k(k=0.5")


def test_this_version_has_left_its_folder(stored: Path) -> None:
    """Every release stores one: python tests/compatibility/store.py."""
    assert __version__ in {p.name for p in VERSIONS}
