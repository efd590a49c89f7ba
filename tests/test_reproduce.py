"""`sartor reproduce`: cells become runs, runs are kept and gone on with, numbers become verdicts, mistakes name their
line. Small experiments on the embedded digits, and every published cell made (not run)."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from commandline import good, killed, one_line, refused, sartor
from pages import Page

from sartor import recipe as recipe_module
from sartor.compare import play_recipe
from sartor.errors import SartorError
from sartor.recipe import Recipe
from sartor.reproduce import Reproduction, Size, checked, document, listing, names, outputs
from sartor.reproduce.cells import Cell, all_cells, matches
from sartor.reproduce.experiment import FOLDER, Reading, load, merged
from sartor.reproduce.lines import line_of
from sartor.reproduce.mapping import Column, key_of, place
from sartor.reproduce.runs import MODELS, job_of
from sartor.reproduce.values import AGREES, HIGHER, LOWER, OTHER_DATA, Value, one, over_seeds, score, verdict, where_in
from sartor.reproduce.workload import multiplications, seconds

WANTED = {
    *("flame-table3", "flame-robustness", "flame-fairness", "flame-parameters", "pfedme-table1", "ditto-robustness"),
    *("ditto-personalization", "ditto-lambda", "fedamp-table1", "fedamp-dirty", "fedamp-dropped"),
    *("lp-proj-communication", "lp-proj-robustness", "lp-proj-fairness"),
}

PUBLISHED = """
paper = "FLAME"
citation = "-"
where = "Table 0"
measure = "accuracy"
unit = "percent"
notes = []
differs.synthetic = "drawn anew"
[[cells]]
dataset = "digits"
partition = "labels(k=3)"
method = "flame"
model = "personal"
value = 95.0
std = 1.0
row = "FLAME-PM"
[[cells]]
dataset = "digits"
partition = "labels(k=3)"
method = "flame"
model = "global"
value = 5.0
row = "FLAME-GM"
[[cells]]
dataset = "digits"
partition = "labels(k=3)"
method = "flame"
model = "chosen"
value = 99.9
row = "FLAME-HM"
[[cells]]
dataset = "digits"
partition = "labels(k=3)"
method = "ditto"
lam = "best"
model = "personal"
value = 95.0
row = "Ditto"
[[cells]]
dataset = "digits"
partition = "labels(k=3)"
method = "ditto"
lam = 0.5
model = "personal"
value = 95.0
row = "Ditto 0.5"
[[cells]]
dataset = "CelebA"
available = false
partition = "natural"
method = "ditto"
model = "personal"
value = 91.0
row = "Ditto, CelebA"
[[claims]]
text = "all is well"
where = "Sec. 1"
orders = [[{ model = "personal", method = "flame" }, { model = "global", method = "flame" }]]
"""
SMALL = """
title = "A small experiment"
seeds = [0, 1]
remarks = ["Plain words."]
figure = "agreement"
[read]
round = "best"
[run]
clients = 5
rounds = 3
evaluate_every = 1
model = "softmax"
[run.solver]
lr = 0.1
batch = 20
[methods.flame]
lam = 0.5
rho = 0.1
[tune.ditto]
by = "personal"
lam = [0.01, 0.5]
[authors]
why = "the anchor is global"
[authors.read]
round = "best-test"
choice = "test"
[authors.methods.flame]
anchor = "global"
[quick]
only = { method = ["flame"] }
[quick.run]
rounds = 2
"""


def write(folder: Path, text: str = SMALL, published: str = PUBLISHED, name: str = "small") -> Path:
    (folder / "published").mkdir(parents=True, exist_ok=True)
    (folder / "published" / f"{name}.toml").write_text(published, encoding="utf-8")
    (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return folder / f"{name}.toml"


def table(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "table.json").read_text())
    return found


def times(folder: Path) -> dict[str, int]:
    return {p.name: p.stat().st_mtime_ns for p in (folder / "runs").glob("*.json")}


# --- from beginning to end --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("recipes")
    path = write(folder)
    good("reproduce", path, "--out", folder / "out")
    return path, folder / "out"


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
        column = Column(made, all_cells(made)[1], False, Size.of(made, False))
        recipe = column.recipe({}, seed).model_copy(update={"report": "best"})
        result = list(play_recipe(recipe, recipe.split(recipe.dataset()), None))[-1]
        scores = [(v, -i) for i, v in enumerate(_validation(recipe))]
        best = result.history[-max(scores)[1]]
        expected.append(100 * best["global"]["accuracy_mean"])
    row = table(finished[1])["cells"][1]
    assert row["ours"] == pytest.approx(np.mean(expected), rel=1e-4)
    assert row["std"] == pytest.approx(np.std(expected, ddof=1), rel=1e-4)


def _validation(recipe: Recipe) -> list[float]:
    """The global model's mean validation accuracy in each round, from runs that end there."""
    found = []
    for rounds in range(1, recipe.rounds + 1):
        clients = recipe.split(recipe.dataset())
        shorter = recipe.model_copy(update={"rounds": rounds, "report": "last"})
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
        "import sartor.reproduce.runs as r\n"
        "put = r.Store.put\n"
        "def stop(self, key, record):\n"
        "    if len(list(self.folder.glob('*.json'))) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    put(self, key, record)\n"
        "r.Store.put = stop"
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


def test_quick_only_seeds_and_rounds(tmp_path: Path) -> None:
    path = write(tmp_path)
    good("reproduce", path, "--quick", "--out", tmp_path / "a")
    found = table(tmp_path / "a")
    assert found["quick"] and {c["method"] for c in found["cells"]} == {"flame"} and found["seeds"] == 1
    assert found["command"] == "sartor reproduce small --quick"
    good("reproduce", path, "--quick", "--only", "method=ditto", "--only", "lam=best", "--out", tmp_path / "c")
    assert table(tmp_path / "c")["cells"][0]["untuned"] == {"lam": 0.5}  # a grid is not searched: its middle value
    assert "(lam = 0.5, not tuned)" in (tmp_path / "c" / "table.md").read_text(encoding="utf-8")
    good(
        "reproduce",
        path,
        "--only",
        "model=personal",
        "--only",
        "method=flame",
        "--seeds",
        3,
        "--rounds",
        1,
        "--out",
        tmp_path / "b",
    )
    found = table(tmp_path / "b")
    assert [c["row"] for c in found["cells"]] == ["FLAME-PM"] and found["cells"][0]["seeds"] == 3
    assert found["command"] == "sartor reproduce small --seeds 3 --rounds 1 --only model=personal --only method=flame"
    kept = [json.loads(p.read_text()) for p in (tmp_path / "b" / "runs").glob("*.json")]
    assert {k["recipe"]["seed"] for k in kept} == {0, 1, 2} and {k["recipe"]["rounds"] for k in kept} == {1}


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


# --- what is run ------------------------------------------------------------------------------------------------------


def test_at_least_the_experiments_of_the_papers_are_there() -> None:
    rows = json.loads(good("reproduce", "--list", "--json").out)
    assert {r["name"] for r in rows} == set(names()) >= WANTED
    for r in rows:
        assert r["runs"] >= r["quick_runs"] >= 1 and r["minutes"] > 0 and r["quick_minutes"] <= 5 and r["paper"], r
    assert "flame-table3" in good("reproduce", "--list").out
    assert {r["name"] for r in json.loads(good("list", "recipes", "--json").out)} == set(names())


@pytest.mark.parametrize("name", names())
def test_every_cell_of_every_experiment_is_a_run_that_can_be_made(name: str) -> None:
    """Both columns, every value of the grids, full and quick: constructed, not run."""
    experiment = checked(name)
    for quick in (False, True):
        made = Reproduction(experiment, Size.of(experiment, quick, seeds=1), Path())
        assert made.cells and made.entries
        for entry in made.entries.values():
            jobs = entry.first()
            assert entry.refused is None and len(jobs) == len(entry.column.variants)
        if not quick:
            runnable = {c.combination for c in made.cells if c.missing is None}
            assert {combination for combination, _ in made.entries} == runnable


@pytest.mark.parametrize("name", names())
def test_remarks_have_no_numbers_that_the_table_should_have(name: str) -> None:
    experiment = load(name)[0]
    text = " ".join([*experiment.remarks, experiment.about])
    said = [n for n in re.findall(r"\d+\.\d+|\d+%", text) if n != "0.1"]  # a setting of the paper, in quotation marks
    assert experiment.remarks and not said


def test_a_published_cell_s_keys_become_fields_of_the_run() -> None:
    keys = {"dataset": "mnist", "network": "dnn", "method": "per-fedavg", "partition": "iid", "alpha_hat": 0.02}
    run, settings = place({**keys, "beta_hat": 0.001, "attack": "sign-flip", "attackers": 0.2, "aggregator": "median"})
    assert run == {
        "data": "mnist",
        "model": "dnn",
        "partition": "iid",
        "attack": "sign-flip",
        "attackers": 0.2,
        "aggregator": "median",
    }
    assert settings == {"alpha": 0.02, "solver": {"lr": 0.001}}
    assert place({"dataset": "mnist", "lam": "best", "eta": 0.01, "K": 5}) == (
        {"data": "mnist"},
        {"eta": 0.01, "solver": {"steps": 5}},
    )


def test_compressed_cells_are_run_with_that_compressor_and_counted_in_bytes_that_were_sent() -> None:
    sketch = column("lp-proj-communication", False, compression="sketch", dataset="synthetic(0,0)")
    assert sketch.recipe({}, 0).resolved().compress.startswith("sketch(")
    assert sketch.recipe({}, 0).budget is None  # the budget is read off the history: one run serves all of them


def column(name: str, authors: bool, quick: bool = False, **wanted: object) -> Column:
    experiment = checked(name)
    cell = next(c for c in all_cells(experiment) if matches({**c.keys, "model": c.model}, wanted))
    return Column(experiment, cell, authors, Size.of(experiment, quick))


def test_flame_s_table_with_the_authors_switches_is_what_their_code_does() -> None:
    wanted = {"dataset": "mnist", "partition": "labels(k=2)"}
    flame = column("flame-table3", True, method="flame", **wanted).recipe({}, 0).resolved()
    assert flame.partition == "labels(k=2, distinct=false)" and flame.parts == [0.8, 0.0, 0.2] and flame.rounds == 100
    assert flame.settings["anchor"] == "global" and flame.settings["rho"] == 0.1 and flame.model == "mlp"
    solver = {"kind": "sgd", "lr": 0.01, "epochs": 1, "batch": 100, "momentum": 0.5, "weight_decay": 0.01}
    assert {k: flame.settings["solver"][k] for k in solver} == solver
    pfedme = column("flame-table3", True, method="pfedme", **wanted)
    assert pfedme.variants == [{}] and pfedme.recipe({}, 0).settings["eta"] == 0.1
    ditto = column("flame-table3", True, method="ditto", **wanted).recipe({}, 0).resolved().settings
    inner = {"lr": 0.1, "steps": 1, "batch": 100, "momentum": 0.5, "weight_decay": 0.0}
    assert ditto["global_method"]["method"] == "drifting"
    assert {k: ditto["global_method"]["solver"][k] for k in inner} == inner
    written = column("flame-table3", False, method="ditto", **wanted)
    assert [v["global_solver.lr"] for v in written.variants] == [0.01, 0.05, 0.1, 0.2, 0.5]
    assert "global_method" not in written.recipe(written.variants[0], 0).resolved().settings
    assert (written.reading.round, written.reading.choice) == ("best", "validation")


def test_ditto_s_lambdas() -> None:
    """A fixed one, the best of a grid, each client's own from the list for weak and for strong attacks."""
    fixed = column("ditto-robustness", False, method="ditto", dataset="vehicle", lam=2)
    assert fixed.variants == [{}] and fixed.recipe({}, 0).settings["lam"] == 2
    best = column("ditto-lambda", False, dataset="femnist", lam="best")
    assert [v["lam"] for v in best.variants] == [0.01, 0.1, 1.0]
    lists = {
        ("none", 0.0): [0.1, 1.0, 2.0],
        ("label-poison", 0.5): [0.1, 1.0, 2.0],
        ("label-poison", 0.8): [0.05, 0.1, 0.2],
        ("model-replacement", 0.1): [0.05, 0.1, 0.2],
    }
    for (attack, attackers), lams in lists.items():
        own = column("ditto-lambda", False, dataset="femnist", lam="dynamic", attack=attack, attackers=attackers)
        assert own.variants == [{}] and own.recipe({}, 0).settings["lam"] == lams
        assert own.recipe({}, 0).resolved().settings["lam"] == lams


def test_pfedme_s_authors_score_the_local_model() -> None:
    wanted = {"dataset": "mnist", "network": "dnn", "method": "pfedme"}
    ours, theirs = (column("pfedme-table1", a, **wanted).recipe({}, 0).resolved() for a in (False, True))
    assert (ours.settings["score"], theirs.settings["score"]) == ("theta", "w")
    for made in (ours, theirs):
        assert made.settings["lam"] == 30 and made.settings["R"] == 20 and made.settings["beta"] == 2
        solver = made.settings["solver"]
        assert (solver["lr"], solver["steps"], solver["reuse"], solver["batch"]) == (0.05, 5, True, 20)
        assert (made.clients, made.cohort, made.rounds, made.model) == (20, 5, 800, "dnn")


def test_fair_grid_of_flame_against_pfedme_has_the_step_one_over_lambda() -> None:
    experiment = checked("flame-against-pfedme")
    assert experiment.authors is None
    rows = {c.row.split(", mnist")[0]: c for c in all_cells(experiment) if c.keys["dataset"] == "mnist"}
    size = Size.of(experiment, False)
    fair = Column(experiment, rows["pFedMe, step from the paper's grid and 1/λ"], False, size)
    lam = fair.recipe({}, 0).settings["lam"]
    assert 1 / lam in [v["eta"] for v in fair.variants]
    counts = {len(Column(experiment, c, False, size).variants) for c in rows.values() if c.tune}
    assert counts == {6}  # as many values for each method


def test_columns_that_coincide_are_not_run_twice() -> None:
    """The authors' FedAMP code does not exist; FLAME's differs everywhere; Ditto's local training in nothing but how it
    is read."""
    experiment = checked("fedamp-table1")
    made = Reproduction(experiment, Size.of(experiment, True), Path())
    assert not any(authors for _, authors in made.entries)
    small = Column(experiment, made.cells[0], False, made.size)
    assert small.same_as(Column(experiment, made.cells[0], False, made.size))


def test_the_key_of_a_run_is_of_all_that_matters_and_of_nothing_else() -> None:
    plain = Recipe(method="flame", settings={"lam": 1})
    assert key_of(plain) == key_of(Recipe(method="flame", settings={"lam": 1.0}, workers=1, chunk=3, oracle=True))
    others = [{"seed": 1}, {"rounds": 51}, {"evaluate_every": 5}, {"settings": {"lam": 2.0}}, {"partition": "iid"}]
    others += [{"attack": "sign-flip"}, {"solver": {"lr": 0.2}}, {"parts": [0.8, 0.0, 0.2]}, {"dtype": "float64"}]
    keys = {key_of(plain.model_copy(update=o)) for o in others} | {key_of(plain)}
    assert len(keys) == len(others) + 1
    with pytest.raises(SartorError, match="keeps no client states on disk"):
        job_of(plain.model_copy(update={"store": "disk"}))


def test_a_recipe_that_can_say_more_keeps_the_names_of_finished_runs() -> None:
    class Later(Recipe):
        colour: str = "none"

    same = Later.model_fields["colour"].default
    assert key_of(Later(method="flame")) == key_of(Recipe(method="flame"))
    assert key_of(Later(method="flame", colour="blue")) != key_of(Later(method="flame", colour=same))


# --- numbers and verdicts ---------------------------------------------------------------------------------------------


def a_run(**changed: Any) -> dict[str, Any]:
    """A history of four rounds."""
    column = {"accuracy": [0.1, 0.7, 0.6, 0.5], "pooled": [0.2, 0.6, 0.8, 0.4], "validation": [0.1, 0.2, 0.9, 0.9]}
    column |= {"std": [0.01] * 4, "loss": [1.0, 2.0, 3.0, 4.0], "loss_var": [0.5] * 4}
    oracle = {k: [v + 0.01 for v in values] for k, values in column.items()} | {"validation": [None] * 4}
    run = {"rounds": [5, 10, 15, 20], "bytes": [400, 800, 1200, 1600], "recipe": {"dtype": "float32", "seed": 0}}
    return run | {"models": {"personal": column, "chosen": column, "oracle": oracle}} | changed


CELL = Cell({"dataset": "digits", "method": "flame"}, "personal")


def read(cell: Cell = CELL, **reading: Any) -> float | None:
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
    chosen = Cell(CELL.keys, "chosen")
    assert read(chosen, choice="test") == pytest.approx(0.51) and read(chosen) == 0.5
    assert one(a_run(), Cell(CELL.keys, "global"), Reading()) is None
    blind = a_run()
    blind["models"]["personal"]["validation"] = [None] * 4
    assert where_in(blind, "personal", Reading(round="best")) == 3


def test_budgets_and_targets_in_bytes_and_in_floats() -> None:
    assert read(Cell(CELL.keys, "personal", budget=850)) == 0.7
    assert read(Cell(CELL.keys, "personal", budget=399)) is None
    assert read(Cell(CELL.keys, "personal", budget=300), bytes="floats") == 0.6
    assert read(Cell(CELL.keys, "personal", target=0.6)) == 800
    assert read(Cell(CELL.keys, "personal", target=0.6), bytes="floats") == 200
    assert read(Cell(CELL.keys, "personal", target=0.99)) is None


def test_over_seeds_in_the_unit_of_the_paper() -> None:
    cell = Cell(CELL.keys, "personal", unit="percent", paper=52.0)
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
    return verdict(Cell(CELL.keys, "personal", **cell), Value(mean, std, 3, None, None, None, None, {}))


def test_verdicts() -> None:
    assert said(0.909, paper=0.9) == AGREES and said(0.9101, paper=0.9) == HIGHER and said(0.8899, paper=0.9) == LOWER
    assert said(0.91, paper=0.9) == AGREES  # a point, exactly
    assert said(0.939, std=0.02, paper=0.9) == AGREES and said(0.941, std=0.02, paper=0.9) == HIGHER
    assert said(0.861, paper=0.9, paper_std=0.02) == AGREES and said(0.859, paper=0.9, paper_std=0.02) == LOWER
    assert said(90.9, paper=90.0, unit="percent") == AGREES and said(91.1, paper=90.0, unit="percent") == HIGHER
    assert said(0.1, paper=0.9, differs="a subset") == OTHER_DATA
    assert said(0.1) == "no printed number"
    assert verdict(Cell(CELL.keys, "personal", paper=0.9), None) == "not run"
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
            run = a_run(recipe=job.recipe.model_dump(), data={"name": "digits", "samples": 1797})
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


# --- the document -----------------------------------------------------------------------------------------------------


def test_the_document_is_what_the_stored_results_give() -> None:
    assert document.DOCUMENT.read_text(encoding="utf-8") == document.document()
    stored = sorted(p.name for p in document.RESULTS.glob("*.json"))
    assert all(name.split(".")[0] in names() for name in stored)


def test_a_stored_table_comes_back_and_is_compared_cell_by_cell(finished: tuple[Path, Path], tmp_path: Path) -> None:
    found = table(finished[1])
    path = document.record(found, tmp_path)
    assert path.name == "small.json" and path.stat().st_size < 10_000
    back = document.stored("small", folder=tmp_path)
    assert back is not None and back["cells"] == found["cells"]
    assert document.changed(found, back) == "Against the stored results: 6 of 6 cells agree."
    moved = json.loads(json.dumps(found))
    moved["cells"][0]["ours"] += 30
    assert "5 of 6 cells agree; not so: FLAME-PM." in document.changed(moved, back)
    assert "of another size" in document.changed(found | {"command": "sartor reproduce small --quick"}, back)
    assert document.stored("small", quick=True, folder=tmp_path) is None


def test_the_document_has_command_table_verdicts_remarks_and_claims(
    finished: tuple[Path, Path], tmp_path: Path
) -> None:
    path, out = finished
    document.record(table(out), tmp_path)
    with (
        mock.patch.object(document, "names", lambda: ["small"]),
        mock.patch.object(document, "load", lambda _: load(path)),
    ):
        text = document.document(tmp_path)
    for part in ("## small", "`sartor reproduce small`", "| FLAME-PM | 95.00 ±1.00 |", "ours higher", "- Plain words."):
        assert part in text
    assert "“all is well”\n    - personal flame ≥ global flame: in the paper's own numbers in 1 of 1 cases" in text
    assert "Of the printed numbers, as written " in text and "not run: CelebA is not one of our data sets" in text
    assert f"As written: {outputs.counted(table(out))}." in text
    row = table(out)["cells"][1]
    assert f"| {row['ours']:.2f} ±{row['std']:.2f} |" in text


def test_record_stores_table_and_figure_and_the_document_shows_them(
    finished: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = finished
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(document, "DOCUMENT", tmp_path / "docs" / "reproductions.md")
    monkeypatch.setattr(document.record, "__defaults__", (tmp_path / "results",))
    answer = good("reproduce", path, "--out", out, "--record")
    assert "stored: " in answer.out and (tmp_path / "results" / "small.json").exists()
    drawn = tmp_path / "docs" / "reproductions" / "small.png"
    assert drawn.read_bytes() == (out / "figure.png").read_bytes()
    monkeypatch.setattr(document, "names", lambda: ["small"])
    monkeypatch.setattr(document, "load", lambda _: load(path))
    written = document.write_document(document.DOCUMENT, tmp_path / "results")
    assert "(reproductions/small.png)" in written.read_text(encoding="utf-8")


def test_the_csv_and_the_markdown_hold_every_cell(finished: tuple[Path, Path]) -> None:
    found = table(finished[1])
    with (finished[1] / "table.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [r["row"] for r in rows] == [c["row"] for c in found["cells"]]
    assert float(rows[1]["ours"]) == found["cells"][1]["ours"]
    text = (finished[1] / "table.md").read_text(encoding="utf-8")
    assert all(f"| {c['row']} |" in text for c in found["cells"]) and "`sartor reproduce small`" in text


# --- mistakes ---------------------------------------------------------------------------------------------------------


def line(text: str, part: str) -> int:
    return next(i for i, each in enumerate(text.splitlines(), start=1) if part in each)


MISTAKES = [
    (
        "[run]\nclients = 5",
        "[run]\nclient = 5",
        "client = 5",
        r"run\.client: unknown field of a run 'client': did you mean clients",
    ),
    ("rounds = 3", 'rounds = "many"', 'rounds = "many"', r"run\.rounds: .*valid integer; got 'many'"),
    (
        "lam = 0.5\nrho",
        "lamb = 0.5\nrho",
        "lamb = 0.5",
        r"methods\.flame\.lamb: unknown setting of flame 'lamb': did you mean lam",
    ),
    ("rho = 0.1", "rho = -1.0", "rho = -1.0", r"methods\.flame\.rho: FLAME needs rho > 0; got -1\.0"),
    (
        "[methods.flame]",
        "[methods.flam]",
        "[methods.flam]",
        r"methods\.flam: unknown method 'flam': did you mean flame",
    ),
    ("lam = [0.01, 0.5]", "lam = 0.7", "lam = 0.7", r"tune\.ditto\.lam: a list of values to choose from; got 0\.7"),
    (
        'by = "personal"',
        'by = "person"',
        'by = "person"',
        r"tune\.ditto\.by: unknown model 'person': did you mean personal",
    ),
    ('round = "best"', 'round = "bets"', 'round = "bets"', r"read\.round: .*'best'.*got 'bets'"),
    (
        'choice = "test"',
        'chioce = "test"',
        'chioce = "test"',
        r"authors\.read\.chioce: unknown key 'chioce': did you mean choice",
    ),
    ("seeds = [0, 1]", 'seeds = "two"', 'seeds = "two"', r"seeds: .*valid list; got 'two'"),
    (
        'model = "softmax"',
        'model = "softmx"',
        'model = "softmx"',
        r"run\.model: unknown model 'softmx': did you mean softmax",
    ),
    ("title =", "titel =", "titel =", r"titel: unknown key 'titel': did you mean title"),
    (
        "only = { method",
        "only = { metod",
        "only =",
        r"quick\.only\.metod: unknown key of a cell 'metod': did you mean method",
    ),
    ("lr = 0.1", "lrr = 0.1", "[run.solver]", r"run\.solver: unknown setting of the SGD solver 'lrr': did you mean lr"),
]


@pytest.mark.parametrize(("old", "new", "at", "message"), MISTAKES, ids=[m[1].split("\n")[-1] for m in MISTAKES])
def test_a_mistake_in_a_recipe_names_file_line_and_key(
    tmp_path: Path, old: str, new: str, at: str, message: str
) -> None:
    assert SMALL.count(old) >= 1
    text = SMALL.replace(old, new, 1)
    path = write(tmp_path, text)
    found = refused("reproduce", path, "--out", tmp_path / "out")
    assert re.search(message, found), found
    assert f"small.toml, line {line(text, at)}: " in found, found
    assert not (tmp_path / "out").exists()


CELLS = '\n[[cells]]\ndataset = "digits"\npartition = "iid"\nmethod = "flame"\nmodel = "personal"\n'
CELL_MISTAKES = [
    ('"digits"', '"digit"', "dataset", r"cells\.0\.dataset: unknown data set 'digit': did you mean digits"),
    ('"flame"', '["flame", "flam"]', "method", r"cells\.0\.method: unknown method 'flam'"),
    ('"personal"', '"own"', "model", r"cells\.0\.model: unknown model 'own': known: chosen, global, personal"),
    ('partition = "iid"', 'partition = ["iid", "idd"]', "partition", r"cells\.0\.partition: unknown partition 'idd'"),
    ('partition = "iid"', "lamb = [0.1]", "lamb", r"cells\.0\.lamb: unknown setting of flame 'lamb': did you mean lam"),
    ('dataset = "digits"\n', "", "[[cells]]", r"cells\.0: a cell needs a dataset"),
]


@pytest.mark.parametrize(("old", "new", "at", "message"), CELL_MISTAKES, ids=[m[2] for m in CELL_MISTAKES])
def test_a_mistake_in_a_cell_names_its_line(tmp_path: Path, old: str, new: str, at: str, message: str) -> None:
    text = SMALL + CELLS.replace(old, new)
    found = refused("reproduce", write(tmp_path, text), "--out", tmp_path / "out")
    here = next(i for i, each in enumerate(text.splitlines(), start=1) if each.startswith(at) and i > SMALL.count("\n"))
    assert re.search(message, found) and f"line {here}: " in found, found


def test_other_refusals(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert "unknown experiment 'flame-table'" in refused("reproduce", "flame-table")
    assert "did you mean flame-table3" in refused("reproduce", "flame-table")
    assert "cannot read" in refused("reproduce", tmp_path / "none.toml")
    assert "say which experiment" in refused("reproduce")
    assert "unknown key in --only 'data': did you mean dataset" in refused("reproduce", path, "--only", "data=digits")
    assert "unknown dataset in --only 'digit'" in refused("reproduce", path, "--only", "dataset=digit")
    assert "--only takes key=values" in refused("reproduce", path, "--only", "digits")
    assert "--seeds is how many seeds" in refused("reproduce", path, "--seeds", 0)
    assert "--rounds is at least 1" in refused("reproduce", path, "--rounds", 0)
    assert "no such cells" in refused("reproduce", path, "--only", "method=flame", "--only", "lam=best")
    bad = write(tmp_path / "bad", "title = ")
    assert "is not valid TOML" in refused("reproduce", bad)
    like = write(tmp_path / "like", SMALL + "", name="other")
    like.write_text('title = "x"\nlike = "othr"\n', encoding="utf-8")
    assert "line 2: like: unknown experiment 'othr'" in refused("reproduce", like)
    numbers = write(tmp_path / "numbers", 'published = ["smal"]\n' + SMALL)
    assert "unknown file of published numbers 'smal': did you mean small" in refused("reproduce", numbers)


def test_interrupted_by_hand_it_says_how_to_go_on(tmp_path: Path) -> None:
    path = write(tmp_path)
    with mock.patch.object(recipe_module.Recipe, "start", side_effect=KeyboardInterrupt):
        answer = sartor("reproduce", path, "--out", tmp_path / "out")
    assert answer.code == 130
    assert one_line(answer.err)


def test_like_takes_over_settings_but_for_what_is_left_out(tmp_path: Path) -> None:
    write(tmp_path)
    more = tmp_path / "more.toml"
    more.write_text('title = "y"\nlike = "small"\nwithout = ["authors"]\nremarks = []\n[run]\nrounds = 7\n' + CELLS)
    made = checked(str(more))
    assert made.run["rounds"] == 7 and made.run["clients"] == 5 and made.authors is None and made.published == []
    assert made.methods["flame"] == {"lam": 0.5, "rho": 0.1} and made.quick.only == {}


# --- small parts ------------------------------------------------------------------------------------------------------


def test_lines_of_keys() -> None:
    text = 'a = 1\n[b]\n"c.d" = 2\n[b.e]\nf.g = 3\n[[h]]\ni = 4\n[[h]]\ni = 5\nj = { k = 6 }\n[h.l]\nm = 7\n'
    places: list[tuple[list[str | int], int | None]] = [
        (["a"], 1),
        (["b"], 2),
        (["b", "c.d"], 3),
        (["b", "e", "f", "g"], 5),
        (["h", 0, "i"], 7),
        (["h", 1, "i"], 9),
        (["h", 1, "j", "k"], 10),
        (["h", 1, "l", "m"], 12),
        (["b", "x"], 2),
        (["z"], None),
    ]
    for where, number in places:
        assert line_of(text, where) == number, where


def test_tables_are_merged_inside_and_lists_are_replaced() -> None:
    assert merged({"a": {"b": 1, "c": [1]}, "d": 2}, {"a": {"c": [2]}, "d": {"e": 3}}) == {
        "a": {"b": 1, "c": [2]},
        "d": {"e": 3},
    }


def test_a_value_stands_for_all_of_its_settings() -> None:
    keys = {"partition": "labels(k=2)", "attackers": 0.2}
    assert matches(keys, {"partition": "labels"}) and matches(keys, {"partition": ["iid", "labels(k=2)"]})
    assert not matches(keys, {"partition": "label"}) and not matches(keys, {"attack": "none"})
    assert matches(keys, {"attackers": ["0.2"]})


def test_the_work_of_a_network_is_counted() -> None:
    assert multiplications("mlp", "mnist") == 784 * 128 + 128 * 64 + 64 * 10
    assert multiplications("softmax", "synthetic") == 600
    thin, wide = 25 * 32 * 28 * 28, 25 * 32 * 64 * 14 * 14
    assert multiplications("cnn", "mnist") == 4 * thin + wide + 3136 * 512 + 512 * 10
    short, long = (seconds(Recipe(data="mnist", clients=10, rounds=r)) for r in (10, 100))
    few = seconds(Recipe(data="mnist", clients=10, rounds=100, partition="dominant(groups=2, sizes=200/100)"))
    assert 5 < long / short < 10 and few < long / 10 and seconds(Recipe(data="own.csv")) == 0


def test_every_published_file_with_numbers_has_an_experiment() -> None:
    used = {file for name in names() for file in load(name)[0].published}
    files = {p.stem: p.read_text(encoding="utf-8") for p in (FOLDER / "published").glob("*.toml")}
    assert {name for name, text in files.items() if "\ncells = [" in text} <= used


def test_kept_runs_have_every_model_that_there_is(finished: tuple[Path, Path]) -> None:
    for path in (finished[1] / "runs").glob("*.json"):
        record = json.loads(path.read_text())
        assert record["rounds"] == [1, 2, 3] and set(record["models"]) == set(MODELS)
        assert path.stat().st_size < 20_000


def test_titles_are_listed() -> None:
    assert {name for name, _, _ in listing.titles()} == set(names())
