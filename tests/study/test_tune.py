"""`sartor tune`: the same budget for every method, on validation data, with no test data in reach."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commandline import good, refused

from sartor.data import Clients, load
from sartor.errors import SartorError
from sartor.judge import validated
from sartor.methods import NAMES
from sartor.run.complete import clients_of
from sartor.run.named_parts import method_from
from sartor.run.recipe import Recipe
from sartor.study import tune as tuning
from sartor.study.tune import Flat, Log, OneOf, even_grid, read_range, set_line, space, tune, winners, without_test

BASE = Recipe(model="softmax", rounds=2, evaluate_every=1, clients=5, diagnostics=False)
QUICK = ("--rounds", 2, "--model", "softmax", "--clients", 5, "--seeds", "0,1", "--evaluate-every", 1)


def run(methods: list[str], budget: int, sampler: str = "random", **options: Any) -> tuning.Tuning:
    base = options.pop("base", BASE)
    return list(tune(base, methods, (0, 1), options.pop("dataset", load("digits")), budget, sampler, **options))[-1][0]


def test_every_method_gets_the_same_number_of_trials_and_the_defaults_first() -> None:
    for sampler in ("grid", "random"):
        found = run(["flame", "pfedme", "local"], 4, sampler)
        assert {m: len(t) for m, t in found.trials.items()} == {"flame": 4, "pfedme": 4, "local": 4}
        assert all(trials[0].settings == {} for trials in found.trials.values())
        tried = [json.dumps(t.settings) for t in found.trials["flame"]]
        assert len(set(tried)) == 4


def test_a_trial_s_score_is_what_its_chosen_models_are_expected_to_be_worth() -> None:
    found = run(["flame"], 2)
    last = found.trials["flame"][-1]
    scores = []
    for seed in (0, 1):
        recipe = BASE.replace(method="flame", settings=last.settings, seed=seed, local_steps=found.base.local_steps)
        clients = clients_of(recipe)
        result = list(tuning.play_recipe(recipe, clients, None))[-1]
        scores.append(validated(result.scores))
    assert last.score == pytest.approx(np.mean(scores))


def test_the_best_is_the_one_with_the_highest_score() -> None:
    found = run(["flame"], 5)
    best = found.best("flame")
    assert best is not None and best.score == max(t.score for t in found.trials["flame"] if t.score is not None)
    assert found.table()["methods"]["flame"]["set"] == set_line("flame", best.settings)


def test_test_data_are_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """No trial has a test sample, and other test samples change nothing."""
    seen: list[Clients] = []
    play = tuning.play_recipe

    def looking(recipe: Recipe, clients: Clients, folder: Path | None, **others: Any) -> Any:
        seen.append(clients)
        return play(recipe, clients, folder, **others)

    monkeypatch.setattr(tuning, "play_recipe", looking)
    before = run(["flame", "ditto"], 3).table()
    assert seen and all(c.counts("test").sum() == 0 for c in seen)
    assert all(c.counts("validation").sum() > 0 for c in seen)

    def spoilt(clients: Clients) -> Clients:
        x, y = clients.x.clone(), clients.y.clone()
        for i in range(len(clients)):
            rows = clients.rows(i, "test")
            assert rows.stop > rows.start
            x[rows], y[rows] = 1e6, 0
        return without_test(replace(clients, x=x, y=y))

    monkeypatch.setattr(tuning, "without_test", spoilt)
    assert run(["flame", "ditto"], 3).table() == before


def test_tuning_goes_on_where_it_was_and_refuses_other_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(["flame", "local"], 4).table()
    run(["flame"], 2, folder=tmp_path)
    played: list[str] = []
    play = tuning.play_recipe

    def counting(recipe: Recipe, clients: Clients, folder: Path | None, **others: Any) -> Any:
        played.append(recipe.method)
        return play(recipe, clients, folder, **others)

    monkeypatch.setattr(tuning, "play_recipe", counting)
    monkeypatch.setattr(tuning, "spare_cores", lambda device: 0)  # what others play is not counted here
    assert run(["flame", "local"], 4, folder=tmp_path).table() == whole
    assert played == ["flame"] * 2 * 2 + ["local"] * 4 * 2  # two trials of flame with two seeds were there
    with pytest.raises(SartorError, match="other settings or seeds"):
        run(["flame"], 2, folder=tmp_path, base=BASE.replace(rounds=3))


def test_a_setting_that_diverges_is_a_failed_trial_and_never_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "space", lambda method: {"lam": Log(1e30, 1e35)})
    found = run(["flame"], 3)
    assert [t.score is None for t in found.trials["flame"]] == [False, True, True]
    assert "diverged" in (found.trials["flame"][1].error or "")
    best = found.best("flame")
    assert best is not None and best.settings == {}


def test_fields_that_are_held_fixed_are_not_tuned_and_belong_to_the_best(tmp_path: Path) -> None:
    fixed = run(["flame"], 3, settings={"flame": {"lam": 2.0}}, folder=tmp_path)
    assert all("lam" not in t.settings for t in fixed.trials["flame"])
    assert winners(tmp_path)[1]["flame"]["lam"] == 2.0
    assert "--set flame.lam=2.0" in fixed.table()["methods"]["flame"]["set"]
    free = run(["flame"], 3, folder=tmp_path)  # other trials, although the first has no settings of its own in both
    assert free.trials["flame"][0].score != fixed.trials["flame"][0].score
    assert free.table() == run(["flame"], 3).table()


@pytest.mark.parametrize("method", sorted(NAMES))
def test_every_method_has_a_space_of_its_own_settings(method: str) -> None:
    ranges = space(method)
    assert ranges and ("solver.lr" in ranges) == hasattr(NAMES[method].make, "solver")
    for key, spread in ranges.items():
        for u in (0.0, 0.5, 1.0):
            method_from(method, {key: spread.at(u)})


def test_ranges_are_read_as_method_files_write_them() -> None:
    assert read_range("log(1e-5, 10)") == Log(1e-5, 10.0) and read_range("flat(0, 1)") == Flat(0.0, 1.0)
    assert read_range("oneof(1, 2, 5)") == OneOf((1, 2, 5)) and read_range("oneof(exp, scad)") == OneOf(("exp", "scad"))
    assert list(space("fedavg-ft").items()) == [
        ("solver.lr", Log(0.005, 0.5)),
        ("finetune.lr", Log(0.005, 0.5)),
        ("finetune.epochs", OneOf((1, 2, 5, 10))),
    ]
    for text in ("log(1)", "flat(a, b)", "log(low=1, high=2)", "oneof", "even(1, 2)"):
        with pytest.raises(SartorError, match=r'a range is written "log\(LOW, HIGH\)"'):
            read_range(text)


def test_ranges() -> None:
    assert [Log(0.01, 100.0).at(u) for u in (0, 0.25, 0.5, 1)] == [0.01, 0.1, 1.0, 100.0]
    assert [Flat(1.0, 3.0).at(u) for u in (0, 0.5, 1)] == [1.0, 2.0, 3.0]
    assert [OneOf((1, 2, 5)).at(u) for u in (0, 0.34, 0.99, 1)] == [1, 2, 5, 5]


def test_an_even_grid_is_as_large_as_the_budget_allows() -> None:
    one, two = {"a": Log(1.0, 100.0)}, {"a": Log(1.0, 100.0), "b": Flat(0.0, 1.0)}
    assert [p["a"] for p in even_grid(one, 2)] == [Log(1.0, 100.0).at(u) for u in (0.25, 0.75)]
    assert len(even_grid(one, 19)) == 19 and len(even_grid(two, 19)) == 16 and len(even_grid(two, 20)) == 20
    few = {"a": OneOf((1, 2)), "b": Flat(0.0, 1.0)}
    points = even_grid(few, 9)
    assert len(points) == 8 and {p["a"] for p in points} == {1, 2}
    assert even_grid(one, 0) == [] and even_grid({}, 5) == []


def test_optuna_s_sampler_is_repeatable_and_learns_from_scores() -> None:
    pytest.importorskip("optuna")
    assert run(["flame"], 4, "tpe").table() == run(["flame"], 4, "tpe").table()
    ranges = {"a": Flat(0.0, 1.0)}
    done: list[tuning.Trial] = []
    for wanted in tuning.propose("tpe", ranges, 40, done, "flame"):
        done.append(tuning.Trial(wanted, 1 - abs(wanted.get("a", 0.0) - 0.3)))
    late = [t.settings["a"] for t in done[-15:]]
    assert len(done) == 40 and abs(float(np.median(late)) - 0.3) < 0.1


def test_without_optuna_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    assert "pip install 'sartor[tune]'" in refused("tune", "--sampler", "tpe", "--budget", 2, *QUICK)


def test_the_command_prints_what_to_set_and_keeps_it(tmp_path: Path) -> None:
    answer = good("tune", "--methods", "flame,local", "--budget", 3, "--out", tmp_path, *QUICK)
    kept = json.loads((tmp_path / "tune.json").read_text())
    assert set(kept["methods"]) == {"flame", "local"} and kept["budget"] == 3 and kept["seeds"] == [0, 1]
    for row in kept["methods"].values():
        assert row["set"] in answer.out and len(row["trials"]) == 3
    assert "no test data were looked at" in answer.out and "flame 3/3" in answer.out
    found = json.loads(good("tune", "--methods", "flame", "--budget", 1, "--json", *QUICK).out)
    assert found["methods"]["flame"]["best"]["settings"] == {}


def test_a_comparison_takes_over_what_was_tuned(tmp_path: Path) -> None:
    there = ("--rounds", 2, "--model", "softmax", "--clients", 5, "--parts", "0.6,0.2,0.2", "--batch", 10)
    fixed = ("--set", "local.solver.lr=0.3")
    good("tune", "--methods", "flame,local", "--budget", 2, "--seeds", 0, "--out", tmp_path / "t", *fixed, *there)
    recipe, best = winners(tmp_path / "t")
    assert best["local"] == {"solver.lr": "0.3"} and recipe.parts == [0.6, 0.2, 0.2]
    asked = ("compare", "--seeds", "4", "--quiet", "--out")
    good(*asked, tmp_path / "a", "--tuned", tmp_path / "t")
    lines = [f"--set={m}.{k}={v}" for m, own in best.items() for k, v in own.items()]
    good(*asked, tmp_path / "b", "--methods", "flame,local", *lines, *there)
    a, b = (json.loads((tmp_path / folder / "compare.json").read_text()) for folder in "ab")
    assert [{k: v for k, v in cell.items() if k != "seconds"} for cell in a] == [
        {k: v for k, v in cell.items() if k != "seconds"} for cell in b
    ]
    good(*asked, tmp_path / "c", "--tuned", tmp_path / "t", "--methods", "local", "--rounds", 3)
    (cell,) = json.loads((tmp_path / "c" / "compare.json").read_text())
    assert cell["method"] == "local" and cell["rounds"] == 3
    assert "holds no tune.json" in refused("compare", "--tuned", tmp_path)


def test_refusals() -> None:
    assert "sampler to be one of 'grid', 'random', 'tpe'" in refused("tune", "--sampler", "best")
    assert "budget of at least 1" in refused("tune", "--budget", 0)
    assert "parts leave none" in refused("tune", "--parts", "0.8,0,0.2")
    assert "unknown method 'flam'" in refused("tune", "--methods", "flam")
    assert "listed twice" in refused("tune", "--methods", "flame,flame")
    assert "unknown setting of flame 'lamb'" in refused("tune", "--methods", "flame", "--set", "flame.lamb=1")
