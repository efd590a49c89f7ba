"""Equal work: compare, tune and advise give every method the same number of gradients, unless asked otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commandline import QUICK, good, refused, summary

from sartor.data import load
from sartor.report.repeat import of_comparison, of_run
from sartor.run.complete import clients_of, complete, resolve
from sartor.run.recipe import Recipe
from sartor.study.equal_work import equal_steps, with_steps
from sartor.study.tune import ranges, tune

COMPARE = ("compare", *QUICK, "--seeds", "0")
MANY = "flame,pfedme,ditto,lp-proj-2,fedamp,fedavg-ft,apfl,mapper,l2gd,local"


def recipes(*methods: str, **values: Any) -> list[Recipe]:
    own = values.pop("settings", {})
    return [Recipe(method=m, settings=own.get(m, {}), **values) for m in methods]


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    found = json.loads((folder / "compare.json").read_text())
    return {row["method"]: row for row in found}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("compared")
    return folder, good(*COMPARE, "--methods", MANY, "--out", folder).out


# --- how many ---------------------------------------------------------------------------------------------------------


def test_an_epoch_of_the_median_client_rounded_up() -> None:
    """Digits at 10 clients: 1797 · 0.72 / 10 is 129 samples in the mean, 7 batches of 20; of 3 samples, 43."""
    plain = {"partition": "iid", "model": "softmax"}
    clients = clients_of(Recipe(**plain))
    assert equal_steps(recipes("flame", "ditto", **plain), clients) == 10
    assert equal_steps(recipes("flame", "ditto", solver={"batch": 3}, **plain), clients) == 50
    assert equal_steps(recipes("flame", "per-fedavg", **plain), clients) == 20  # fours go into it
    assert equal_steps(recipes("ditto", settings={"ditto": {"lam": "0.1,1,2"}}, **plain), clients) == 30
    assert equal_steps(recipes("per-fedavg", "ditto", settings={"ditto": {"lam": "0.1,1,2"}}), clients) == 60


@pytest.mark.parametrize(
    ("values", "equal"),
    [
        ({"solver": {"epochs": 2}}, False),
        ({"solver": {"steps": 4}}, False),
        ({"settings": {"pfedme": {"R": 3}}}, False),
        ({"settings": {"flame": {"solver.steps": "3"}}}, False),
        ({"settings": {"flame": {"solver": {"epochs": 1}}}}, False),
        ({"settings": {"pfedme": {"lam": 3.0}, "flame": {"solver.lr": 0.2}}}, True),
        ({"solver": {"lr": 0.2, "momentum": 0.5}}, True),
        ({"solver": {"kind": "inexact"}}, False),  # nobody's can be chosen
    ],
)
def test_who_says_how_long_a_round_is_has_it_so(values: dict[str, Any], equal: bool) -> None:
    found = equal_steps(recipes("flame", "pfedme", **values), clients_of(Recipe()))
    assert (found is not None) == equal


def test_a_method_that_cannot_keeps_its_own() -> None:
    l2gd, flame = recipes("l2gd", "flame")
    assert equal_steps([l2gd, flame], clients_of(Recipe())) == 10
    assert with_steps(l2gd, 10) == l2gd and with_steps(flame, 10).local_steps == 10
    assert with_steps(flame.replace(local_steps=4), None) == flame


# --- compare ----------------------------------------------------------------------------------------------------------


def test_all_methods_of_a_comparison_report_the_same_gradients(compared: tuple[Path, str]) -> None:
    folder, text = compared
    found, said = rows(folder), " ".join(text.split())
    own = {m for m, row in found.items() if row["own_work"]}
    assert own == {"l2gd"} and "coin" in found["l2gd"]["own_work"] and found["l2gd"]["local_steps"] is None
    for method, row in found.items():
        if method not in own:
            assert row["local_steps"] == 10 and row["gradients_per_client"]["training"] == 2 * 10, method
    assert found["fedavg-ft"]["gradients_per_client"] == {"training": 20.0, "finetuning": 10.0, "total": 30.0}
    assert "Work: 10 minibatch gradients per client and round" in said and "† l2gd takes its own: L2GD's coin" in said
    line = next(line for line in text.splitlines() if line.startswith("fedavg-ft "))
    assert "20+10" in line
    page = (folder / "report.html").read_text()
    assert "gradients per client" in page and "20+10" in page and "Work: 10 minibatch gradients" in page
    history = [json.loads(line) for line in (folder / "ditto-0" / "history.jsonl").read_text().splitlines()]
    assert history[-1]["gradients_per_client"] == {"training": 20.0, "finetuning": 0.0, "total": 20.0}


def test_a_comparison_is_repeated_by_its_command(compared: tuple[Path, str]) -> None:
    folder, _ = compared
    words = of_comparison(json.loads((folder / "plan.json").read_text()))
    assert "--local-steps 10" in words and "--own-steps" not in words
    run = of_run(Recipe.load(folder / "pfedme-0" / "recipe.toml").values())
    assert "--local-steps 10" in run and "R=" not in run and "solver.steps" not in run


def test_own_steps_and_given_ones(tmp_path: Path) -> None:
    text = good(*COMPARE, "--methods", "pfedme,fedavg", "--own-steps", "--out", tmp_path / "own").out
    found = rows(tmp_path / "own")
    assert found["pfedme"]["gradients_per_client"]["training"] == 2 * 50 and found["pfedme"]["local_steps"] is None
    assert "Work: each method takes its own" in text
    assert "--own-steps" in of_comparison(json.loads((tmp_path / "own" / "plan.json").read_text()))
    good(*COMPARE, "--methods", "pfedme,fedavg", "--local-steps", 6, "--out", tmp_path / "six")
    assert {row["gradients_per_client"]["training"] for row in rows(tmp_path / "six").values()} == {12.0}
    good(*COMPARE, "--methods", "pfedme,fedavg", "--set", "pfedme.R=2", "--out", tmp_path / "set")
    assert rows(tmp_path / "set")["pfedme"]["gradients_per_client"]["training"] == 2 * 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("compare", "--methods", "ditto,fedavg", "--local-steps", "1"), "Ditto needs local_steps >= 2"),
        (("compare", "--methods", "flame", "--local-steps", "4", "--own-steps"), "--own-steps leaves each method"),
        (("compare", "--methods", "pfedme", "--local-steps", "10", "--set", "pfedme.R=3"), "R 2; got R = 3"),
        (("run", "--method", "pfedme", "--local-steps", "0"), "at least 1; got 0"),
        (("run", "--method", "ditto", "--local-steps", "1"), "Ditto needs local_steps >= 2"),
        (("run", "--method", "flame", "--local-steps", "4", "--steps", "4"), "got steps = 4 as well"),
        (("run", "--method", "flame", "--local-steps", "4", "--epochs", "1"), "got epochs = 1 as well"),
        (("run", "--method", "flame", "--local-steps", "4", "--set", "solver.epochs=1"), "got solver.epochs = 1"),
        (("run", "--method", "scaffold", "--local-steps", "4", "--set", "option=I"), "option II; got option = I"),
        (("run", "--method", "l2gd", "--local-steps", "4"), "coin decides how many steps"),
        (("tune", "--methods", "per-fedavg", "--local-steps", "6", "--budget", "1"), "multiple of 4; got 6"),
    ],
)
def test_steps_that_cannot_be_are_refused(words: tuple[str, ...], said: str) -> None:
    assert said in refused(words[0], *QUICK, *words[1:])


# --- recipes ----------------------------------------------------------------------------------------------------------


def test_a_complete_recipe_is_read_again(tmp_path: Path) -> None:
    """It holds the steps and what they were split into; another number splits anew."""
    good("run", *QUICK, "--method", "pfedme", "--local-steps", 12, "--quiet", "--out", tmp_path / "a")
    saved = Recipe.load(tmp_path / "a" / "recipe.toml")
    assert saved.local_steps == 12 and (saved.settings["R"], saved.settings["solver"]["steps"]) == (3, 4)
    assert resolve(saved) == saved == complete(saved, clients_of(saved))
    file = tmp_path / "a" / "recipe.toml"
    good("run", "--recipe", file, "--quiet", "--out", tmp_path / "b")
    assert summary(tmp_path / "a") == summary(tmp_path / "b")
    good("run", "--recipe", file, "--local-steps", 20, "--quiet", "--out", tmp_path / "c")
    assert summary(tmp_path / "c")["gradients_per_client"]["training"] == 2 * 20
    good("run", "--resume", tmp_path / "a", "--rounds", 3, "--quiet")
    assert "local_steps = 12; got 20" in refused("run", "--resume", tmp_path / "a", "--local-steps", 20)


def test_fine_tuning_may_be_longer_than_a_round(tmp_path: Path) -> None:
    words = ("run", *QUICK, "--method", "fedavg-ft", "--local-steps", 4, "--set", "finetune.steps=9", "--quiet")
    good(*words, "--out", tmp_path)
    assert summary(tmp_path)["gradients_per_client"] == {"training": 8.0, "finetuning": 9.0, "total": 17.0}


def test_a_run_of_one_method_has_the_method_s_own(tmp_path: Path) -> None:
    good("run", *QUICK, "--method", "pfedme", "--quiet", "--out", tmp_path)
    assert summary(tmp_path)["gradients_per_client"]["training"] == 2 * 50


# --- tune and advise --------------------------------------------------------------------------------------------------


def test_trials_have_the_same_work_and_it_is_not_tuned(tmp_path: Path) -> None:
    base = Recipe(model="softmax", rounds=2, evaluate_every=2, diagnostics=False)
    *_, (found, _, _) = tune(base, ["pfedme", "fedavg-ft"], [0], load("digits"), 2, folder=tmp_path)
    assert found.base.local_steps == 10
    assert [t.gradients for t in found.trials["pfedme"]] == [20.0, 20.0]
    assert [t.gradients for t in found.trials["fedavg-ft"]] == [30.0, 30.0]
    assert "finetune.epochs" in ranges("fedavg-ft", base) and "finetune.epochs" not in found.ranges("fedavg-ft")
    assert json.loads((tmp_path / "tune.json").read_text())["local_steps"] == 10
    *_, (own, _, _) = tune(base, ["pfedme"], [0], load("digits"), 1, own_steps=True)
    assert own.base.local_steps is None and own.trials["pfedme"][0].gradients == 100.0


def test_the_winners_of_a_tuning_are_compared_with_its_work(tmp_path: Path) -> None:
    words = ("tune", *QUICK, "--methods", "pfedme,local", "--budget", "1", "--seeds", "0")
    text = good(*words, "--local-steps", 6, "--out", tmp_path / "six").out
    assert "Work: 6 minibatch gradients" in text and "gradients per client" in text
    good("compare", "--tuned", tmp_path / "six", "--seeds", "1", "--quiet", "--out", tmp_path / "a")
    assert {row["local_steps"] for row in rows(tmp_path / "a").values()} == {6}
    good(*words, "--own-steps", "--quiet", "--out", tmp_path / "own")
    good("compare", "--tuned", tmp_path / "own", "--seeds", "1", "--quiet", "--out", tmp_path / "b")
    assert rows(tmp_path / "b")["pfedme"]["gradients_per_client"]["training"] == 2 * 50


def test_advise_has_the_same_work_for_all(tmp_path: Path) -> None:
    words = ("advise", "--data", "digits", "--model", "softmax", "--rounds", "2", "--methods", "pfedme,l2gd")
    text = good(*words, "--trials", "1", "--cuts", "1", "--out", tmp_path).out
    assert "Work: 10 minibatch gradients" in text
    found = rows(tmp_path / "comparison")
    assert found["pfedme"]["gradients_per_client"] == found["local"]["gradients_per_client"]
    assert found["pfedme"]["local_steps"] == 10 and found["l2gd"]["local_steps"] is None
