"""A site that does not keep to the rules costs the others its own answers, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sites import Calls, Federation, last, vectors

from sartor.errors import readable
from sartor.federation.rounds import Damaged, Message, decode, encode
from sartor.federation.rounds.messages import JOINING
from sartor.federation.rounds.remote_engine import check_scores
from sartor.federation.work_folder import LOG, Speaker
from sartor.judge.metrics import score_ranges
from sartor.run.result import Result
from sartor.storage import read_json

ESCAPES = "\x1b[2J\x1b]0;owned\x07 all is well\r\n\u202e"
Change = Callable[[Message], Message | bytes]


def played(flame: Federation, kind: str, change: Change, stage: str | None = None) -> tuple[Result, Calls]:
    """The run in which site b changes its answers of a kind."""
    calls = flame.calls()

    def lying(site: str, data: bytes) -> list[bytes]:
        reply = decode(data)
        if site != "b" or reply.kind != kind or (stage is not None and reply.note.get("stage") != stage):
            return [data]
        changed = change(reply)
        return [changed if isinstance(changed, bytes) else encode(changed)]

    calls.after = lying
    return last(flame.lead(calls)), calls


def noted(**fields: Any) -> Change:
    """Other words in the answer; None: without them."""

    def change(reply: Message) -> Message:
        note = {k: v for k, v in (reply.note | fields).items() if v is not None}
        return replace(reply, note=note)

    return change


def scored(**values: float) -> Change:
    """Other scores: by the end of their names."""

    def change(reply: Message) -> Message:
        arrays = {}
        for name, array in reply.arrays.items():
            found = [v for k, v in values.items() if name.endswith(k)]
            arrays[name] = np.full_like(array, found[0]) if found else array
        return replace(reply, arrays=arrays)

    return change


# --- joining ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        noted(schema=None),
        noted(counts=None),
        noted(instance_id=None),
        noted(instance_id=7),
        noted(instance_id="\x1b[2J"),
        noted(counts=[]),
        noted(counts=[[1, 2]]),
        noted(counts=[["a", "b", "c"]]),
        noted(counts=[[0, 0, 0]]),
        noted(counts=[[1 << 62, 1, 1]]),
        noted(counts=[[-3, 1, 1]]),
        noted(counts=[[1, 1, 1]] * 100_001),
        noted(schema={}),
        noted(schema=[]),
        noted(schema={"columns": "all", "shape": [5], "classes": None}),
        noted(schema={"columns": [{"name": "age"}], "shape": [5], "classes": None}),
        noted(schema={"columns": [], "shape": ["wide"], "classes": None}),
        noted(schema={"columns": [], "shape": [5], "classes": [1, 2]}),
        noted(schema={"columns": [], "shape": [5], "classes": ["x" * 5000]}),
        noted(schema={"columns": [], "shape": [5], "classes": [str(i) for i in range(100_001)]}),
        lambda reply: b"garbage",
        lambda reply: b"SARTOR1\n" + bytes(JOINING),
    ],
)
def test_a_site_that_misbehaves_in_joining_is_left_out_and_named(change: Change, flame: Federation) -> None:
    result, _ = played(flame, "joined", change)
    assert result.data.names == ["a", "c"] and result.run.counts["trained"] == 6
    assert any(s.startswith("site b is left out: it sent what nobody can use") for s in flame.said)


def _columns(reply: Message) -> Message:
    """Well-formed, but of another table."""
    schema = reply.note["schema"]
    other = [c | {"name": c["name"] + ESCAPES} for c in schema["columns"]]
    return replace(reply, note=reply.note | {"schema": schema | {"columns": other}})


@pytest.mark.parametrize("liar", ["a", "b", "c"])
def test_most_sites_decide_what_the_table_is(liar: str, flame: Federation) -> None:
    """Also where the one that differs comes first."""
    calls = flame.calls()
    calls.after = lambda site, data: (
        [encode(_columns(decode(data)))] if site == liar and decode(data).kind == "joined" else [data]
    )
    result = last(flame.lead(calls))
    assert sorted(result.data.names) == [n for n in ("a", "b", "c") if n != liar]
    said = next(s for s in flame.said if s.startswith(f"site {liar} is left out"))
    assert "column" in said and "\x1b" not in said and "\n" not in said


def test_a_site_that_refuses_stops_nobody_and_its_text_is_made_fit_to_print(flame: Federation) -> None:
    def refuse(reply: Message) -> Message:
        return Message("refused", reply.run, note={"why": "agreement", "text": ESCAPES * 500, "instance_id": "x"})

    result, _ = played(flame, "joined", refuse)
    assert result.data.names == ["a", "c"]
    said = next(s for s in flame.said if s.startswith("site b is left out"))
    assert said.isprintable() and len(said) < 500 and r"\x1b[2J" in said


def test_a_site_that_refuses_its_welcome_stops_nobody(flame: Federation) -> None:
    refuse: Change = lambda reply: replace(reply, kind="refused", note=reply.note | {"why": ESCAPES})  # noqa: E731
    result, _ = played(flame, "ready", refuse)
    assert result.run.round == 3 and any(s.startswith("site b is left out: it refused") for s in flame.said)
    assert all(s.isprintable() for s in flame.said)


# --- scores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        scored(accuracy=12345.0),
        scored(accuracy=-1e30),
        scored(accuracy=1.0001),
        scored(loss=-1.0),
        scored(loss=1e30),
        scored(loss=np.inf),
        scored(accuracy=np.nan),
        scored(loss=np.nan),
        lambda reply: replace(reply, arrays={k: v for k, v in reply.arrays.items() if "test" not in k}),
    ],
    ids=["12345", "-1e30", "above 1", "negative loss", "1e30", "Inf", "no accuracy", "no loss", "no test"],
)
def test_scores_that_cannot_be_are_that_sites_failure(change: Change, flame: Federation) -> None:
    result, _ = played(flame, "answer", change, "evaluate")
    hub = result.run.engine
    assert hub.counts["damaged"] >= 1  # type: ignore[attr-defined]
    found = result.summary["personal"]
    assert found["clients_scored"] == 2 and 0 <= found["accuracy_mean"] <= 1 and found["loss_mean"] < 10
    assert any("an answer of site b was not taken" in s for s in flame.said)


def test_half_of_the_scores_may_not_be_missing() -> None:
    """NaN at half of a site's clients in one score and not in the other: "diverged", said of everybody."""
    ranges = score_ranges(True)
    half = torch.tensor([0.5, torch.nan])
    check_scores({"personal/test/loss": half, "personal/test/accuracy": half}, ranges)  # one has no test samples
    whole = torch.tensor([0.5, 0.25])
    for loss, accuracy in ((half, whole), (whole, half), (half.flip(0), half)):
        with pytest.raises(Damaged, match="gaps"):
            check_scores({"personal/test/loss": loss, "personal/test/accuracy": accuracy}, ranges)
    for accuracy in (-2.0, -1e5, 1.0):
        check_scores({"g/test/accuracy": torch.tensor([accuracy])}, score_ranges(False))  # R² may be any loss of mind
    for accuracy in (1.5, -1e30):
        with pytest.raises(Damaged, match="out of range"):
            check_scores({"g/test/accuracy": torch.tensor([accuracy])}, score_ranges(False))


# --- messages ---------------------------------------------------------------------------------------------------------


def test_a_message_larger_than_agreed_is_not_decoded(flame: Federation) -> None:
    huge: Change = lambda reply: replace(reply, arrays={"message/u": np.zeros((1, 1 << 20), np.float32)})  # noqa: E731
    result, _ = played(flame, "answer", huge, "train")
    assert result.run.round == 3 and result.run.counts["trained"] == 6
    assert any("larger than anything that was agreed on" in s for s in flame.said)


@pytest.mark.parametrize("steps", [-5, 1 << 62])
def test_absurd_numbers_of_steps_are_not_added_up(steps: int, flame: Federation) -> None:
    lie: Change = lambda reply: replace(reply, arrays=reply.arrays | {"steps": np.array([steps])})  # noqa: E731
    result, _ = played(flame, "answer", lie, "train")
    assert result.run.counts["trained"] == 6 and 0 < result.run.counts["steps"] < 1000


@pytest.mark.parametrize("kind", ["ready", "refused", "answer", "noted"])
def test_a_flood_of_messages_is_answered_a_few_times(
    kind: str, flame: Federation, undisturbed: dict[str, bytes]
) -> None:
    """Site c sends a thousand messages for each that it is sent; the server neither drowns nor answers each."""
    calls = flame.calls()

    def flood(site: str, data: bytes) -> list[bytes]:
        reply = decode(data)
        if site != "c" or reply.kind != "answer":
            return [data]
        other = replace(reply, kind=kind, arrays={}, clients=(), since=(), note=reply.note | {"why": "foreign"})
        return [*([encode(other)] * 1000), data] if kind != "answer" else [data] * 1000

    calls.after = flood
    result = last(flame.lead(calls))
    assert result.run.round == 3 and result.run.counts["trained"] >= 6
    assert kind == "refused" or vectors(flame.folder) == undisturbed  # who refuses is not heard
    assert len([1 for way, site, _ in calls.seen if way == "down" and site == "c"]) < 100
    assert len(flame.said) < 200


# --- what is printed --------------------------------------------------------------------------------------------------


def test_what_others_say_is_made_fit_to_print(tmp_path: Path) -> None:
    shown = readable(ESCAPES)
    assert shown.isprintable() and "owned" in shown
    assert len(readable("x" * 20_000, 300)) <= 300 and readable("müßig") == "müßig"
    Speaker(tmp_path)(f"site b said: {ESCAPES}")
    line = (tmp_path / LOG).read_text()
    assert line.strip().isprintable() and line.count("\n") == 1


def _arrays(**change: Any) -> Change:
    return lambda reply: replace(reply, arrays=reply.arrays | change)


@pytest.mark.parametrize(
    "change",
    [
        _arrays(means=np.full((1, 2), np.nan)),
        _arrays(squares=np.full((1, 2), np.inf)),
        _arrays(squares=np.full((1, 2), -1.0)),
        _arrays(squares=np.full((1, 2), 1e300)),
        _arrays(means=np.full((1, 2), 1e300)),
        _arrays(counts=np.full((1, 2), -3.0)),
        _arrays(counts=np.full((1, 2), 1e6)),  # more rows than it said it has
        _arrays(counts=np.full((1, 2), 20.5)),
        _arrays(counts=np.zeros((1, 2))),  # of no rows, with a mean
        _arrays(counts=np.full((1, 3), 20.0)),
        _arrays(counts=np.full((1, 2), 20, dtype=np.int64)),
        _arrays(more=np.zeros(1)),
        lambda reply: replace(reply, arrays={}),
        lambda reply: b"SARTOR1\n" + bytes(JOINING),
    ],
)
def test_a_site_that_lies_about_its_statistics_is_left_out(flame: Federation, change: Change) -> None:
    """The others play on, at their own scale."""
    result, calls = played(flame, "measured", change)
    assert sum("site b is left out: it sent what nobody can use" in line for line in flame.said) == 1
    assert "welcome" not in {decode(data).kind for way, site, data in calls.seen if way == "down" and site == "b"}
    assert result.summary["rounds"] == result.run.round and np.isfinite(result.scores["global/test/loss"][[0, 2]]).all()
    scale = read_json(flame.folder / "server" / "roster.json")["scale"]
    rows = np.concatenate([flame.member(name).table.x[:, :2] for name in ("a", "c")])
    assert (abs(np.array(scale["mean"]) - rows.mean(0)) < 0.4).all() and max(scale["spread"]) < 2
