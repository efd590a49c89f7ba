"""Byte budgets and target accuracies: runs that stop in time, say what they took, and go on where they stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from commandline import good, history, refused, same_run, sartor, stop_in_round, summary
from federations import ragged

import sartor as st
from sartor.compressors import LBGM, TopK
from sartor.models import layers
from sartor.run.bytes import Goal, parse_bytes, written
from sartor.study import compare as compare_module

RUN = ("run", "--model", "softmax", "--method", "fedavg", "--quiet", "--no-diagnostics")
COMPARE = ("compare", "--model", "softmax", "--seeds", "0", "--no-diagnostics")
ROUND = 2 * 10 * 650 * 4  # ten clients, 650 numbers of four bytes, both ways


@pytest.mark.parametrize(
    ("text", "count"),
    [
        *(("328020", 328020), ("4MB", 4_000_000), ("500kB", 500_000), ("1.5 MiB", 3 * 2**19), ("2GB", 2 * 10**9)),
        *(("7b", 7), ("1KiB", 1024), (12, 12)),
    ],
)
def test_bytes_are_written_as_people_do(text: str | int, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "MB", "4 megs", "-1", "1e6", "0", "4MB up", "nan"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(st.SartorError, match="a budget is"):
        parse_bytes(text)


def test_bytes_to_read() -> None:
    assert [written(n) for n in (12, 1234, 5_368_000, 4.2e9)] == ["12 bytes", "1.23 kB", "5.37 MB", "4.2 GB"]


@pytest.mark.parametrize("target", [1.5, float("nan"), float("inf")])
def test_a_target_beyond_everything_is_refused(target: float) -> None:
    with pytest.raises(st.SartorError, match="a target accuracy is at most 1"):
        Goal(target=target)


def test_a_budget_is_spent_and_never_exceeded(tmp_path: Path) -> None:
    for rounds, budget in ((1, ROUND), (3, 4 * ROUND - 1), (4, 4 * ROUND)):
        place = tmp_path / str(budget)
        good(*RUN, "--budget", budget, "--rounds", 9, "--out", place)
        found = summary(place)
        assert (found["rounds"], found["stopped"], found["budget"]) == (rounds, "budget", budget)
        assert found["bytes_up"] + found["bytes_down"] == rounds * ROUND
        assert found["accuracy_per_megabyte"] == found["chosen"]["accuracy_mean"] / (rounds * ROUND / 1e6)
        assert history(place)[-1]["round"] == rounds  # the last round is evaluated, whenever it comes
    good(*RUN, "--budget", "1GB", "--rounds", 2, "--out", tmp_path / "all")
    assert (summary(tmp_path / "all")["rounds"], summary(tmp_path / "all")["stopped"]) == (2, "rounds")


@pytest.mark.parametrize("compress", ["lbgm", "dgc(k=0.01)", "qsgd", "top-k"])
def test_a_budget_holds_for_lengths_that_depend_on_the_data(compress: str) -> None:
    line = good(*RUN[:-1], "--compress", compress, "--budget", "400kB", "--rounds", 99, "--json").out
    found = json.loads(line)
    spent = found["bytes_up"] + found["bytes_down"]
    assert 400_000 - ROUND < spent <= 400_000 and found["stopped"] == "budget"


def test_a_budget_smaller_than_a_round_is_refused() -> None:
    line = refused(*RUN, "--budget", ROUND - 1)
    assert f"one round takes {ROUND} bytes up and down, more than the budget of {ROUND - 1}" in line
    assert "--budget" in line and "--cohort" in line
    assert "a budget is a number of bytes" in refused(*RUN, "--budget", "4 megs")
    assert "a target accuracy is at most 1" in refused(*RUN, "--target-accuracy", 70)
    assert "one round takes" in refused(*COMPARE, "--methods", "fedavg,ditto", "--budget", "10kB", "--quiet")


def test_a_run_goes_on_with_a_larger_budget(tmp_path: Path) -> None:
    extra = ("--compress", "top-k(k=0.1)", "--rounds", 20, "--checkpoint-every", 3, "--evaluate-every", 2)
    good(*RUN, *extra, "--budget", "150kB", "--out", tmp_path / "a")
    first = summary(tmp_path / "a")["rounds"]
    assert "have taken" in refused("run", "--resume", tmp_path / "a", "--budget", "100kB")
    good("run", "--resume", tmp_path / "a", "--budget", "150kB", "--quiet")
    assert summary(tmp_path / "a")["rounds"] == first  # nothing more can be afforded
    good("run", "--resume", tmp_path / "a", "--budget", "400kB", "--quiet")
    good(*RUN, *extra, "--budget", "400kB", "--out", tmp_path / "b")
    assert summary(tmp_path / "b")["rounds"] > first
    a, b = summary(tmp_path / "a"), summary(tmp_path / "b")
    assert a == b and (tmp_path / "a" / "clients.json").read_bytes() == (tmp_path / "b" / "clients.json").read_bytes()


def test_a_stopped_run_with_a_budget_and_a_target_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    extra = ("--compress", "lbgm", "--compress-down", "int8", "--rounds", 30, "--checkpoint-every", 2)
    goals = ("--evaluate-every", 1, "--budget", "300kB", "--target-accuracy", 0.85)
    good(*RUN, *extra, *goals, "--out", tmp_path / "a")
    with stop_in_round(5):
        assert sartor(*RUN, *extra, *goals, "--out", tmp_path / "b").code == 130
    good("run", "--resume", tmp_path / "b", "--quiet")
    same_run(tmp_path / "a", tmp_path / "b")
    assert "compress" in refused("run", "--resume", tmp_path / "b", "--compress", "int8")


def test_a_target_is_met_on_validation_data(tmp_path: Path) -> None:
    good(*RUN, "--rounds", 40, "--evaluate-every", 1, "--out", tmp_path / "all")
    lines = history(tmp_path / "all")
    target = lines[-1]["validation"]  # as it was reached at the end, so not later than there
    first = next(line for line in lines if line["validation"] >= target)
    good(*RUN, "--rounds", 40, "--evaluate-every", 1, "--target-accuracy", target, "--out", tmp_path / "a")
    found = summary(tmp_path / "a")
    assert found["rounds"] == found["rounds_to_target"] == first["round"] and found["stopped"] == "target"
    assert found["bytes_to_target"] == first["bytes_up"] + first["bytes_down"] == first["round"] * ROUND
    assert found["target_accuracy"] == target
    assert found["chosen"]["accuracy_mean"] == first["chosen"]["accuracy_mean"]  # on test data, where it stopped
    good(*RUN, "--rounds", 3, "--target-accuracy", 1.0, "--out", tmp_path / "b")
    found = summary(tmp_path / "b")
    assert found["rounds_to_target"] is found["bytes_to_target"] is None and found["stopped"] == "rounds"


def test_a_target_may_be_any_number_that_r2_can_be() -> None:
    lines = [{"round": r, "validation": v} for r, v in enumerate((None, -0.5, 0.0, 0.3))]
    rounds = {target: Goal(target=target).reached(lines) for target in (-0.7, -0.5, 0.0, 0.2, 0.9)}
    assert {t: line and line["round"] for t, line in rounds.items()} == {-0.7: 1, -0.5: 1, 0.0: 2, 0.2: 3, 0.9: None}
    assert Goal().reached(lines) is None


def test_in_python() -> None:
    method, solver = st.FedAvg, st.SGD(lr=0.1, batch=7)
    result = st.fit(
        method(solver=solver), layers(5, 3), ragged(), 50, traffic=st.Traffic(budget="3kB", compress=TopK(k=0.5))
    )
    assert result.summary["stopped"] == "budget" and result.summary["compress"] == "top-k(k=0.5)"
    with pytest.raises(st.OverBudget, match="one round takes"):
        st.fit(method(solver=solver), layers(5, 3), ragged(), 50, traffic=st.Traffic(budget=20, compress=LBGM()))


# --- compare ----------------------------------------------------------------------------------------------------------


def rows_of(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "compare.json").read_text())
    return found


def test_methods_with_compressors_of_their_own(tmp_path: Path) -> None:
    """Each entrant has its own; the same run by itself gives the same numbers."""
    names = "local,fedavg,fedavg+top-k(k=0.1, feedback=false),fedavg+int8,lp-proj-2"
    answer = good(*COMPARE, "--methods", names, "--rounds", 4, "--set", "fedavg.mu=0.5", "--out", tmp_path / "a")
    rows = rows_of(tmp_path / "a")
    assert [r["method"] for r in rows] == ["local", "fedavg", "fedavg", "fedavg", "lp-proj-2"]
    short = ["none", "none", "top-k(k=0.1, feedback=false)", "int8", "none"]
    assert [r["compress"] for r in rows] == short
    same = ("--local-steps", 10)
    good(*RUN, *same, "--rounds", 4, "--set", "mu=0.5", "--compress", "int8", "--out", tmp_path / "b")
    alone = summary(tmp_path / "b")
    assert {k: v for k, v in rows[3].items() if k != "seconds"} == alone
    assert "per MB" in answer.out and "fedavg+int8" in answer.out and "fedavg+top-k" in answer.out
    page = (tmp_path / "a" / "report.html").read_text()
    assert "acc. per MB" in page and "fedavg+int8" in page
    assert "per MB" not in good(*COMPARE, "--methods", "fedavg,local", "--rounds", 1).out  # nobody asked


def test_a_budget_of_a_comparison(tmp_path: Path) -> None:
    """Everybody spends the same and plays as many rounds as that gives; finished cells are not played again."""
    call = (*COMPARE, "--methods", "fedavg+int8,fedavg+top-k,lp-proj-2", "--budget", "40kB", "--rounds", 99)
    call = (*call, "--compress-down", "int4", "--out", tmp_path / "a")
    answer = good(*call)
    rows = rows_of(tmp_path / "a")
    down = 10 * (16 + 4 + 325)
    sparse = 16 + 4 + 8 + 6 * 4  # six of 650 numbers, at six positions of ten bits
    each = [10 * (16 + 4 + 650) + down, 10 * sparse + down, 10 * 20 * 4 + 10 * (16 + 4 + 10)]
    for row, cost in zip(rows, each, strict=True):
        assert row["stopped"] == "budget" and row["rounds"] == 40_000 // cost and row["budget"] == 40_000
        assert row["bytes_up"] + row["bytes_down"] == row["rounds"] * cost
    assert "per MB" in answer.out
    with mock.patch.object(compare_module, "play_recipe", side_effect=AssertionError):
        good(*call)


def test_one_method_over_budget_does_not_stop_the_others(tmp_path: Path) -> None:
    call = (*COMPARE, "--methods", "fedavg,lp-proj-2", "--budget", "20kB", "--rounds", 5, "--out", tmp_path / "a")
    answer = good(*call)
    plain, tiny = rows_of(tmp_path / "a")
    assert f"one round takes {ROUND} bytes" in plain["error"] and plain["chosen"] is None and plain["budget"] == 20_000
    assert tiny["rounds"] == 5 and "error" not in tiny
    assert "fedavg failed, seed 0: one round takes" in answer.out


def test_a_target_of_a_comparison(tmp_path: Path) -> None:
    call = (*COMPARE, "--methods", "local,fedavg+int8,fedavg", "--target-accuracy", "0.6", "--rounds", 12)
    call = (*call, "--evaluate-every", 1, "--out", tmp_path / "a")
    answer = good(*call)
    rows = rows_of(tmp_path / "a")
    for row in rows:
        assert row["stopped"] == "target" and row["rounds"] == row["rounds_to_target"]
    assert rows[0]["bytes_to_target"] == 0 and rows[0]["accuracy_per_megabyte"] is None
    assert 0 < rows[1]["bytes_to_target"] / rows[1]["rounds"] < 0.7 * rows[2]["bytes_to_target"] / rows[2]["rounds"]
    assert "to 0.6" in answer.out
    with mock.patch.object(compare_module, "play_recipe", side_effect=AssertionError):
        good(*call)  # all cells are finished


def test_names_of_entrants_that_are_wrong() -> None:
    assert "did you mean fedavg" in refused(*COMPARE, "--methods", "fedavgg+int8")
    assert "did you mean int8" in refused(*COMPARE, "--methods", "fedavg+int88")
    assert "listed twice" in refused(*COMPARE, "--methods", "fedavg+int8,fedavg+int8")
    assert "dgc carries momentum" in refused(*COMPARE, "--methods", "flame+dgc")
