"""What the recipes of the papers amount to: every published cell becomes a run that can be made, with the settings that
the paper or its authors' code has."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from commandline import good
from subsets import first

from sartor.errors import SartorError
from sartor.papers.reproduce import Reproduction, Size, checked, listing, names
from sartor.papers.reproduce.cells import all_cells, matches
from sartor.papers.reproduce.experiment import FOLDER, load, merged
from sartor.papers.reproduce.mapping import TableColumn, key_of, place
from sartor.papers.reproduce.runs import job_of
from sartor.papers.reproduce.workload import multiplications, seconds
from sartor.run.complete import resolve
from sartor.run.recipe import Recipe

WANTED = {
    *("flame-table3", "flame-robustness", "flame-fairness", "flame-parameters", "pfedme-table1", "ditto-robustness"),
    *("ditto-personalization", "ditto-lambda", "fedamp-table1", "fedamp-dirty", "fedamp-dropped"),
    *("lp-proj-communication", "lp-proj-robustness", "lp-proj-fairness"),
}


def test_at_least_the_experiments_of_the_papers_are_there() -> None:
    rows = json.loads(good("reproduce", "--list", "--json").out)
    assert {r["name"] for r in rows} == set(names()) >= WANTED
    for r in rows:
        assert r["runs"] >= r["quick_runs"] >= 1 and r["minutes"] > 0 and r["quick_minutes"] <= 5 and r["paper"], r
    assert "flame-table3" in good("reproduce", "--list").out
    assert {r["name"] for r in json.loads(good("list", "recipes", "--json").out)} == set(names())


HUGE = ("flame-robustness", "ditto-robustness", "flame-fairness")


@pytest.mark.parametrize("name", first(names(), *(n for n in names() if n not in HUGE)))
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
    assert resolve(sketch.recipe({}, 0)).compress.startswith("sketch(")
    assert sketch.recipe({}, 0).budget is None  # the budget is read off the history: one run serves all of them


def column(name: str, authors: bool, quick: bool = False, **wanted: object) -> TableColumn:
    experiment = checked(name)
    cell = next(c for c in all_cells(experiment) if matches({**c.keys, "model": c.model}, wanted))
    return TableColumn(experiment, cell, authors, Size.of(experiment, quick))


def test_flame_s_table_with_the_authors_switches_is_what_their_code_does() -> None:
    wanted = {"dataset": "mnist", "partition": "labels(k=2)"}
    flame = resolve(column("flame-table3", True, method="flame", **wanted).recipe({}, 0))
    assert flame.partition == "authors.flame-labels(k=2)" and flame.parts == [0.8, 0.0, 0.2] and flame.rounds == 100
    assert flame.settings["anchor"] == "global" and flame.settings["rho"] == 0.1 and flame.model == "mlp"
    solver = {"kind": "sgd", "lr": 0.01, "epochs": 1, "batch": 100, "momentum": 0.5, "weight_decay": 0.01}
    assert {k: flame.settings["solver"][k] for k in solver} == solver
    pfedme = column("flame-table3", True, method="pfedme", **wanted)
    assert pfedme.variants == [{}] and pfedme.recipe({}, 0).settings["eta"] == 0.1
    ditto = resolve(column("flame-table3", True, method="ditto", **wanted).recipe({}, 0)).settings
    inner = {"lr": 0.1, "steps": 1, "batch": 100, "momentum": 0.5, "weight_decay": 0.0}
    assert ditto["global_method"]["method"] == "authors.drifting"
    assert {k: ditto["global_method"]["solver"][k] for k in inner} == inner
    written = column("flame-table3", False, method="ditto", **wanted)
    assert [v["global_solver.lr"] for v in written.variants] == [0.01, 0.05, 0.1, 0.2, 0.5]
    assert "global_method" not in resolve(written.recipe(written.variants[0], 0)).settings
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
        assert resolve(own.recipe({}, 0)).settings["lam"] == lams


def test_pfedme_s_authors_score_the_local_model() -> None:
    wanted = {"dataset": "mnist", "network": "dnn", "method": "pfedme"}
    ours, theirs = (resolve(column("pfedme-table1", a, **wanted).recipe({}, 0)) for a in (False, True))
    assert (ours.method, theirs.method) == ("pfedme", "authors.pfedme-scoring-w")
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
    fair = TableColumn(experiment, rows["pFedMe, step from the paper's grid and 1/λ"], False, size)
    lam = fair.recipe({}, 0).settings["lam"]
    assert 1 / lam in [v["eta"] for v in fair.variants]
    counts = {len(TableColumn(experiment, c, False, size).variants) for c in rows.values() if c.tune}
    assert counts == {6}  # as many values for each method


def test_columns_that_coincide_are_not_run_twice() -> None:
    """The authors' FedAMP code does not exist; FLAME's differs everywhere; Ditto's local training in nothing but how it
    is read."""
    experiment = checked("fedamp-table1")
    made = Reproduction(experiment, Size.of(experiment, True), Path())
    assert not any(authors for _, authors in made.entries)
    small = TableColumn(experiment, made.cells[0], False, made.size)
    assert small.same_as(TableColumn(experiment, made.cells[0], False, made.size))


def test_local_training_with_a_cohort_is_another_run_than_when_only_the_cohort_trained() -> None:
    """The first key is that of before; with everybody asked nothing has changed, and it is as it was."""
    alone = Recipe(method="local", data="mnist", clients=20)
    assert key_of(alone) == "d2fe2c1b73fc98cd7019"
    assert key_of(alone.replace(cohort=5)) != "4ed85c7aef32aa5d8076"
    assert key_of(alone.replace(method="fedavg", cohort=5)) == "6c8b1c12029c55db68f1"


def test_the_key_of_a_run_is_of_all_that_matters_and_of_nothing_else() -> None:
    plain = Recipe(method="flame", settings={"lam": 1})
    assert key_of(plain) == key_of(Recipe(method="flame", settings={"lam": 1.0}, workers=1, chunk=3, oracle=True))
    others = [{"seed": 1}, {"rounds": 51}, {"evaluate_every": 5}, {"settings": {"lam": 2.0}}, {"partition": "iid"}]
    others += [{"attack": "sign-flip"}, {"solver": {"lr": 0.2}}, {"parts": [0.8, 0.0, 0.2]}, {"dtype": "float64"}]
    keys = {key_of(plain.replace(**o)) for o in others} | {key_of(plain)}
    assert len(keys) == len(others) + 1
    with pytest.raises(SartorError, match="keeps no client states on disk"):
        job_of(plain.replace(store="disk"))


def test_a_recipe_that_can_say_more_keeps_the_names_of_finished_runs() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Later(Recipe):
        colour: str = "none"

    assert key_of(Later(method="flame")) == key_of(Recipe(method="flame"))
    assert key_of(Later(method="flame", colour="blue")) != key_of(Later(method="flame", colour="none"))


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


def test_titles_are_listed() -> None:
    assert {name for name, _, _ in listing.titles()} == set(names())
