"""Advice: it finds what is there to find, says so where nothing is, and looks at test data only when all is chosen."""

from __future__ import annotations

import json
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from commandline import good, refused

from sartor.data import Dataset, Natural, from_arrays, load
from sartor.run.complete import split
from sartor.run.recipe import Recipe
from sartor.study import advise as module
from sartor.study.advise import Advice, Tried, advise

RECIPE = Recipe(model="softmax", rounds=15, data="made")


def federation(alike: bool, each: int, seed: int = 0) -> Dataset:
    """Eight clients of a linear rule in twelve features: one rule for all, or one for each."""
    draw = np.random.default_rng(seed)
    common, xs, ys = draw.normal(size=12), [], []
    for _ in range(8):
        x = draw.normal(size=(each, 12))
        xs.append(x)
        ys.append((x @ (common if alike else 3 * draw.normal(size=12)) > 0).astype(int))
    keys = np.repeat([f"h{i}" for i in range(8)], each)
    return from_arrays(np.concatenate(xs), np.concatenate(ys), keys)


def run(data: Dataset, **options: object) -> Advice:
    *_, (advice, _, _) = advise(RECIPE, data, ("local", "fedavg"), **{"trials": 1, "cuts": 3} | options)  # type: ignore[arg-type]
    return advice


def test_it_recommends_federating_where_small_clients_are_alike() -> None:
    advice = run(federation(alike=True, each=25))
    gain, error = advice.gain("fedavg")
    assert advice.recommended == "fedavg" and gain > 0.1 and gain > 2 * error
    test = advice.on_test()
    assert test is not None and test["gain"] > 0 and "clients gain" in advice.words()[2]
    assert test["low"] <= test["gain"] <= test["high"]
    assert np.mean(list(test["each"].values())) == pytest.approx(test["gain"])


def test_it_recommends_training_alone_where_clients_contradict_each_other() -> None:
    advice = run(federation(alike=False, each=60))
    assert advice.recommended == "local" and advice.words()[0].startswith("Recommended: train locally")
    assert advice.recipe().method == "local"


def test_test_samples_change_nothing_of_the_choice() -> None:
    """With every test label turned round, all that was chosen by is the same to the bit."""
    data = federation(alike=True, each=25)
    clients = split(RECIPE, data)
    _, order, bounds = data.deal(Natural(), None, 0, RECIPE.parts, 10)
    turned = data.y.copy()
    for i in range(len(clients)):
        rows = order[bounds[i, 2] : bounds[i, 3]]
        turned[rows] = 1 - turned[rows]
    a, b = run(data), run(Dataset(data.x, turned, 2, "arrays", data.keys))
    for method in ("local", "fedavg"):
        assert np.array_equal(a.best(method).scores, b.best(method).scores)  # type: ignore[arg-type]
    assert a.recommended == b.recommended and a.on_test()["accuracy"] > 0.7 > b.on_test()["accuracy"]  # type: ignore[index]


def test_the_rule_of_one_standard_error() -> None:
    """By hand: two cuts of four clients. Differences of a client from cut to cut vary by s² = 2 · 0.01², and what is
    scored is a quarter of what is learnt from: the standard error is sqrt(4 s² (1/2 + 1/4)) / 4 = 0.00612."""
    alone = np.tile([0.5, 0.6, 0.7, 0.8], (2, 1))
    up = np.array([[0.01], [-0.01]])
    for gain, recommended in ((0.0063, "ditto"), (0.006, "local")):
        tried = {"local": [Tried({}, alone, loss=1.0)], "ditto": [Tried({}, alone + gain + up, loss=1.0)]}
        advice = Advice(RECIPE, list("abcd"), 1.0, tried)
        assert advice.gain("ditto") == (pytest.approx(gain), pytest.approx(0.0061237, rel=1e-4))
        assert advice.recommended == recommended


def test_one_cut_leaves_it_to_clients_to_say_what_chance_does() -> None:
    """Gains 0.1, 0.1, -0.05, 0.05 have mean 0.05 and standard error 0.0354."""
    alone, ours = np.array([[0.5, 0.6, 0.7, 0.8]]), np.array([[0.6, 0.7, 0.65, 0.85]])
    tried = {"local": [Tried({}, alone, loss=1.0)], "ditto": [Tried({}, ours, loss=1.0)]}
    advice = Advice(RECIPE, list("abcd"), 1.0, tried)
    assert advice.gain("ditto") == (pytest.approx(0.05), pytest.approx(0.0353553, rel=1e-4))
    assert advice.recommended == "ditto"


def test_clients_count_as_they_are_weighted_and_one_without_samples_does_not() -> None:
    scores = np.array([[0.2, 0.8, np.nan], [0.4, 0.6, np.nan]])
    advice = Advice(
        RECIPE, list("abc"), 1.0, {"local": [Tried({}, scores)]}, regression=True, samples=np.array([3.0, 1.0, 9.0])
    )
    assert advice.mean("local") == pytest.approx(0.75 * 0.3 + 0.25 * 0.7)


def test_a_method_s_setting_is_the_one_with_the_lowest_loss() -> None:
    scores = np.full((2, 4), 0.5)
    good, better = Tried({}, scores, loss=0.7), Tried({"lam": 9.0}, scores - 0.1, loss=0.6)
    advice = Advice(RECIPE, list("abcd"), 1.0, {"local": [Tried({}, scores)], "ditto": [good, better]})
    assert advice.best("ditto").settings == {"lam": 9.0}
    advice.tried["ditto"] = [Tried({}, None, error="diverged"), good]
    assert advice.best("ditto") is good


def test_of_many_that_are_as_good_the_simplest_is_taken_and_the_others_are_named() -> None:
    up = np.array([[0.02], [-0.02]])
    each = {"local": 0.0, "fednewton": 0.05, "ditto": 0.055, "flame": 0.01}
    scores = {m: np.full((2, 4), 0.5 + v) + (up if m != "ditto" else 0) for m, v in each.items()}
    losses = {m: np.full((2, 4), 1.0 if m == "ditto" else 1.01) + (up if m != "ditto" else 0) for m in each}
    tried = {m: [Tried({}, v, losses[m], loss=float(losses[m].mean()))] for m, v in scores.items()}
    advice = Advice(RECIPE, list("abcd"), 1.0, tried)
    assert advice.leader == "ditto" and advice.recommended == "fednewton"
    said = advice.words()[-1]
    assert "as good within one standard error of score and loss: ditto" in said
    assert "times as many samples would tell" in said


def test_where_scores_cannot_tell_methods_apart_losses_do() -> None:
    """Accuracies differ by less than a standard error, losses by more; a low loss of what is out of the race by its
    score does not count."""
    up = np.array([[0.02], [-0.02]])
    score = {"local": 0.5, "fednewton": 0.499, "ditto": 0.505, "flame": 0.3}
    loss = {"local": 1.2, "fednewton": 1.001, "ditto": 1.0, "flame": 0.5}
    tried = {
        m: [Tried({}, np.full((2, 4), score[m]) + up * (m == "ditto"), np.full((2, 4), loss[m]) + up * (m == "ditto"))]
        for m in score
    }
    for m, (one,) in tried.items():
        one.loss = loss[m]
    advice = Advice(RECIPE, list("abcd"), 1.0, tried)
    assert advice.as_good == ["fednewton", "ditto"] and advice.recommended == "fednewton"
    tried["local"][0].losses = tried["fednewton"][0].losses
    assert advice.recommended == "local"


def test_advice_that_the_test_data_speak_against_begins_with_doubt() -> None:
    scores = {"local": np.full((2, 4), 0.5), "ditto": np.full((2, 4), 0.6)}
    advice = Advice(RECIPE, list("abcd"), 1.0, {m: [Tried({}, v, loss=1.0)] for m, v in scores.items()})
    assert advice.words()[0].startswith("Recommended: ditto.")
    advice.test = {"local": np.array([0.5, 0.6, 0.7, 0.8]), "ditto": np.array([0.4, 0.5, 0.6, 0.75])}
    assert advice.words()[0].startswith(
        "With doubt: on test data it is worse than training locally. Recommended: ditto"
    )
    assert advice.on_test()["gain"] == pytest.approx(-0.0875)  # type: ignore[index]


def schools(tmp_path: Path, m: int = 12, seed: int = 0) -> Path:
    """A table of pupils with eight features, and schools with levels of their own but too few pupils to learn alone."""
    draw, lines = np.random.default_rng(seed), ["school," + ",".join("abcdefgh") + ",score"]
    for i in range(m):
        level = 3 * draw.normal()
        for x in draw.normal(size=(16, 8)):
            score = 60 + 10 * (level + x @ [1, -1, 1, -1, 1, -1, 1, -1] + draw.normal())
            lines.append(f"s{i}," + ",".join(f"{v:.4f}" for v in x) + f",{score:.3f}")
    path = tmp_path / "schools.csv"
    path.write_text("\n".join(lines))
    return path


def test_on_a_table_linear_models_are_solved_to_the_end_and_schools_are_told_apart(tmp_path: Path) -> None:
    """Levels differ: a model with an intercept for each school, or more, is advised; its R² on test data is known from
    how the table was made (1 − 1/18 at most), and the recipe repeats it."""
    path = schools(tmp_path)
    recipe = Recipe(data=str(path), target="score", client_key="school", columns="pooled")
    *_, (advice, _, _) = advise(recipe, load(path, target="score", client_key="school"), trials=2, cuts=3)
    assert advice.recommended in ("own-intercept", "random-intercept", "mr-mtl", "mixed-effects", "ditto")
    assert not advice.candidates["ditto"].by_steps and advice.candidates["fedavg-ft"].by_steps
    assert max(advice.mean("fednewton"), advice.mean("local")) + 0.05 < advice.mean(advice.recommended) < 1 - 1 / 18
    assert advice.on_test()["gain"] > 0.05  # type: ignore[index]
    made = advice.recipe()
    assert made.parts == [0.8, 0.0, 0.2] and made.rounds == 15
    if "solver" in made.settings:
        assert made.settings["solver"]["kind"] == "newton"


def test_time_is_kept_and_every_method_has_the_same_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which every trial takes an hour, ten hours are enough for four sweeps and the report."""
    began, tries, try_ = time.monotonic(), list[object](), module._try

    def an_hour(*given: Any) -> list[dict[str, Any]]:
        tries.append(given)
        return try_(*given)

    monkeypatch.setattr(module, "_try", an_hour)
    monkeypatch.setattr(module, "spare_cores", lambda device: 0)  # hours are counted in this process
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: began + 3600 * len(tries)))
    advice = run(federation(alike=True, each=25), trials=50, minutes=600)
    assert {m: len(t) for m, t in advice.tried.items()} == {"local": 4, "fedavg": 4} and advice.sweeps == 4
    assert advice.tried["fedavg"][0].settings == {}  # its defaults


def test_where_the_clients_factorisations_take_long_settings_are_tried_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step over these rows alone would pass as quick; with a matrix to factorise for each school it does not."""
    together, try_ = list[int](), module._try

    def counted(recipes: Any, samples: Any) -> list[dict[str, Any]]:
        together.append(len(recipes))
        return try_(recipes, samples)

    path = schools(tmp_path)
    data = load(path, target="score", client_key="school")
    monkeypatch.setattr(module, "_try", counted)
    monkeypatch.setattr(module, "spare_cores", lambda device: 0)
    recipe = Recipe(data=str(path), target="score", client_key="school", columns="pooled")
    for quick, expected in ((len(data) * data.x.shape[1] ** 2, 1), (module.QUICK, 2)):
        together.clear()
        monkeypatch.setattr(module, "QUICK", quick)
        list(advise(recipe, data, ("local", "fednewton"), trials=2, cuts=2))
        assert max(together) == expected


def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = federation(alike=True, each=25)
    np.savez(tmp_path / "made.npz", x=data.x, y=data.y, h=data.keys)
    monkeypatch.chdir(tmp_path)
    own = ("advise", "--data", "made.npz", "--client-key", "h", "--model", "softmax", "--methods", "fedavg,ditto")
    quick = (*own, "--rounds", 10, "--trials", 1, "--cuts", 2)
    said = " ".join(good(*quick, "--out", "advice").out.split())
    found = json.loads((tmp_path / "advice" / "advise.json").read_text())
    assert f"Recommended: {found['recommended']}" in said and found["sweeps"] == 1
    assert found["words"][1].startswith("On test data, which had no part in this")
    recipe = tomllib.loads((tmp_path / "advice" / "recipe.toml").read_text())
    assert recipe["method"]["method"] == found["recommended"] and recipe["data"]["client_key"] == "h"
    assert (tmp_path / "advice" / "comparison" / "report.html").exists()
    good("run", "--recipe", "advice/recipe.toml", "--rounds", 2, "--out", "run", "--quiet")
    made = Recipe.load(tmp_path / "run" / "recipe.toml")
    assert made.method == found["recommended"] and made.rounds == 2 and made.model == "softmax"
    assert "not both" in refused("run", "--recipe", "advice/recipe.toml", "--resume", "run")
    good(*quick, "--metric", "auroc", "--out", "by-auroc")
    by_auroc = json.loads((tmp_path / "by-auroc" / "advise.json").read_text())
    assert by_auroc["scored"].startswith("AUROC, the mean over clients") and "auroc" in str(by_auroc["words"]).lower()
    assert by_auroc["methods"]["fedavg"]["test"] != found["methods"]["fedavg"]["test"]
    assert "does not fit targets that are classes" in refused(*quick, "--metric", "mae")
    assert "minutes > 0" in refused(*quick, "--minutes", 0)
    assert "unknown method" in refused("advise", "--methods", "flam")
