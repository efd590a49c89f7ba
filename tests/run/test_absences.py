"""Clients that fail: who is not reached stays as it was, who is late counts once, silence ends a run in good order."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from commandline import QUICK, good, history, refused, same_run, sartor, stop_in_round, summary
from federations import ragged
from groups import grouped

import sartor as st
from sartor.core import Server, State
from sartor.errors import SartorError
from sartor.models import layers
from sartor.run.absences import draw_absences, finite, joined
from sartor.run.assemble import prepare
from sartor.run.result import Result
from sartor.run.rounds import draw_cohort, play

SOLVER = st.SGD(lr=0.1, epochs=1, batch=7)


def ready(failures: st.Federation, method: object = None, **options: object) -> Result:
    made = method or st.FLAME(solver=SOLVER)
    return prepare(made, layers(5, 3), ragged(), seed=5, **grouped(federation=failures, dtype=torch.float64, **options))  # type: ignore[arg-type]


def watched(result: Result) -> list[tuple[list[int], State]]:
    """Who is heard by the server in each round, and with what."""
    heard: list[tuple[list[int], State]] = []
    method = result.run.method
    inner = method.server

    def server(before: Server, ids: torch.Tensor, messages: State, weights: torch.Tensor, round: int) -> Server:
        heard.append((ids.tolist(), messages))
        return inner(before, ids, messages, weights, round)

    object.__setattr__(method, "server", server)
    return heard


# --- dropped ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_so_many_are_dropped(share: float) -> None:
    problem = ready(st.Federation()).run.problem
    lost = torch.stack([draw_absences(st.Federation(drop=share), problem, r)[0] for r in range(2000)]).double().numpy()
    assert abs(float(lost.mean()) - share) < 4 * np.sqrt(share * (1 - share) / lost.size)
    assert np.abs(lost.mean(0) - share).max() < 4.5 * np.sqrt(share * (1 - share) / len(lost))
    corr = np.corrcoef(lost.T)
    assert np.abs(corr - np.eye(7)).max() < 4.5 / np.sqrt(len(lost))  # one client's failure says nothing of another's


@pytest.mark.parametrize("train_all", [False, True])
def test_a_dropped_client_is_not_reached_and_stays_as_it_was(train_all: bool) -> None:
    method = st.PFedMe(R=1, train_all=train_all, solver=st.SGD(lr=0.05, steps=2, reuse=True))
    failures = st.Federation(drop=0.4)
    run = ready(failures, method, cohort=4).run
    for r in range(6):
        before = {k: v.clone() for k, v in run.engine.save().items()}
        lost = draw_absences(failures, run.problem, r)[0]
        cohort = torch.isin(torch.arange(7), draw_cohort(run.problem, 4, "uniform", r))
        run.step()
        trained = ~lost if train_all else ~lost & cohort
        after = run.engine.save()
        assert torch.equal(after["visits"], before["visits"] + trained)
        assert torch.equal(after["state/theta"][~trained], before["state/theta"][~trained])
        assert (after["state/theta"][trained] != before["state/theta"][trained]).any(1).all()
    assert run.counts["dropped"] > 0


def test_the_server_hears_those_who_were_reached() -> None:
    failures = st.Federation(drop=0.5)
    result = ready(failures)
    heard = watched(result)
    for _ in range(5):
        result.run.step()
    lost = [draw_absences(failures, result.run.problem, r)[0] for r in range(5)]
    assert [ids for ids, _ in heard] == [torch.arange(7)[~row].tolist() for row in lost if not row.all()]
    assert result.run.counts["dropped"] == int(torch.stack(lost).sum())


def test_the_seed_decides_and_no_failure_is_the_plain_run() -> None:
    a, b, plain, none = (ready(f) for f in (st.Federation(drop=0.3), st.Federation(drop=0.3), st.Federation(), None))
    for r in (a, b, plain, none):
        for _ in range(4):
            r.run.step()
    assert torch.equal(a.run.server["w"], b.run.server["w"]) and a.run.counts == b.run.counts
    assert torch.equal(plain.run.server["w"], none.run.server["w"]) and {
        k for k, v in plain.run.counts.items() if v
    } == {"trained", "steps"}
    assert not torch.equal(a.run.server["w"], plain.run.server["w"])


# --- late -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stale", ["use", "discard"])
def test_late_answers_count_in_the_next_round_or_never(stale: str) -> None:
    failures = st.Federation(stragglers=0.4, stale=stale)
    late = ready(failures, st.FedAMP(solver=SOLVER), cohort=4)
    heard = watched(late)
    run = late.run
    waiting: dict[int, torch.Tensor] = {}
    for r in range(8):
        cohort = draw_cohort(run.problem, 4, "uniform", r)
        slow = draw_absences(failures, run.problem, r)[1]
        down = run.method.downlink(run.server, cohort, r)
        kept = {k: v.clone() for k, v in run.engine.save().items()}
        _, sent = run.engine.map("train", r, cohort, down)  # what is sent does not depend on who is late
        run.engine.restore(kept)
        rows = dict(zip(cohort.tolist(), sent["w"], strict=True))
        expected = waiting | {i: v for i, v in rows.items() if not slow[i]}
        before = len(heard)
        run.step()
        if expected:
            ids, messages = heard[before]
            assert ids == sorted(expected)
            for i, row in zip(ids, messages["w"], strict=True):
                assert torch.equal(row, expected[i])
        else:
            assert len(heard) == before
        waiting = {i: v for i, v in rows.items() if slow[i]} if stale == "use" else {}
        trained = run.engine.save()["visits"][cohort] - kept["visits"][cohort]
        assert (trained == 1).all()  # late or not, they did the work
    assert run.counts["late"] > 0


def test_of_two_answers_the_fresh_one_counts() -> None:
    old = torch.tensor([1, 4]), {"w": torch.tensor([[1.0], [4.0]]), "n": torch.tensor([1.0, 4.0])}
    new = torch.tensor([0, 4]), {"w": torch.tensor([[10.0], [40.0]]), "n": torch.tensor([10.0, 40.0])}
    ids, messages = joined(old, new)
    assert ids.tolist() == [0, 1, 4]
    assert messages["w"][:, 0].tolist() == messages["n"].tolist() == [10.0, 1.0, 40.0]
    ids, messages = joined(old, (torch.zeros(0, dtype=torch.int64), {}))
    assert ids.tolist() == [1, 4] and messages["w"][:, 0].tolist() == [1.0, 4.0]


# --- NaN --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_cannot_be_computed_with(dtype: torch.dtype) -> None:
    nan, inf = float("nan"), float("inf")
    rows = torch.tensor([[1.0, 2.0], [nan, 0.0], [0.0, inf], [-inf, inf], [0.0, 0.0]], dtype=dtype)
    assert finite({"w": rows}, 5).tolist() == [True, False, False, False, True]
    beside = torch.tensor([1.0, 1.0, 1.0, 1.0, nan], dtype=dtype)
    assert finite({"w": rows, "loss": beside}, 5).tolist() == [True, False, False, False, False]
    huge = torch.full((1, 3), float(torch.finfo(dtype).max) / 8, dtype=dtype)  # finite, but its square is not
    assert finite({"w": huge}, 1).tolist() == [False] and finite({}, 2).tolist() == [True, True]
    assert finite({"w": torch.zeros(0, 3)}, 0).tolist() == []


# --- silence ----------------------------------------------------------------------------------------------------------


def test_a_round_without_answers_is_skipped_counted_and_reported() -> None:
    result = ready(st.Federation(drop=0.7), cohort=1)
    run = result.run
    for r in range(10):
        before, kept = run.server["w"].clone(), run.counts["skipped"]
        run.step()
        silent = bool(draw_absences(run.federation, run.problem, r)[0][draw_cohort(run.problem, 1, "uniform", r)])
        assert run.counts["skipped"] == kept + silent
        assert not silent or torch.equal(run.server["w"], before)
    assert run.round == 10 and 0 < run.counts["skipped"] < 10
    assert run.evaluate(diagnose=False)["skipped"] == result.summary["skipped"] == run.counts["skipped"]


def test_after_patience_the_run_stops_and_keeps_its_state(tmp_path: Path) -> None:
    place = tmp_path / "state"
    patient = ready(st.Federation(drop=0.8, patience=1000), cohort=1).run
    for _ in play(patient, 60, evaluate_every=60, checkpoint=tmp_path / "all", settings="s"):
        pass
    stops = 0
    run = ready(st.Federation(drop=0.8, patience=5), cohort=1).run
    while run.round < 60:
        try:
            for _ in play(run, 60, evaluate_every=60, checkpoint=place, checkpoint_every=100, settings="s"):
                pass
        except st.Silent as e:
            stops += 1
            assert "nobody answered in 5 rounds in a row" in str(e) and f"round {run.round}" in str(e)
            run = ready(st.Federation(drop=0.8, patience=5), cohort=1).run
            run.restore(place, "s")
    assert stops >= 2
    assert torch.equal(run.server["w"], patient.server["w"]) and run.counts == patient.counts


def test_silence_on_the_command_line(tmp_path: Path) -> None:
    """Exit code 2, one line, the state kept; --resume goes on, also with more patience, to the same run."""
    request = ("run", "--model", "softmax", "--rounds", "30", "--cohort", "1", "--drop", "0.8", "--quiet")
    line = refused(*request, "--patience", "4", "--out", tmp_path / "a")
    assert "nobody answered in 4 rounds in a row" in line and "--resume" in line
    assert (tmp_path / "a" / "state" / "checkpoint.safetensors").exists()
    assert not (tmp_path / "a" / "summary.json").exists()
    good("run", "--resume", tmp_path / "a", "--patience", "30", "--quiet")
    good(*request, "--patience", "30", "--out", tmp_path / "b")
    same_run(tmp_path / "a", tmp_path / "b")
    assert summary(tmp_path / "a")["skipped"] > 0 and history(tmp_path / "a")[-1]["skipped"] > 0
    assert "nothing was kept" in refused(*request, "--patience", "4").lower()


# --- the command line -------------------------------------------------------------------------------------------------

HARD = (
    *("--attack", "gaussian", "--attackers", "0.3", "--aggregator", "trimmed-mean(share=0.25)"),
    *("--drop", "0.2", "--stragglers", "0.3"),
)


def test_a_run_under_attack_is_kept_resumed_and_the_same_on_any_engine(tmp_path: Path) -> None:
    request = ("run", "--model", "softmax", "--rounds", "6", "--checkpoint-every", "2", *HARD, "--quiet")
    good(*request, "--out", tmp_path / "a")
    with stop_in_round(5):
        assert sartor(*request, "--out", tmp_path / "b").code == 130
    good("run", "--resume", tmp_path / "b", "--quiet")
    same_run(tmp_path / "a", tmp_path / "b")
    good(*request, "--engine", "serial", "--out", tmp_path / "c")
    rows, others = (json.loads((tmp_path / f / "clients.json").read_text()) for f in ("a", "c"))
    assert [r["hostile"] for r in rows] == [r["hostile"] for r in others] and sum(r["hostile"] for r in rows) == 3
    for r, o in zip(rows, others, strict=True):
        assert r["chosen_test_accuracy"] == o["chosen_test_accuracy"]
    recipe = (tmp_path / "a" / "recipe.toml").read_text()
    for line in (
        'attack = "gaussian(like=flame)"',
        "attackers = 0.3",
        "drop = 0.2",
        "stragglers = 0.3",
        'aggregate = "trimmed-mean(share=0.25)"',
    ):
        assert line in recipe
    found = summary(tmp_path / "a")
    assert found["attack"] == "gaussian" and found["hostile"] == 3 and found["late"] > 0
    assert found["aggregator"] == "trimmed-mean(share=0.25)"
    assert "has attackers = 0.3; got 0.4" in refused("run", "--resume", tmp_path / "a", "--attackers", "0.4")
    assert "(hostile)" in (tmp_path / "a" / "report.html").read_text()


def test_an_attack_without_a_share_takes_a_fifth_and_the_terminal_says_so() -> None:
    text = good("run", *QUICK, "--attack", "same-value").out
    assert "2 clients hostile (same-value), scores are of 8 benign ones" in " ".join(text.split())
    assert text.count("(hostile)") == 2


def test_compare_takes_the_same_options(tmp_path: Path) -> None:
    good(
        *("compare", *QUICK, "--methods", "flame,fedavg", "--seeds", "0", *HARD, "--out", tmp_path, "--quiet"),
    )
    found = json.loads((tmp_path / "compare.json").read_text())
    assert [s["hostile"] for s in found] == [3, 3]
    assert {s["aggregator"] for s in found} == {"trimmed-mean(share=0.25)"}


@pytest.mark.parametrize("settings", [{"drop": 1.0}, {"stragglers": -0.1}, {"drop": float("nan")}, {"patience": 0}])
def test_refused(settings: dict[str, float]) -> None:
    with pytest.raises(SartorError, match=next(iter(settings))):
        st.Federation(**settings)  # type: ignore[arg-type]
