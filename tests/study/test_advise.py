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

from sartor.data import Dataset, Natural, from_arrays
from sartor.run.assemble import split
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
    assert advice.recommended == "fedavg" and gain > 0.1 and error < 0.05
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
    """By hand: gains 0.1, 0.1, -0.05, 0.05 have mean 0.05 and standard error 0.0354; halved noise decides."""
    alone, ours = np.array([0.5, 0.6, 0.7, 0.8]), np.array([0.6, 0.7, 0.65, 0.85])
    advice = Advice(RECIPE, list("abcd"), 1.0, {"local": [Tried({}, alone)], "ditto": [Tried({}, ours)]})
    assert advice.gain("ditto") == (pytest.approx(0.05), pytest.approx(0.0353553, rel=1e-4))
    assert advice.recommended == "ditto"
    advice.tried["ditto"] = [Tried({}, ours - 0.02), Tried({"lam": 9.0}, None, "diverged")]
    assert advice.recommended == "local"
    advice.tried["ditto"] = [Tried({}, None, "diverged"), Tried({"lam": 9.0}, ours)]
    assert advice.best("ditto").settings == {"lam": 9.0}


def test_time_is_kept_and_every_method_has_the_same_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which every trial takes an hour, ten hours are enough for four sweeps and the report."""
    began, tries, try_ = time.monotonic(), list[object](), module._try

    def an_hour(*given: Any) -> Tried:
        tries.append(given)
        return try_(*given)

    monkeypatch.setattr(module, "_try", an_hour)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: began + 3600 * len(tries)))
    advice = run(federation(alike=True, each=25), trials=50, minutes=600)
    assert {m: len(t) for m, t in advice.tried.items()} == {"local": 4, "fedavg": 4} and advice.sweeps == 4
    assert advice.tried["fedavg"][0].settings == {}  # its defaults


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
    assert "minutes > 0" in refused(*quick, "--minutes", 0)
    assert "unknown method" in refused("advise", "--methods", "flam")
