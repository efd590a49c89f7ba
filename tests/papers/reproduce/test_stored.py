"""`sartor reproduce --stored`: a stored table is gone on with, where it is of the same settings; what is in the
package is of the recipes as they stand."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from commandline import good, refused
from small_experiment import SMALL, table, write

from sartor.papers.reproduce import Reproduction, Size, checked, document, figures
from sartor.report import page

ONE_SEED_SEARCHED = SMALL.replace("seeds = [0, 1]", "seeds = [0, 1, 2]\ntune_seeds = 1")


def played(path: Path, folder: Path, seeds: int, stored: dict[str, Any] | None = None) -> tuple[dict[str, Any], int]:
    """The table of so many seeds, and how many runs were played for it."""
    experiment = checked(str(path))
    made = Reproduction(experiment, Size.of(experiment, False, seeds), folder, stored=stored)
    ended = [m for m in made.play() if m.record is not None]
    return made.table(), len(ended)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """An experiment and its stored table of one seed, read back from the file."""
    folder = tmp_path_factory.mktemp("recorded")
    path = write(folder, ONE_SEED_SEARCHED)
    made, _ = played(path, folder / "one", 1)
    document.record(made, folder)
    found = document.stored("small", "full", folder)
    assert found is not None
    return path, found


def test_what_is_stored_and_what_is_played_make_the_table_of_all_seeds(
    recorded: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    path, before = recorded
    whole, runs = played(path, tmp_path / "whole", 3)
    rest, fewer = played(path, tmp_path / "rest", 3, before)
    # FLAME twice, Ditto with a grid of two (the authors' switches choose on other rounds), Ditto at 0.5.
    assert 0 < fewer < runs and fewer == whole["runs"] - before["runs"]
    assert rest["missing"] == 0 and rest["runs"] == whole["runs"]
    for a, b in zip(rest["cells"], whole["cells"], strict=True):
        assert {k: v for k, v in a.items() if not isinstance(v, float | dict)} == {
            k: v for k, v in b.items() if not isinstance(v, float | dict)
        }
        for key in ("ours", "std", "spread", "loss", "loss_var", "round"):
            for name in (key, f"{key}_authors"):
                assert (a[name] is None) == (b[name] is None)
                assert a[name] is None or a[name] == pytest.approx(b[name], rel=2e-4)
        assert a["each"] == b["each"] and a["tuned"] == b["tuned"]
    assert any(c["tuned"] for c in rest["cells"]) and any(c["std"] for c in rest["cells"])


def test_nothing_is_played_where_all_is_stored(recorded: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path, before = recorded
    again, runs = played(path, tmp_path, 1, before)
    assert runs == 0 and again["cells"] == before["cells"] and again["data"] == before["data"]


def test_numbers_of_other_settings_are_not_taken_over(recorded: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    before = recorded[1]
    other = write(tmp_path, ONE_SEED_SEARCHED.replace("rho = 0.1", "rho = 0.2"))
    made, runs = played(other, tmp_path / "out", 1, before)
    rows, old = ({c["row"]: c for c in t["cells"]} for t in (made, before))
    assert runs == 2  # FLAME, as written and with the authors' switches; Ditto is as it was
    assert rows["FLAME-PM"]["ours"] != old["FLAME-PM"]["ours"] and rows["Ditto"] == old["Ditto"]


def test_a_grid_that_was_searched_otherwise_is_searched_again(
    recorded: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    wider = write(tmp_path, ONE_SEED_SEARCHED.replace("lam = [0.01, 0.5]", "lam = [0.01, 0.1, 0.5]"))
    made, runs = played(wider, tmp_path / "out", 1, recorded[1])
    assert runs == 3 and made["missing"] == 0


def test_more_seeds_than_asked_for_are_not_taken_over(recorded: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path, _ = recorded
    two, runs = played(path, tmp_path / "two", 2)
    one, again = played(path, tmp_path / "one", 1, two)
    assert 0 < again < runs and one["cells"][0]["seeds"] == 1


def test_where_nothing_is_stored(tmp_path: Path) -> None:
    said = refused("reproduce", write(tmp_path), "--stored", "--out", tmp_path / "out")
    assert "small has no stored results; remove --stored." in said


STORED = sorted(p.name for p in document.RESULTS.glob("*.json"))


@pytest.mark.parametrize("file", STORED)
def test_the_stored_results_are_of_the_recipes_as_they_are(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --stored and no time to play, the command beside a table gives it back: cell by cell, nothing left out."""
    monkeypatch.setattr(figures, "draw", lambda *_: None)
    monkeypatch.setattr(page, "write", lambda *_: None)
    name, *size, _ = file.split(".")
    before = document.stored(name, size[0] if size else "full")
    assert before is not None
    good(*shlex.split(before["command"])[1:], "--stored", "--minutes", 0, "--quiet", "--out", tmp_path)
    for new, old in zip(table(tmp_path)["cells"], before["cells"], strict=True):
        for key in ("ours", "ours_authors", "verdict", "verdict_authors", "each", "each_authors", "paper", "row"):
            assert new[key] == old[key], (key, new["row"])
