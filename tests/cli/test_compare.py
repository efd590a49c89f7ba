"""`sartor compare`: what it leaves, takes over, refuses and says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commandline import QUICK, SUMMARY, files, good, refused, sartor, timeless

from sartor import Ditto
from sartor.run.recipe import Recipe
from sartor.study import compare as compare_module

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
    assert ("±" in table) == (columns > 100)  # else a row per model
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
