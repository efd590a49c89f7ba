"""`sartor run`: what it leaves, repeats, refuses and says."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commandline import METHODS, OWN, QUICK, SUMMARY, files, good, hospitals, refused, summary
from safetensors.torch import load_file

from sartor.judge import SHARES
from sartor.run.complete import clients_of, complete
from sartor.run.recipe import Recipe
from sartor.run.rounds import Run
from sartor.study import compare as compare_module

SPREAD = ("mean", "std", "var", "worst10", "best10", "min", "max", "jain", "gini", "entropy", "pooled")


MODEL_FIELDS = {"clients_scored", *(f"{what}_{k}" for what in ("accuracy", "loss") for k in SPREAD)}


def test_a_run_leaves_the_files_of_the_design(tmp_path: Path) -> None:
    answer = good("run", *QUICK, "--out", tmp_path / "a")
    names = {p.name for p in (tmp_path / "a").iterdir()}
    kept = {"recipe.toml", "data.json", "history.jsonl", "clients.json", "summary.json", "inputs.json", "report.html"}
    assert names == kept | {"metrics.json", "state", "models"}
    found = summary(tmp_path / "a")
    assert set(found) == SUMMARY
    assert [found[k] for k in ("method", "data", "partition", "clients", "cohort", "rounds", "seed")] == [
        "flame",
        "digits",
        "hybrid",
        10,
        10,
        2,
        0,
    ]
    assert found["bytes_up"] == found["bytes_down"] == 2 * 10 * 650 * 4
    for model in ("personal", "global", "chosen"):
        assert set(found[model]) == MODEL_FIELDS
        assert f"{model} {found[model]['accuracy_mean']:.3f}" in answer.out
    models = files(tmp_path / "a" / "models")
    assert set(models) == {"global.safetensors", "personal.safetensors"}
    assert load_file(tmp_path / "a" / "models" / "personal.safetensors")["1.weight"].shape == (10, 10, 64)


def test_the_summary_follows_from_the_clients(tmp_path: Path) -> None:
    good("run", *QUICK, "--out", tmp_path / "a", "--quiet")
    rows, found = json.loads((tmp_path / "a" / "clients.json").read_text()), summary(tmp_path / "a")
    for model in ("personal", "global", "chosen"):
        accuracy = np.array([r[f"{model}_test_accuracy"] for r in rows])
        loss = np.array([r[f"{model}_test_loss"] for r in rows])
        assert found[model]["accuracy_mean"] == pytest.approx(accuracy.mean(), abs=1e-12)
        assert found[model]["accuracy_std"] == pytest.approx(accuracy.std(), abs=1e-12)
        assert found[model]["accuracy_worst10"] == pytest.approx(accuracy.min(), abs=1e-12)  # a tenth of ten clients
        assert found[model]["loss_mean"] == pytest.approx(loss.mean(), rel=1e-12)
        assert found[model]["loss_var"] == pytest.approx(loss.var(), rel=1e-12)
    for r in rows:
        assert r["chosen_test_accuracy"] == r[f"{r['chosen']}_test_accuracy"]
    assert found["choice"] == {m: sum(r["chosen"] == m for r in rows) for m in SHARES}


def test_models_a_method_does_not_have_are_null(tmp_path: Path) -> None:
    good("run", *QUICK, "--method", "local", "--out", tmp_path / "local", "--quiet")
    good("run", *QUICK, "--method", "fedavg", "--out", tmp_path / "fedavg", "--quiet")
    alone, common = summary(tmp_path / "local"), summary(tmp_path / "fedavg")
    assert alone["global"] is None and alone["personal"] == alone["chosen"] and alone["bytes_up"] == 0
    assert common["personal"] is None and common["global"] == common["chosen"]
    assert set(files(tmp_path / "local" / "models")) == {"personal.safetensors"}
    assert set(files(tmp_path / "fedavg" / "models")) == {"global.safetensors"}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs(method: str) -> None:
    found = json.loads(good("run", "--method", method, *QUICK, "--json").out)
    assert found["method"] == method and found["rounds"] == 2
    assert 0 < found["chosen"]["accuracy_mean"] <= 1


def test_recipe_read_back_is_the_same_run(tmp_path: Path) -> None:
    good(
        "run",
        *QUICK,
        "--method",
        "pfedme",
        "--cohort",
        4,
        "--set",
        "lam=3",
        "--lr",
        "0.02",
        "--out",
        tmp_path / "a",
        "--quiet",
    )
    recipe = Recipe.load(tmp_path / "a" / "recipe.toml")
    assert (recipe.settings["lam"], recipe.settings["solver"]["lr"], recipe.cohort) == (3.0, 0.02, 4)
    assert (recipe.model, recipe.loss, recipe.clients) == ("softmax", "cross-entropy", 10)  # resolved
    assert tomllib.loads(recipe.toml()) == tomllib.loads((tmp_path / "a" / "recipe.toml").read_text())
    split = clients_of(recipe)
    assert complete(recipe, split) == recipe
    result = list(compare_module.play_recipe(recipe, split, tmp_path / "b"))[-1]
    assert {k: v for k, v in result.summary.items() if k != "seconds"} == summary(tmp_path / "a")
    assert files(tmp_path / "a" / "models") == files(tmp_path / "b" / "models")
    assert (tmp_path / "a" / "recipe.toml").read_bytes() == (tmp_path / "b" / "recipe.toml").read_bytes()


def test_json_and_quiet(tmp_path: Path) -> None:
    loud = good("run", *QUICK, "--json", "--out", tmp_path / "a")
    assert {k: v for k, v in json.loads(loud.out).items() if k != "seconds"} == summary(tmp_path / "a")
    assert good("run", *QUICK, "--quiet").out == ""


def test_out_on_an_existing_run_is_refused_and_leaves_it(tmp_path: Path) -> None:
    good("run", *QUICK, "--out", tmp_path, "--quiet")
    before = files(tmp_path)
    assert "--resume" in refused("run", *QUICK, "--method", "ditto", "--out", tmp_path)
    assert "single run" in refused("compare", *QUICK, "--methods", "local", "--out", tmp_path)
    assert files(tmp_path) == before


def _settings(folder: Path, *arguments: object) -> dict[str, Any]:
    good("run", *QUICK, "--rounds", 1, "--quiet", "--out", folder, *arguments)
    return dict(tomllib.loads((folder / "recipe.toml").read_text())["method"]["settings"])


def test_set_reaches_fields_and_solvers(tmp_path: Path) -> None:
    found = _settings(
        tmp_path / "a",
        "--method",
        "fedavg-ft",
        "--set",
        "finetune.epochs=2",
        "--set",
        "solver.lr=0.125",
        "--set",
        "weighting=uniform",
    )
    assert (found["finetune"]["epochs"], found["solver"]["lr"], found["weighting"]) == (2, 0.125, "uniform")
    assert found["finetune"]["lr"] != 0.125


def test_solver_options(tmp_path: Path) -> None:
    adam = _settings(tmp_path / "a", "--method", "ditto", "--solver", "adam", "--lr", "0.003", "--set", "joint=false")
    assert (adam["solver"]["kind"], adam["solver"]["lr"], adam["joint"]) == ("adam", 0.003, False)
    both = _settings(tmp_path / "b", "--method", "fedprox-ft", "--lr", "0.01", "--batch", "7", "--steps", "3")
    assert both["solver"]["steps"] == 3 and both["finetune"]["epochs"] == 5 and "steps" not in both["finetune"]
    assert both["solver"]["lr"] == both["finetune"]["lr"] == 0.01 and both["finetune"]["batch"] == 7


def test_own_csv_by_hospital(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv")
    good("run", *QUICK, "--data", table, *OWN, "--out", tmp_path / "a", "--lr", "0.2", "--rounds", 10)
    rows = json.loads((tmp_path / "a" / "clients.json").read_text())
    assert [r["name"] for r in rows] == ["A", "B", "C"]
    assert all(r["train"] + r["validation"] + r["test"] == 40 for r in rows)
    assert summary(tmp_path / "a")["personal"]["accuracy_mean"] > 0.7  # the classes are linear in the features


def test_own_npz(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(90, 5))
    np.savez(tmp_path / "own.npz", x=x, y=(x[:, 0] > 0).astype(int), subject=np.repeat([3, 1, 2], 30))
    found = json.loads(
        good(
            "run", *QUICK, "--data", tmp_path / "own.npz", "--client-key", "subject", "--partition", "natural", "--json"
        ).out
    )
    assert found["clients"] == 3


def test_regression_reports_r2(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv", target="dose")
    good(
        "run",
        "--method",
        "local",
        "--solver",
        "exact",
        "--dtype",
        "float64",
        "--data",
        table,
        *OWN,
        "--rounds",
        1,
        "--out",
        tmp_path / "a",
        "--quiet",
    )
    found = summary(tmp_path / "a")
    assert found["model"] == "linear"
    assert found["personal"]["accuracy_worst10"] == pytest.approx(1.0, abs=1e-6)  # the target is linear: R² = 1
    assert "R²" in (tmp_path / "a" / "report.html").read_text()


def test_without_test_data_there_is_no_score(tmp_path: Path) -> None:
    answer = good("run", *QUICK, "--parts", "1,0,0", "--out", tmp_path / "a")
    assert summary(tmp_path / "a")["chosen"] is None and "no test data" in answer.out
    answer = good("compare", *QUICK, "--parts", "1,0,0", "--methods", "flame,local", "--seeds", "0")
    assert "failed" not in answer.out and "no test data" in answer.out


def test_a_diverging_run_says_where_and_why(tmp_path: Path) -> None:
    line = refused("run", "--method", "fedavg", "--rounds", 4, "--lr", "1e6", "--out", tmp_path)
    assert "diverged in round" in line and "client " in line and "lower lr" in line
    assert not (tmp_path / "summary.json").exists()


def test_a_diverging_method_keeps_its_last_good_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Run.step

    def spoil(run: Run) -> None:
        step(run)
        if run.round == 5:
            run.server["w"] = run.server["w"] * torch.nan

    monkeypatch.setattr(Run, "step", spoil)
    arguments = ("--model", "softmax", "--rounds", 8, "--checkpoint-every", 2, "--quiet")
    line = refused("run", *arguments, "--method", "fedavg", "--out", tmp_path / "a")
    assert "diverged" in line and "round" in line and "client" in line
    monkeypatch.undo()
    good("run", "--resume", tmp_path / "a", "--quiet")
    good("run", *arguments, "--method", "fedavg", "--out", tmp_path / "b")
    assert summary(tmp_path / "a") == summary(tmp_path / "b")


def test_a_recipe_of_before_there_was_a_speed_keeps_its_rho_and_says_so(tmp_path: Path) -> None:
    """All settings side by side, as recipes were written then."""
    (tmp_path / "recipe.toml").write_text(
        'method = "flame"\nmodel = "softmax"\nrounds = 2\nclients = 5\n[settings]\nlam = 0.1\nrho = 0.03\n'
    )
    said = " ".join(good("run", "--recipe", tmp_path / "recipe.toml", "--out", tmp_path / "a").out.split())
    assert "flame: rho = 0.03 is kept as it was given; with 5 clients that is a speed λα/ρ of 0.667" in said
    made = Recipe.load(tmp_path / "a" / "recipe.toml")
    assert made.settings["rho"] == 0.03 and "speed" not in made.settings
    assert "is kept as it was given" not in good("run", *QUICK, "--method", "flame").out
