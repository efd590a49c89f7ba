"""From kept runs to numbers and verdicts: which round is read, means over seeds, the best of a grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commandline import good
from small_experiment import SMALL, table, times, write

from sartor.papers.reproduce import Reproduction, Size, checked
from sartor.papers.reproduce.cells import PaperCell
from sartor.papers.reproduce.experiment import Reading
from sartor.papers.reproduce.values import (
    AGREES,
    HIGHER,
    LOWER,
    OTHER_DATA,
    Value,
    one,
    over_seeds,
    score,
    verdict,
    where_in,
)


def a_run(**changed: Any) -> dict[str, Any]:
    """A history of four rounds."""
    column = {"accuracy": [0.1, 0.7, 0.6, 0.5], "pooled": [0.2, 0.6, 0.8, 0.4], "validation": [0.1, 0.2, 0.9, 0.9]}
    column |= {"std": [0.01] * 4, "loss": [1.0, 2.0, 3.0, 4.0], "loss_var": [0.5] * 4}
    oracle = {k: [v + 0.01 for v in values] for k, values in column.items()} | {"validation": [None] * 4}
    run = {"rounds": [5, 10, 15, 20], "bytes": [400, 800, 1200, 1600], "recipe": {"dtype": "float32", "seed": 0}}
    return run | {"models": {"personal": column, "chosen": column, "oracle": oracle}} | changed


CELL = PaperCell({"dataset": "digits", "method": "flame"}, "personal")


def read(cell: PaperCell = CELL, **reading: Any) -> float | None:
    found = one(a_run(), cell, Reading(**reading))
    assert found is not None
    return found["value"]


def test_which_round_is_read() -> None:
    assert read(round="last") == 0.5
    assert read(round="best") == 0.6  # of two equals on validation data the first
    assert read(round="best-test") == 0.7
    assert read(round="best-test", accuracy="pooled") == 0.8
    assert read(round="best-test", first_round=15) == 0.6
    assert read(round="best-test", first_round=100) == 0.5  # there is always the last
    chosen = PaperCell(CELL.keys, "chosen")
    assert read(chosen, choice="test") == pytest.approx(0.51) and read(chosen) == 0.5
    assert one(a_run(), PaperCell(CELL.keys, "global"), Reading()) is None
    blind = a_run()
    blind["models"]["personal"]["validation"] = [None] * 4
    assert where_in(blind, "personal", Reading(round="best")) == 3


def test_budgets_and_targets_in_bytes_and_in_floats() -> None:
    assert read(PaperCell(CELL.keys, "personal", budget=850)) == 0.7
    assert read(PaperCell(CELL.keys, "personal", budget=399)) is None
    assert read(PaperCell(CELL.keys, "personal", budget=300), bytes="floats") == 0.6
    assert read(PaperCell(CELL.keys, "personal", target=0.6)) == 800
    assert read(PaperCell(CELL.keys, "personal", target=0.6), bytes="floats") == 200
    assert read(PaperCell(CELL.keys, "personal", target=0.99)) is None


def test_over_seeds_in_the_unit_of_the_paper() -> None:
    cell = PaperCell(CELL.keys, "personal", unit="percent", paper=52.0)
    other = a_run(recipe={"seed": 4})
    other["models"]["personal"]["accuracy"] = [0.1, 0.7, 0.6, 0.54]
    found = over_seeds([a_run(), other], cell, Reading())
    assert found is not None
    assert found.mean == pytest.approx(52.0) and found.std == pytest.approx(2 * 2**0.5)
    assert found.spread == pytest.approx(1) and found.each == pytest.approx({"0": 50.0, "4": 54.0})
    single = over_seeds([a_run()], cell, Reading())
    assert single is not None and single.std is None and single.seeds == 1
    assert score([a_run()], "personal", Reading(round="best"), "validation") == 0.9
    assert score([a_run()], "personal", Reading(round="best-test"), "test") == 0.7


def said(mean: float | None, std: float | None = None, **cell: Any) -> str:
    return verdict(PaperCell(CELL.keys, "personal", **cell), Value(mean, std, 3, None, None, None, None, {}))


def test_verdicts() -> None:
    assert said(0.909, paper=0.9) == AGREES and said(0.9101, paper=0.9) == HIGHER and said(0.8899, paper=0.9) == LOWER
    assert said(0.91, paper=0.9) == AGREES  # a point, exactly
    assert said(0.939, std=0.02, paper=0.9) == AGREES and said(0.941, std=0.02, paper=0.9) == HIGHER
    assert said(0.861, paper=0.9, paper_std=0.02) == AGREES and said(0.859, paper=0.9, paper_std=0.02) == LOWER
    assert said(90.9, paper=90.0, unit="percent") == AGREES and said(91.1, paper=90.0, unit="percent") == HIGHER
    assert said(0.1, paper=0.9, differs="a subset") == OTHER_DATA
    assert said(0.1) == "no printed number"
    assert verdict(PaperCell(CELL.keys, "personal", paper=0.9), None) == "not run"
    bytes_ = {"unit": "bytes", "target": 0.6}
    assert said(4660, paper=4620.0, **bytes_) == AGREES and said(4700, paper=4620.0, **bytes_) == HIGHER
    assert said(None, printed="*", **bytes_) == AGREES and said(4620, printed="*", **bytes_) == LOWER
    assert said(None, paper=4620.0, **bytes_) == HIGHER
    assert said(None, printed="*", budget=10) == AGREES and said(0.5, printed="*", budget=10) == HIGHER
    assert said(None, paper=0.5, budget=10) == LOWER


def test_the_grid_s_best_is_chosen_on_validation_data_only(tmp_path: Path) -> None:
    """Test scores that say the opposite change nothing; authors who tuned on test data get what those say."""
    path = write(tmp_path, SMALL.replace('why = "the anchor is global"', 'why = "tuned on test data"\ntune = "test"'))
    experiment = checked(str(path))
    made = Reproduction(experiment, Size.of(experiment, False, only={"method": ["ditto"]}), tmp_path / "out")
    for entry in made.entries.values():
        for job in entry.first():
            small = job.recipe.settings.get("lam") == 0.01
            run = a_run(recipe=job.recipe.values(), data={"name": "digits", "samples": 1797})
            column = run["models"]["personal"]
            column["validation"] = [0.9 if small else 0.2] * 4
            column["accuracy"] = [0.2 if small else 0.9] * 4
            made.store.put(job.key, run)
    rows = {c["row"]: c for c in made.table()["cells"]}
    assert rows["Ditto"]["tuned"] == {"lam": 0.01} and rows["Ditto"]["ours"] == 20
    assert rows["Ditto"]["tuned_authors"] == {"lam": 0.5} and rows["Ditto"]["ours_authors"] == 90


def test_a_grid_searched_with_few_seeds_is_run_with_all_of_them_where_it_is_best(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL.replace("seeds = [0, 1]", "seeds = [0, 1, 2]\ntune_seeds = 1"))
    good("reproduce", path, "--only", "method=ditto", "--only", "lam=best", "--out", tmp_path / "out")
    rows = table(tmp_path / "out")["cells"]
    assert (
        rows[0]["seeds"] == 3 and len(times(tmp_path / "out")) == 2 + 2
    )  # two values with one seed, the best with two more
