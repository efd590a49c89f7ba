"""`sartor reproduce` from beginning to end on a small experiment: runs are kept and gone on with, the table and the
document say what came out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from commandline import good, killed, refused
from pages import Page
from small_experiment import SMALL, table, times, write

from sartor.judge.metrics import MODELS, ORACLE
from sartor.papers.reproduce import Size, checked
from sartor.papers.reproduce.cells import all_cells
from sartor.papers.reproduce.mapping import TableColumn
from sartor.papers.reproduce.runs import FinishedRuns
from sartor.papers.reproduce.table import ColumnRuns
from sartor.papers.reproduce.values import HIGHER
from sartor.run.complete import clients_of
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe


def test_the_table_has_three_columns_and_a_verdict_for_every_cell(finished: tuple[Path, Path]) -> None:
    found = table(finished[1])
    rows = {c["row"]: c for c in found["cells"]}
    assert list(rows) == ["FLAME-PM", "FLAME-GM", "FLAME-HM", "Ditto", "Ditto 0.5", "Ditto, CelebA"]
    fields = {"dataset", "partition", "method", "model", "paper", "ours", "ours_authors", "std", "seeds", "verdict"}
    assert all(fields <= set(c) for c in found["cells"])
    assert rows["FLAME-GM"]["verdict"] == HIGHER and 5 < rows["FLAME-GM"]["ours"] <= 100
    assert rows["FLAME-PM"]["seeds"] == 2 and rows["FLAME-PM"]["std"] > 0
    assert rows["FLAME-PM"]["ours_authors"] != rows["FLAME-PM"]["ours"]  # another anchor
    assert rows["Ditto"]["tuned"]["lam"] in (0.01, 0.5) and rows["Ditto 0.5"]["tuned"] is None
    assert rows["Ditto"]["untuned"] is None
    assert rows["Ditto, CelebA"]["verdict"] == "not run: CelebA is not one of our data sets"
    assert rows["FLAME-HM"]["ours_authors"] >= max(rows["FLAME-PM"]["ours_authors"], rows["FLAME-GM"]["ours_authors"])
    assert sum(found["counts"].values()) == 6
    files = {"table.json", "table.md", "table.csv", "figure.png", "report.html"}
    assert {p.name for p in finished[1].iterdir()} == {"runs", *files}


def test_the_page_of_an_experiment(finished: tuple[Path, Path]) -> None:
    page, found = Page((finished[1] / "report.html").read_text()), table(finished[1])
    page.is_self_contained()
    for name in page.charts:
        page.drawn(name)
    assert {"agreement", "accuracy", "loss", "fairness"} == set(page.charts)
    printed = {c["row"]: (c["paper"], c["ours"], c["ours_authors"]) for c in found["cells"]}
    for row, *numbers in page.charts["agreement"]["table"]["rows"]:
        for shown, known in zip(numbers, printed[row], strict=True):
            assert (shown is None) == (known is None) and (known is None or shown == pytest.approx(known, rel=1e-5))
    assert found["command"] in page.text and any("@article{zhu2024flame" in text for text in page.text)


def test_a_cell_s_number_is_that_of_a_plain_run(finished: tuple[Path, Path]) -> None:
    """FLAME's global model as `sartor run` trains it, in the round that is best on validation data."""
    made = checked(str(finished[0]))
    expected = []
    for seed in (0, 1):
        column = TableColumn(made, all_cells(made)[1], False, Size.of(made, False))
        recipe = column.recipe({}, seed).replace(report="best")
        result = list(play_recipe(recipe, clients_of(recipe), None))[-1]
        scores = [(v, -i) for i, v in enumerate(_validation(recipe))]
        best = result.history[-max(scores)[1]]
        expected.append(100 * best["global"]["accuracy_mean"])
    row = table(finished[1])["cells"][1]
    assert row["ours"] == pytest.approx(np.mean(expected), rel=1e-4)
    assert row["std"] == pytest.approx(np.std(expected, ddof=1), rel=1e-4)


@pytest.mark.parametrize(
    ("scores", "worries"),
    [([0.9, 0.8], ["lam"]), ([0.8, 0.9], ["lam"]), ([0.9, 0.897], []), ([0.9, None], ["lam"])],
)
def test_an_end_of_a_grid_is_a_worry_where_the_next_value_is_worse(
    finished: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, scores: list[float | None], worries: list[str]
) -> None:
    made = checked(str(finished[0]))
    ditto = next(c for c in all_cells(made) if c.row == "Ditto")
    column = ColumnRuns(TableColumn(made, ditto, False, Size.of(made, False)))
    told = iter(scores)
    monkeypatch.setattr("sartor.papers.reproduce.table.score", lambda *_: next(told))
    column.choose(FinishedRuns(finished[1] / "runs"))
    assert column.winner is not None and column.ends == worries


def _validation(recipe: Recipe) -> list[float]:
    """The global model's mean validation accuracy in each round, from runs that end there."""
    found = []
    for rounds in range(1, recipe.rounds + 1):
        clients = clients_of(recipe)
        shorter = recipe.replace(rounds=rounds, report="last")
        result = list(play_recipe(shorter, clients, None))[-1]
        found.append(float(np.nanmean(result.run.scores["global/validation/accuracy"])))
    return found


def test_running_again_repeats_nothing_and_gives_the_same(finished: tuple[Path, Path]) -> None:
    path, out = finished
    before, first = times(out), (out / "table.json").read_bytes()
    answer = good("reproduce", path, "--out", out)
    assert times(out) == before and (out / "table.json").read_bytes() == first
    assert "repeats only what failed or is missing" in answer.out


def test_only_what_is_missing_or_cannot_be_read_is_repeated(finished: tuple[Path, Path]) -> None:
    path, out = finished
    first = (out / "table.json").read_bytes()
    gone, broken = sorted(p.name for p in (out / "runs").glob("*.json"))[:2]
    (out / "runs" / gone).unlink()
    (out / "runs" / broken).write_text("{", encoding="utf-8")
    before = times(out)
    good("reproduce", path, "--out", out)
    after = times(out)
    assert {name for name in after if after[name] != before.get(name)} == {gone, broken}
    assert (out / "table.json").read_bytes() == first


def test_what_another_experiment_has_finished_is_taken_over(
    finished: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In runs/reproduce, not where --out says; a run that failed or cannot be read is played."""
    monkeypatch.chdir(tmp_path)
    first = Path("runs", "reproduce", "first", "runs")
    shutil.copytree(finished[1] / "runs", first)
    failed, broken, *rest = sorted(first.glob("*.json"))
    failed.write_text(json.dumps({"recipe": {}, "error": "no room"}))
    broken.write_text("{")
    twin = write(Path("recipes"), name="twin")
    good("reproduce", twin)
    there = Path("runs", "reproduce", "twin")
    played = {k: json.loads((there / "runs" / k).read_text())["seconds"] for k in times(there)}
    assert set(played) == {p.name for p in (failed, broken, *rest)}
    assert all(played[p.name] == json.loads(p.read_text())["seconds"] for p in rest)
    assert [c["ours"] for c in table(there)["cells"]] == [c["ours"] for c in table(finished[1])["cells"]]
    good("reproduce", twin, "--out", tmp_path / "runs" / "reproduce" / "own", "--minutes", 0)
    assert not times(tmp_path / "runs" / "reproduce" / "own")


def test_when_time_is_up_the_table_says_what_is_missing(finished: tuple[Path, Path], tmp_path: Path) -> None:
    path, out = finished
    ask = ("reproduce", path, "--out", tmp_path, "--minutes")
    good(*ask, 0)
    assert table(tmp_path)["missing"] == len(times(out))
    assert {str(c["verdict"]).split(":")[0] for c in table(tmp_path)["cells"]} == {"not run"}
    answer = good(*ask, 1e-9)
    assert len(times(tmp_path)) == 1 and f"{len(times(out)) - 1} runs are missing" in answer.out
    assert "--minutes is at least 0" in refused(*ask, -1)


def test_a_part_of_a_grid_is_no_choice_and_a_part_of_the_seeds_is_said(
    finished: tuple[Path, Path], tmp_path: Path
) -> None:
    path, out = finished
    shutil.copytree(out / "runs", tmp_path / "runs")
    runs = {p: json.loads(p.read_text())["recipe"] for p in (tmp_path / "runs").glob("*.json")}
    gone = [p for p, r in runs.items() if r["seed"] == 1 and r["settings"].get("lam") == 0.01]
    gone += [p for p, r in runs.items() if r["seed"] == 1 and r["settings"].get("anchor") == "local"]
    assert len(gone) == 2
    for file in gone:
        file.unlink()
    good("reproduce", path, "--out", tmp_path, "--minutes", 0)
    before, after = ({c["row"]: c for c in table(folder)["cells"]} for folder in (out, tmp_path))
    assert after["Ditto"]["verdict"] == "not run" and before["Ditto"]["ours"] is not None
    assert after["Ditto 0.5"] == before["Ditto 0.5"]
    assert (after["FLAME-PM"]["seeds"], after["FLAME-PM"]["seeds_authors"]) == (1, 2)
    assert "(1 of 2 seeds)" in (tmp_path / "table.md").read_text() and table(tmp_path)["missing"] == 2


def test_a_killed_repetition_goes_on(finished: tuple[Path, Path], tmp_path: Path) -> None:
    path, out = finished
    kill = (
        "import sartor.papers.reproduce.runs as r\n"
        "put = r.FinishedRuns.put\n"
        "def stop(self, key, record):\n"
        "    if len(list(self.folder.glob('*.json'))) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    put(self, key, record)\n"
        "r.FinishedRuns.put = stop"
    )
    killed(kill, "reproduce", path, "--out", tmp_path)
    left = times(tmp_path)
    assert len(left) == 3
    good("reproduce", path, "--out", tmp_path)
    after = times(tmp_path)
    assert {n: after[n] for n in left} == left and len(after) == len(times(out))
    assert (tmp_path / "table.json").read_bytes() == (out / "table.json").read_bytes()


def test_a_run_that_fails_is_marked_and_only_it_is_tried_again(tmp_path: Path) -> None:
    """Ditto diverges with a step of this size; a cell whose data are not here fails too, and FLAME comes out."""
    path = write(tmp_path, SMALL + "\n[methods.ditto]\nsolver = { lr = 1e30 }\n")
    answer = good("reproduce", path, "--out", tmp_path / "out")
    rows = {c["row"]: c for c in table(tmp_path / "out")["cells"]}
    assert rows["Ditto 0.5"]["verdict"].startswith("failed: diverged") and rows["Ditto 0.5"]["ours"] is None
    assert rows["Ditto"]["verdict"].startswith("failed: diverged")
    assert rows["FLAME-PM"]["ours"] is not None
    assert "failed: diverged" in answer.out
    before = times(tmp_path / "out")
    good("reproduce", path, "--out", tmp_path / "out")
    after = times(tmp_path / "out")
    again = {name for name in after if after[name] != before[name]}
    kept = {p.name: json.loads(p.read_text()) for p in (tmp_path / "out" / "runs").glob("*.json")}
    assert again == {name for name, record in kept.items() if "error" in record} != set()


def test_a_data_set_that_is_not_on_the_machine_fails_its_cells_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SARTOR_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    more = '\n[[cells]]\ndataset = ["digits", "vehicle"]\npartition = "iid"\nmethod = "local"\nmodel = "personal"\n'
    path = write(tmp_path, SMALL.replace("seeds = [0, 1]", "seeds = [0]") + more)
    good("reproduce", path, "--only", "method=local", "--out", tmp_path / "out")
    rows = {c["dataset"]: c for c in table(tmp_path / "out")["cells"]}
    assert rows["digits"]["ours"] is not None
    assert rows["vehicle"]["verdict"].startswith("failed: vehicle is not found in")


def test_quick_only_seeds_rounds_and_model(tmp_path: Path) -> None:
    path = write(tmp_path)
    good("reproduce", path, "--quick", "--out", tmp_path / "a")
    found = table(tmp_path / "a")
    assert found["quick"] and {c["method"] for c in found["cells"]} == {"flame"} and found["seeds"] == 1
    assert found["command"] == "sartor reproduce small --quick"
    good("reproduce", path, "--quick", "--only", "method=ditto", "--only", "lam=best", "--out", tmp_path / "c")
    assert table(tmp_path / "c")["cells"][0]["untuned"] == {"lam": 0.5}  # a grid is not searched: its middle value
    assert "(lam = 0.5, not tuned)" in (tmp_path / "c" / "table.md").read_text(encoding="utf-8")
    only = ("--only", "model=personal", "--only", "method=flame")
    good("reproduce", path, *only, "--seeds", 3, "--rounds", 1, "--model", "mlp", "--out", tmp_path / "b")
    found = table(tmp_path / "b")
    assert [c["row"] for c in found["cells"]] == ["FLAME-PM"] and found["cells"][0]["seeds"] == 3
    assert found["command"] == f"sartor reproduce small --seeds 3 --rounds 1 --model mlp {' '.join(only)}"
    assert (found["rounds"], found["network"]) == (1, "mlp")
    kept = [json.loads(p.read_text()) for p in (tmp_path / "b" / "runs").glob("*.json")]
    assert {k["recipe"]["seed"] for k in kept} == {0, 1, 2} and {k["recipe"]["rounds"] for k in kept} == {1}
    assert {k["recipe"]["model"] for k in kept} == {"mlp"}


def test_the_json_of_the_command_line_is_the_table(finished: tuple[Path, Path]) -> None:
    path, out = finished
    assert json.loads(good("reproduce", path, "--out", out, "--json").out) == table(out)


def test_runs_on_other_data_of_the_same_name_are_not_mixed(tmp_path: Path) -> None:
    path = write(tmp_path)
    out = tmp_path / "out"
    good("reproduce", path, "--quick", "--out", out)
    first = sorted((out / "runs").glob("*.json"))
    record = json.loads(first[0].read_text())
    record["data"]["samples"] += 1
    first[0].write_text(json.dumps(record), encoding="utf-8")
    first[1].unlink()
    good("reproduce", path, "--quick", "--out", out)
    assert any("Choose another --out" in str(c["verdict"]) + str(c["verdict_authors"]) for c in table(out)["cells"])


def test_kept_runs_have_every_model_that_there_is(finished: tuple[Path, Path]) -> None:
    for path in (finished[1] / "runs").glob("*.json"):
        record = json.loads(path.read_text())
        assert record["rounds"] == [1, 2, 3] and set(record["models"]) == {*MODELS, ORACLE}
        assert path.stat().st_size < 20_000
