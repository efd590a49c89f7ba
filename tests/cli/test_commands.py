"""`sartor list`, `run`, `compare`, `doctor` as a user calls them: files, schema, numbers, words."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commandline import METHODS, OWN, QUICK, files, good, hospitals, refused, sartor, summary, timeless
from safetensors.torch import load_file

from sartor import Ditto, __version__
from sartor.cli import doctor
from sartor.run.recipe import Recipe
from sartor.run.rounds import Run
from sartor.study import compare as compare_module

SPREAD = ("mean", "std", "var", "worst10", "best10", "min", "max", "jain", "gini", "entropy", "pooled")
MODEL_FIELDS = {"clients_scored", *(f"{what}_{k}" for what in ("accuracy", "loss") for k in SPREAD)}
SUMMARY = {
    "privacy",
    "unseen",
    "method",
    "data",
    "partition",
    "model",
    "clients",
    "cohort",
    "rounds",
    "report",
    "reported_round",
    "seed",
    "attack",
    "attackers",
    "hostile",
    "aggregator",
    "compress",
    "compress_down",
    "drop",
    "stragglers",
    "trained",
    "steps",
    "finetune_steps",
    "excluded",
    "dropped",
    "late",
    "skipped",
    "bytes_up",
    "bytes_down",
    "accuracy_per_megabyte",
    "budget",
    "target_accuracy",
    "rounds_to_target",
    "bytes_to_target",
    "stopped",
    "parameters",
    "personal",
    "global",
    "chosen",
    "warnings",
}


# --- list, doctor, help ----------------------------------------------------------------------------------------------


def test_the_version_and_an_option_that_there_is_not() -> None:
    assert good("--version").out == f"sartor {__version__}\n"
    assert refused("--verson").endswith("See sartor --help.")
    assert refused("run", "--lamda", 3).endswith("See sartor run --help.")


def test_list_names_every_method_with_its_paper() -> None:
    rows = json.loads(good("list", "methods", "--json").out)
    assert {r["name"] for r in rows} >= set(METHODS)
    assert all(set(r) == {"name", "paper", "line"} and all(r.values()) for r in rows)


@pytest.mark.parametrize(
    ("kind", "some"),
    [
        (
            "aggregators",
            {
                *("mean", "median", "trimmed-mean", "geometric-median", "krum", "multi-krum"),
                *("clipping", "k-norm", "k-loss", "fedmgda"),
            },
        ),
        (
            "attacks",
            {
                *("label-poison", "dirty-labels", "same-value", "sign-flip", "gaussian", "random-update"),
                *("model-replacement", "scaled-poison", "alie", "ipm"),
            },
        ),
        (
            "compressors",
            {"projection", "sketch", "qsgd", "top-k", "dgc", "lbgm", "int8", "int4", "float16"},
        ),
        ("partitions", {"iid", "labels", "dirichlet", "hybrid", "natural"}),
        ("datasets", {"digits", "mnist", "femnist"}),
        ("models", {"softmax", "mlp", "cnn"}),
        ("losses", {"cross-entropy", "squared", "hinge"}),
        ("solvers", {"sgd", "adam", "exact", "inexact"}),
    ],
)
def test_list_other_kinds(kind: str, some: set[str]) -> None:
    rows = json.loads(good("list", kind, "--json").out)
    assert {r["name"] for r in rows} >= some
    assert all(r["line"] for r in rows)
    text = good("list", kind).out
    assert len(text.splitlines()) == len(rows) and all(
        line.startswith(r["name"]) for line, r in zip(text.splitlines(), rows, strict=True)
    )


def test_list_of_an_unknown_kind_offers_the_nearest() -> None:
    assert "did you mean methods" in refused("list", "method")


def test_doctor_says_what_is_found() -> None:
    found = json.loads(good("doctor", "--json").out)
    assert torch.__version__.startswith(found["packages"]["torch"])
    assert found["datasets"]["digits"] == [] and found["cores"] >= 1
    text = good("doctor").out
    assert "digits" in text and "needs no file" in text and found["python"] in text


def test_doctor_says_what_to_do_about_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SARTOR_DATA", raising=False)
    monkeypatch.setenv("SARTOR_CACHE", str(tmp_path))
    found = doctor.examine()
    found["extras"] = {"fast": {"numba": None}, "privacy": {"opacus": "1.6"}}
    lines = {line.split()[0]: line for line in doctor.words(found).splitlines() if line.startswith("  ")}
    assert "pip install 'sartor[fast]'" in lines["fast"] and "pip" not in lines["privacy"]
    assert "downloaded and checked when it is first used" in lines["mnist"]
    assert f"put vehicle_ditto_train.npz into {tmp_path / 'vehicle'}" in lines["vehicle"]


def test_doctor_knows_every_extra_for_users() -> None:
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(extras["optional-dependencies"]) - {"dev", "docs"} <= set(doctor.EXTRAS)


def test_help_is_readable() -> None:
    top, bare = good("--help").out, good().out
    assert top == bare and "..." not in top.split("Commands:")[1]
    text = good("run", "--help").out
    for option in ("--method", "--client-key", "--set", "--resume", "--out", "--cohort"):
        assert option in text
    assert max(map(len, text.splitlines())) <= 120


def test_version() -> None:
    assert good("version").out.strip() == "0.1.0"


# --- run -------------------------------------------------------------------------------------------------------------


def test_a_run_leaves_the_files_of_the_design(tmp_path: Path) -> None:
    answer = good("run", *QUICK, "--out", tmp_path / "a")
    names = {p.name for p in (tmp_path / "a").iterdir()}
    kept = {"recipe.toml", "data.json", "history.jsonl", "clients.json", "summary.json", "inputs.json", "report.html"}
    assert names == kept | {"state", "models"}
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
        own, common = r["personal_validation_accuracy"], r["global_validation_accuracy"]
        if own != common:
            assert r["chosen"] == ("personal" if own > common else "global")
        assert r["chosen_test_accuracy"] == r[f"{r['chosen']}_test_accuracy"]


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
    split = recipe.split(recipe.dataset())
    assert recipe.complete(split) == recipe
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
    return dict(tomllib.loads((folder / "recipe.toml").read_text())["settings"])


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


# --- own data --------------------------------------------------------------------------------------------------------


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


# --- compare ---------------------------------------------------------------------------------------------------------

COMPARE = ("compare", "--methods", "flame,fedavg,local", "--seeds", "0,1", "--model", "softmax", "--rounds", "3")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A comparison's folder and what was printed."""
    folder = tmp_path_factory.mktemp("compared")
    return folder, good(*COMPARE, "--out", folder).out


def _cells(folder: Path) -> dict[tuple[str, int], list[dict[str, Any]]]:
    return {
        (m, s): json.loads((folder / f"{m}-{s}" / "clients.json").read_text())
        for m in ("flame", "fedavg", "local")
        for s in (0, 1)
    }


def test_compare_json_is_a_list_of_summaries(compared: tuple[Path, str]) -> None:
    found = json.loads((compared[0] / "compare.json").read_text())
    assert [(s["method"], s["seed"]) for s in found] == [
        ("flame", 0),
        ("fedavg", 0),
        ("local", 0),
        ("flame", 1),
        ("fedavg", 1),
        ("local", 1),
    ]
    for s in found:
        assert set(s) == SUMMARY | {"seconds"}
        assert s == json.loads((compared[0] / f"{s['method']}-{s['seed']}" / "summary.json").read_text())


def test_the_table_follows_from_the_clients(compared: tuple[Path, str]) -> None:
    cells, text = _cells(compared[0]), compared[1]
    for method in ("flame", "fedavg", "local"):
        row = next(line for line in text.splitlines() if line.startswith(method + " "))
        for model in ("global", "personal", "chosen"):
            scores = [np.array([r.get(f"{model}_test_accuracy", np.nan) for r in cells[method, s]]) for s in (0, 1)]
            if not np.isnan(scores[0]).any():
                mean, std, worst = (np.mean([f(v) for v in scores]) for f in (np.mean, np.std, np.min))
                assert f"{mean:.3f} ±{std:.2f} {worst:.3f}" in row
        if method != "local":
            ours, alone = ([r["chosen_test_accuracy"] for s in (0, 1) for r in cells[m, s]] for m in (method, "local"))
            gain = sum(a > b for a, b in zip(ours, alone, strict=True))
            lose = sum(a < b for a, b in zip(ours, alone, strict=True))
            assert gain + lose > 0 and f" +{gain} −{lose} " in row


def test_all_methods_have_the_same_clients(compared: tuple[Path, str]) -> None:
    cells = _cells(compared[0])
    sizes = {k: [(r["train"], r["test"]) for r in rows] for k, rows in cells.items()}
    assert sizes["flame", 0] == sizes["local", 0] != sizes["flame", 1] == sizes["fedavg", 1]


def test_compare_without_a_terminal_is_readable(compared: tuple[Path, str]) -> None:
    text = compared[1]
    assert "\x1b" not in text and "…" not in text and "\r" not in text
    assert "1/6 flame, seed 0: chosen 0." in text and "6/6 local, seed 1" in text
    assert "MB" in text and "vs" in text and "of 20 clients" in text


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_the_table_fits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sartor.cli.console.out._width", columns)
    text = good("compare", *QUICK, "--methods", "flame-lp-proj,fedavg,local", "--seeds", "0").out
    table = text[text.index("test accuracy over") :]
    assert "…" not in table and max(map(len, table.splitlines())) <= columns
    assert ("±" in table) == (columns >= 100)  # else a row per model
    assert all(word in table for word in ("flame-lp-proj", "personal", "global", "chosen", "0.00"))


def test_a_second_compare_takes_what_is_finished(compared: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, text = compared
    before = (folder / "compare.json").read_bytes()

    def play(*_: object) -> None:
        raise AssertionError("a finished cell was run again")

    monkeypatch.setattr(compare_module, "play_recipe", play)
    assert timeless(good(*COMPARE, "--out", folder).out) == timeless(text)
    assert (folder / "compare.json").read_bytes() == before


def test_compare_refuses_a_folder_with_other_settings(compared: tuple[Path, str]) -> None:
    before = files(compared[0])
    assert "other settings" in refused(*COMPARE, "--out", compared[0], "--set", "flame.lam=2.125")
    assert "other settings" in refused(*COMPARE[:-1], "4", "--out", compared[0])
    assert "comparison" in refused("run", *QUICK, "--out", compared[0])
    assert files(compared[0]) == before


def test_compare_sets_a_methods_own_field(tmp_path: Path) -> None:
    good(
        "compare",
        *QUICK,
        "--methods",
        "flame,ditto",
        "--seeds",
        "3",
        "--set",
        "flame.lam=2.5",
        "--quiet",
        "--out",
        tmp_path,
    )
    lam = [Recipe.load(tmp_path / f"{m}-3" / "recipe.toml").settings["lam"] for m in ("flame", "ditto")]
    assert lam == [2.5, Ditto().lam] and lam[1] != 2.5


# --- divergence ------------------------------------------------------------------------------------------------------


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


def test_compare_goes_on_when_one_method_diverges(tmp_path: Path) -> None:
    answer = good(
        "compare",
        *QUICK,
        "--model",
        "mlp",
        "--methods",
        "ditto,fedavg,local",
        "--seeds",
        "0",
        "--set",
        "fedavg.solver.lr=1e6",
        "--out",
        tmp_path,
    )
    found = {s["method"]: s for s in json.loads((tmp_path / "compare.json").read_text())}
    assert "diverged" in found["fedavg"]["error"] and found["fedavg"]["chosen"] is None
    assert "error" not in found["ditto"] and found["ditto"]["chosen"]["accuracy_mean"] > 0
    assert set(found["fedavg"]) == SUMMARY | {"seconds", "error"}
    row = next(line for line in answer.out.splitlines() if line.startswith("fedavg "))
    assert "failed" in row and "fedavg failed, seed 0: diverged" in answer.out
    assert "failed" in (tmp_path / "report.html").read_text()


def test_compare_fails_when_all_methods_do(tmp_path: Path) -> None:
    answer = sartor(
        "compare",
        *QUICK,
        "--model",
        "mlp",
        "--methods",
        "fedavg,local",
        "--seeds",
        "0",
        "--lr",
        "1e6",
        "--out",
        tmp_path,
    )
    assert answer.code == 2 and "every method failed" in answer.err and answer.err.count("\n") == 1
    assert all("diverged" in s["error"] for s in json.loads((tmp_path / "compare.json").read_text()))
