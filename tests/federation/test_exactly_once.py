"""Exactly once: messages that are lost, doubled or late change nothing, and silence is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sites import QUICK, Federation, is_message, last, vectors

from sartor.errors import SartorError, Silent
from sartor.federation.rounds import Waiting, decode
from sartor.run.recipe import Recipe


def test_lost_and_doubled_messages_change_nothing(flame: Federation, undisturbed: dict[str, bytes]) -> None:
    lead = flame.play_lost_and_doubled()
    assert vectors(flame.folder) == undisturbed
    assert lead.hub is not None and lead.hub.counts["duplicate"] > 0


def test_a_round_whose_answer_was_lost_has_not_happened(flame: Federation, paths: dict[str, Path]) -> None:
    """Site b's answers of round 2 never arrive: the run equals one in which b sat out that round."""
    calls = flame.calls()
    calls.after = lambda site, data: [] if site == "b" and is_message(data, "answer", "train", 1) else [data]
    flame.play(calls)
    sat_out = Federation(flame.folder.parent / "sat out", flame.recipe, paths)
    silent = sat_out.calls()
    silent.before = lambda site, data: [] if site == "b" and is_message(data, "train", None, 1) else [data]
    sat_out.play(silent)
    ours, theirs = vectors(flame.folder), vectors(sat_out.folder)
    assert {k: v for k, v in ours.items() if not k.startswith("b/client")} == {
        k: v for k, v in theirs.items() if not k.startswith("b/client")
    }
    newest = [{k: v for k, v in f.items() if " state/" in k and k.startswith("b/")} for f in (ours, theirs)]
    assert set(newest[1].values()) <= set(newest[0].values())


def test_a_silent_site_is_left_out_and_taken_back(flame: Federation) -> None:
    flame.recipe = Recipe(method="flame", **QUICK | {"rounds": 6, "evaluate_every": 6})
    calls = flame.calls()
    calls.before = lambda site, data: [] if site == "c" and 1 <= decode(data).round <= 3 else [data]
    lead = flame.lead(calls)
    result = last(lead)
    assert result.run.counts["trained"] == 3 * 6 - 3
    assert [s for s in flame.said if "site c" in s] == [
        "site c did not answer 2 times: it is not waited for until it answers",
        "site c answers again and is taken back",
    ]


def test_a_restarted_server_remembers_who_was_silent(flame: Federation) -> None:
    flame.recipe = Recipe(method="flame", **QUICK | {"rounds": 6, "evaluate_every": 6})
    calls = flame.calls()
    calls.before = lambda site, data: [] if site == "c" and decode(data).round >= 1 else [data]
    for result in flame.lead(calls).play():
        if result.run.round == 4:
            break  # killed
    flame.said.clear()
    lead = flame.lead(calls)
    last(lead)
    assert lead.hub is not None and lead.hub.silent["c"] > 4
    assert not [s for s in flame.said if "site c was silent" in s]  # it is left out from the first round on


def test_too_few_answers_the_round_waits_once_more_and_is_skipped(flame: Federation) -> None:
    flame.waiting = replace(flame.waiting, clients=2, seconds=0.03)
    calls = flame.calls()
    calls.before = lambda site, data: [] if site != "a" and is_message(data, "train", None, 1) else [data]
    result = flame.play(calls)
    assert result.run.counts["skipped"] == 1 and result.run.counts["trained"] == 6
    assert [s for s in flame.said if "round 2" in s] == [
        "round 2: 1 of at least 2 clients have answered; waiting once more",
        "round 2: fewer than 2 clients answered in time; it is skipped",
    ]


def test_a_site_that_missed_its_welcome_is_told_the_terms_when_it_comes(
    flame: Federation, undisturbed: dict[str, bytes]
) -> None:
    flame.waiting = replace(flame.waiting, seconds=30)
    calls = flame.calls()
    missed = []

    def away(site: str, data: bytes) -> list[bytes]:
        if site == "b" and decode(data).kind == "welcome" and len(missed) < 5:
            missed.append(data)
            return []
        return [data]

    calls.before = away
    lead = flame.lead(calls)
    lead.joining = 0.05
    last(lead)
    assert missed and vectors(flame.folder) == undisturbed


def test_nobody_there_is_said(flame: Federation) -> None:
    calls = flame.calls()
    calls.before = lambda site, data: []
    lead = flame.lead(calls)
    lead.joining = 0.05
    with pytest.raises(Silent, match=r"only 0 of at least 1 sites can take part; missing after 0 s: a, b, c"):
        last(lead)


def test_waiting_refuses_nonsense() -> None:
    for bad in ({"seconds": 0.0}, {"clients": 0}, {"timeouts": 0}, {"again": -1.0}):
        with pytest.raises(SartorError):
            Waiting(**bad)  # type: ignore[arg-type]
