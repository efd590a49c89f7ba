"""The round that is reported is the best on validation data; an oracle says that it is one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commandline import METHODS, QUICK, files, good, refused, same_run, sartor, stop_in_round, summary
from federations import ragged
from groups import grouped
from subsets import one_in

import sartor as st
from sartor.core import Method
from sartor.judge import validated
from sartor.models import layers
from sartor.run.result import Result

ROUNDS = 9
WILD = st.SGD(lr=1.5)  # steps so large that accuracy goes up and down


def fit(method: Method, rounds: int = ROUNDS, **options: Any) -> Result:
    return st.fit(
        method, layers(5, 6, 3), ragged(), rounds, **grouped(**{"evaluate_every": 1, "diagnostics": False} | options)
    )


def by_hand(result: Result) -> float:
    """What validation data let expect of what each client takes; with one model its mean validation accuracy."""
    if result.summary["choice"] is None:
        return float(np.mean([row[f"{row['chosen']}_validation_accuracy"] for row in result.clients]))
    found = validated(result.scores)
    assert found is not None
    return found


CASES: dict[str, Method] = {
    "flame": st.FLAME(solver=WILD),
    "ditto": st.Ditto(solver=WILD, lam=0.5),
    "fedavg": st.FedAvg(solver=WILD),
    "fedavg-ft": st.FedAvg(solver=WILD, finetune=WILD),
    "fedamp": st.FedAMP(solver=WILD),
    "local": st.LocalOnly(solver=WILD),
}


@pytest.mark.parametrize("name", CASES)
def test_the_best_round_is_reported(name: str) -> None:
    """As found by stopping after each round: its scores, its models, and of equal rounds the first."""
    each = [fit(CASES[name], rounds=r, evaluate_every=r) for r in range(1, ROUNDS + 1)]
    values = [by_hand(r) for r in each]
    best = int(np.argmax(values)) + 1
    assert best < ROUNDS and min(values) < max(values)  # else this would not be a test
    found, stopped = fit(CASES[name], report="best"), each[best - 1]
    assert (found.summary["report"], found.summary["reported_round"]) == ("best", best)
    assert found.summary["rounds"] == ROUNDS and stopped.summary["reported_round"] == best
    assert found.clients == stopped.clients
    for model in ("personal", "global", "chosen"):
        assert found.summary[model] == stopped.summary[model]
    assert found._personal.keys() == stopped._personal.keys()
    for key, value in stopped._personal.items():
        assert torch.equal(found._personal[key], value)
    for what in ("global", "collaboration"):
        ours, theirs = found._common(what), stopped._common(what)
        assert (ours is None) == (theirs is None) and (ours is None or torch.equal(ours, theirs))  # type: ignore[arg-type]
    last = fit(CASES[name])
    assert last.summary["reported_round"] == ROUNDS and last.clients == each[-1].clients


def test_the_models_that_are_saved_are_those_of_the_reported_round(tmp_path: Path) -> None:
    found = fit(CASES["flame"], report="best")
    best = found.summary["reported_round"]
    found.save(tmp_path / "a")
    fit(CASES["flame"], rounds=best, evaluate_every=best).save(tmp_path / "b")
    assert files(tmp_path / "a" / "models") == files(tmp_path / "b" / "models") != {}
    assert (tmp_path / "a" / "clients.json").read_bytes() == (tmp_path / "b" / "clients.json").read_bytes()


SHAKY = (
    "run",
    "--model",
    "softmax",
    "--lr",
    "0.5",
    "--rounds",
    8,
    "--evaluate-every",
    1,
    "--report",
    "best",
    "--quiet",
)


@pytest.mark.parametrize("method", one_in(3, METHODS))
def test_a_stopped_run_goes_on_to_the_same_best_round(method: str, tmp_path: Path) -> None:
    arguments = (*SHAKY, "--method", method, "--checkpoint-every", 3, "--no-diagnostics")
    good(*arguments, "--out", tmp_path / "B")
    with stop_in_round(7):
        assert sartor(*arguments, "--out", tmp_path / "A").code == 130
    good("run", "--resume", tmp_path / "A", "--quiet")
    same_run(tmp_path / "A", tmp_path / "B")


def test_the_best_round_may_lie_before_the_checkpoint_or_after(tmp_path: Path) -> None:
    """Else the test above would not test what is kept."""
    best = []
    for method in METHODS:
        good(*SHAKY, "--method", method, "--no-diagnostics", "--out", tmp_path / method)
        best.append(summary(tmp_path / method)["reported_round"])
    assert min(best) <= 6 and max(best) == 8, best


def test_a_finished_run_resumes_to_itself_and_can_be_made_longer(tmp_path: Path) -> None:
    good(*SHAKY, "--method", "ditto", "--out", tmp_path / "A")
    before = files(tmp_path / "A")
    good("run", "--resume", tmp_path / "A", "--quiet")
    assert files(tmp_path / "A") == before
    good("run", "--resume", tmp_path / "A", "--rounds", 12, "--quiet")
    good(*SHAKY, "--rounds", 12, "--method", "ditto", "--out", tmp_path / "B")
    same_run(tmp_path / "A", tmp_path / "B")


def test_what_cannot_be_reported_is_refused(tmp_path: Path) -> None:
    assert "validation" in refused("run", *QUICK, "--report", "best", "--parts", "0.8,0,0.2")
    assert "memory" in refused("run", *QUICK, "--report", "best", "--store", "disk", "--out", tmp_path / "a")
    assert "'best'" in refused("run", *QUICK, "--report", "first")
    good("run", *QUICK, "--out", tmp_path / "b", "--quiet")
    assert "report" in refused("run", "--resume", tmp_path / "b", "--report", "best")


def test_the_reported_round_is_said(tmp_path: Path) -> None:
    text = good(*SHAKY[:-1], "--method", "local", "--out", tmp_path).out
    best = summary(tmp_path)["reported_round"]
    assert f"(reported: round {best}, the best on validation data)" in " ".join(text.split())
    assert "reported: round" in (tmp_path / "report.html").read_text()


# --- the oracle -------------------------------------------------------------------------------------------------------


def test_the_oracle_is_asked_for_and_says_what_it_is(tmp_path: Path) -> None:
    plain = good("run", *QUICK, "--out", tmp_path / "a").out
    told = good("run", *QUICK, "--oracle", "--out", tmp_path / "b").out
    assert "oracle (" not in plain and "oracle" not in (tmp_path / "a" / "clients.json").read_text()
    assert "oracle" not in summary(tmp_path / "a") and "oracle (chosen on TEST data" in " ".join(told.split())
    rows = json.loads((tmp_path / "b" / "clients.json").read_text())
    best = [max(r["personal_test_accuracy"], r["global_test_accuracy"]) for r in rows]
    found = summary(tmp_path / "b")
    assert found["oracle"]["accuracy_mean"] == pytest.approx(np.mean(best), rel=1e-12)
    assert {k: v for k, v in found.items() if k != "oracle"} == summary(tmp_path / "a")  # nothing else changes
    assert files(tmp_path / "a" / "models") == files(tmp_path / "b" / "models")


def test_a_comparison_with_an_oracle(tmp_path: Path) -> None:
    arguments = ("compare", *QUICK, "--methods", "flame,fedavg", "--seeds", "0,1")
    told = good(*arguments, "--oracle", "--out", tmp_path).out
    found = json.loads((tmp_path / "compare.json").read_text())
    mean = np.mean([s["oracle"]["accuracy_mean"] for s in found if s["method"] == "flame"])
    assert f"oracle (chosen on TEST data, only to compare with papers): flame {mean:.3f}" in " ".join(told.split())
    assert "oracle (on test data)" in (tmp_path / "report.html").read_text()
    assert "oracle" not in good(*arguments).out


def test_the_oracle_may_be_asked_later(tmp_path: Path) -> None:
    good("run", *QUICK, "--out", tmp_path, "--quiet")
    good("run", "--resume", tmp_path, "--oracle", "--quiet")
    found = summary(tmp_path)
    assert found["oracle"]["accuracy_mean"] >= max(found[m]["accuracy_mean"] for m in ("personal", "global"))
