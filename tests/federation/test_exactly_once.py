"""Exactly once: sites give the simulation's numbers, whatever is lost, doubled, late, false or killed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from sites import NAMES, SMALL, Calls, Federation, last, personal, tables, vectors
from subsets import first

from sartor.errors import SartorError, Silent
from sartor.federation.rounds import Message, Waiting, decode, encode
from sartor.federation.rounds.agreement import differences, digest
from sartor.federation.rounds.remote_clients import shared
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe
from sartor.run.result import Result
from sartor.storage import load_tensors

QUICK = SMALL | {"model": "softmax", "rounds": 3, "evaluate_every": 3}
METHODS = ["scaffold", "local"]  # besides those of conformance.py


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def flame(tmp_path: Path, paths: dict[str, Path]) -> Federation:
    return Federation(tmp_path / "fed", Recipe(method="flame", **QUICK), paths)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, paths: dict[str, Path]) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    Federation(folder, Recipe(method="flame", **QUICK), paths).play()
    return vectors(folder)


def simulated(recipe: Recipe, paths: dict[str, Path], folder: Path) -> Result:
    """The same rows in one process."""
    own = {"data": str(paths["all"]), "target": "outcome", "client_key": "hospital", "diagnostics": False}
    recipe = recipe.model_copy(update=own)
    *_, result = play_recipe(recipe, recipe.split(recipe.dataset()), folder)
    return result


# --- the same numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cohort", [None, 2])
def test_sites_give_the_bits_of_the_serial_engine(
    method: str, cohort: int | None, tmp_path: Path, paths: dict[str, Path]
) -> None:
    """One client a site. Also what is sent, how many steps were taken, every score, and the global model."""
    values = SMALL | {"rounds": 5, "method": method, "cohort": cohort}
    recipe = Recipe(**values)
    found = Federation(tmp_path, recipe, paths).play()
    there = simulated(recipe.model_copy(update={"engine": "serial"}), paths, tmp_path / "local")
    names = {"data", "seconds"}
    assert {k: v for k, v in found.summary.items() if k not in names} == {
        k: v for k, v in there.summary.items() if k not in names
    }
    place = tmp_path / "local" / "models" / "personal.safetensors"
    expected = load_tensors(place)[0] if place.exists() else {}
    assert place.exists() == (there.summary["personal"] is not None)
    for i, name in enumerate(NAMES if expected else ()):
        wanted = np.concatenate([expected[k][i].numpy().ravel() for k in sorted(expected)])
        assert np.array_equal(personal(tmp_path, name), wanted)
    common = [f / "models" / "global.safetensors" for f in (tmp_path / "server", tmp_path / "local")]
    assert common[0].exists() == common[1].exists() == (there.summary["global"] is not None)
    assert not common[0].exists() or common[0].read_bytes() == common[1].read_bytes()


@pytest.mark.parametrize(("engine", "tolerance"), [("serial", 0.0), ("local", 1e-6)])
def test_a_site_may_have_many_clients(engine: str, tolerance: float, tmp_path: Path, paths: dict[str, Path]) -> None:
    """All rows at one site, by hospital: bit for bit one at a time, and stacked up to the order of sums."""
    recipe = Recipe(**SMALL, method="flame", engine=engine)
    fed = Federation(tmp_path, recipe, {"a": paths["all"]}, key="hospital")
    found = fed.play(fed.calls(["a"]))
    there = simulated(recipe.model_copy(update={"workers": 1}), paths, tmp_path / "local")
    expected, _ = load_tensors(tmp_path / "local" / "models" / "personal.safetensors")
    for i in range(3):
        wanted = np.concatenate([expected[k][i].numpy().ravel() for k in sorted(expected)])
        np.testing.assert_allclose(personal(tmp_path, "a", i), wanted, atol=tolerance, rtol=tolerance)
    assert found.summary["clients"] == 3 and found.data.names == ["a/0", "a/1", "a/2"]  # keys stay at the site
    assert found.summary["chosen"] == there.summary["chosen"] or tolerance > 0


# --- killed anywhere --------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone."""


@contextmanager
def killed_at(count: int, when: str) -> Iterator[list[str]]:
    """Die at the count-th durable write, just before or just after the file has its name."""
    replace_, done = os.replace, []

    def replacing(a: Any, b: Any) -> None:
        done.append(str(b))
        if len(done) == count + 1 and when == "before":
            raise Killed
        replace_(a, b)
        if len(done) == count + 1:
            raise Killed

    with mock.patch.object(os, "replace", replacing):
        yield done


def writes(folder: Path, paths: dict[str, Path]) -> int:
    with killed_at(10**9, "before") as done:
        Federation(folder, Recipe(method="flame", **QUICK), paths).play()
    return len(done)


@pytest.mark.parametrize("part", first(range(4), 0))
@pytest.mark.parametrize("when", ["before", "after"])
def test_everything_killed_between_any_two_writes_ends_in_the_same_bytes(
    when: str, part: int, tmp_path: Path, paths: dict[str, Path], undisturbed: dict[str, bytes]
) -> None:
    total = writes(tmp_path / "count", paths)
    assert total > 20
    for at in range(part, total, 4):
        fed = Federation(tmp_path / str(at), Recipe(method="flame", **QUICK), paths)
        with killed_at(at, when), pytest.raises(Killed):
            fed.play()
        fed.play()  # server and sites are made anew from their disks
        assert vectors(fed.folder) == undisturbed, at


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_site_killed_at_any_of_its_writes_is_asked_again_and_ends_in_the_same_bytes(
    when: str, tmp_path: Path, paths: dict[str, Path], undisturbed: dict[str, bytes]
) -> None:
    """The server lives on, gets no answer, and repeats itself to the site that was started again."""
    deaths = 0
    for at in range(4):
        fed = Federation(tmp_path / str(at), Recipe(method="flame", **QUICK), paths)
        fed.waiting = replace(fed.waiting, seconds=30)
        calls, left = fed.calls(), [at]

        def mortal(data: bytes, fed: Federation = fed, calls: Calls = calls, left: list[int] = left) -> bytes | None:
            nonlocal deaths
            try:
                with killed_at(left[0], when) as done:
                    return fed.member("b").answer(data)  # a new process for every request: nothing is in memory
            except Killed:
                deaths, left[0] = deaths + 1, 10**9
                return None
            finally:
                left[0] -= len(done)

        calls.members["b"] = mortal
        lead = fed.lead(calls)
        lead.joining = 30
        last(lead)
        assert vectors(fed.folder) == undisturbed, at
    assert deaths == 4


def test_a_site_in_a_process_of_its_own_is_killed_and_restarted(
    tmp_path: Path, paths: dict[str, Path], undisturbed: dict[str, bytes]
) -> None:
    from site_process import Process

    fed = Federation(tmp_path, Recipe(method="flame", **QUICK), paths)
    fed.waiting = replace(fed.waiting, seconds=60)
    process = Process(tmp_path / "c", paths["c"])
    calls = fed.calls()
    calls.members["c"] = process.answer
    try:
        for at, _ in enumerate(fed.lead(calls).play()):
            process.kill_at = {0: "write", 1: "reply"}.get(at)  # in round 1 while it writes, in round 2 after that
    finally:
        process.end()
    assert process.kills == 2 and vectors(tmp_path) == undisturbed


# --- lost, doubled, late, false ---------------------------------------------------------------------------------------


def test_lost_and_doubled_messages_change_nothing(flame: Federation, undisturbed: dict[str, bytes]) -> None:
    flame.waiting = replace(flame.waiting, seconds=60)
    draw = np.random.default_rng(5)

    def careless(site: str, data: bytes) -> list[bytes]:
        return [data] * int(draw.integers(3))

    calls = flame.calls()
    calls.before = calls.after = careless
    lead = flame.lead(calls)
    lead.joining = 60
    last(lead)
    assert vectors(flame.folder) == undisturbed
    assert lead.hub is not None and lead.hub.counts["duplicate"] > 0


def test_a_round_whose_answer_was_lost_has_not_happened(flame: Federation, paths: dict[str, Path]) -> None:
    """Site b's answers of round 2 never arrive: the run equals one in which b sat out that round."""
    calls = flame.calls()
    calls.after = lambda site, data: [] if site == "b" and _is(data, "answer", "train", 1) else [data]
    flame.play(calls)
    sat_out = Federation(flame.folder.parent / "sat out", flame.recipe, paths)
    silent = sat_out.calls()
    silent.before = lambda site, data: [] if site == "b" and _is(data, "train", None, 1) else [data]
    sat_out.play(silent)
    ours, theirs = vectors(flame.folder), vectors(sat_out.folder)
    assert {k: v for k, v in ours.items() if not k.startswith("b/client")} == {
        k: v for k, v in theirs.items() if not k.startswith("b/client")
    }
    newest = [{k: v for k, v in f.items() if " state/" in k and k.startswith("b/")} for f in (ours, theirs)]
    assert set(newest[1].values()) <= set(newest[0].values())


def _is(data: bytes, kind: str, stage: str | None, round: int) -> bool:
    message = decode(data)
    return (message.kind, message.round) == (kind, round) and message.note.get("stage") == stage


def test_a_silent_site_is_left_out_and_taken_back(flame: Federation) -> None:
    flame.recipe = Recipe(method="flame", **QUICK | {"rounds": 6, "evaluate_every": 6})
    calls = flame.calls()
    calls.before = lambda site, data: [] if site == "c" and 1 <= decode(data).round <= 3 else [data]
    lead = flame.lead(calls)
    result = last(lead)
    assert result.run.counts["trained"] == 3 * 6 - 3
    assert [s for s in flame.said if "site c" in s] == [
        "site c was silent 2 times: it is left out until it answers",
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
    calls.before = lambda site, data: [] if site != "a" and _is(data, "train", None, 1) else [data]
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
    with pytest.raises(Silent, match=r"only 0 of at least 1 sites were there .*missing: a, b, c"):
        last(lead)


# --- bad messages -----------------------------------------------------------------------------------------------------


def _changed(data: bytes, **fields: Any) -> bytes:
    return encode(replace(decode(data), **fields))


def _arrays(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        arrays = {k: change(np.array(v)) if k.startswith("message/") else v for k, v in decode(data).arrays.items()}
        return _changed(data, arrays=arrays)

    return changed


def _nan(v: np.ndarray) -> np.ndarray:
    v[0, 0] = np.nan
    return v


BAD: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "NaN": (_arrays(_nan), "damaged"),
    "shape": (_arrays(lambda v: v[:, :-1]), "damaged"),
    "dtype": (_arrays(lambda v: v.astype(np.float64)), "damaged"),
    "10 GB declared": (lambda d: d.replace(b"[1,", b"[2684354560,", 1), "damaged"),
    "truncated": (lambda d: d[:-5], "damaged"),
    "empty": (lambda d: b"", "damaged"),
    "another array": (lambda d: _changed(d, arrays=decode(d).arrays | {"x": np.zeros((1, 1))}), "damaged"),
    "stale round": (lambda d: _changed(d, round=0), "stale"),
    "future round": (lambda d: _changed(d, round=2), "early"),
    "another run": (lambda d: _changed(d, run="0" * 32), "foreign"),
    "another's client": (lambda d: _changed(d, clients=(2,)), "foreign"),
    "other settings": (lambda d: _changed(d, agreement="f" * 64), "agreement"),
    "another stage": (lambda d: _changed(d, note=decode(d).note | {"stage": "evaluate"}), "stale"),
    "another's seat": (lambda d: _changed(d, note={"stage": "train", "instance_id": "0" * 32}), "foreign"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_answer_is_counted_and_the_run_goes_on(what: str, flame: Federation) -> None:
    change, why = BAD[what]
    calls = flame.calls()
    calls.after = lambda site, data: [change(data)] if site == "b" and _is(data, "answer", "train", 1) else [data]
    lead = flame.lead(calls)
    result = last(lead)
    assert lead.hub is not None and lead.hub.counts[why] >= 1
    assert sum(v for k, v in lead.hub.counts.items() if k not in ("answers", why)) == 0
    assert result.run.counts["trained"] == 8 and result.run.round == 3  # b was not heard in that round
    assert all(torch.isfinite(v).all() for v in result.run.server.values() if isinstance(v, torch.Tensor))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: _changed(d, round=0), "stale"),
        (lambda d: _changed(d, round=3), "early"),
        (lambda d: _changed(d, run="0" * 32), None),
        (lambda d: _changed(d, clients=(0,)), "foreign"),
        (lambda d: _changed(d, since=(7,)), "stale"),
        (lambda d: _changed(d, agreement=""), "agreement"),
        (lambda d: _changed(d, arrays={}), "damaged"),
        (lambda d: d[:-5], None),
    ],
    ids=["stale", "early", "another run", "another's client", "since", "settings", "no arrays", "truncated"],
)
def test_a_bad_request_changes_nothing_at_a_site(
    change: Callable[[bytes], bytes], why: str | None, flame: Federation
) -> None:
    calls = flame.calls()
    flame.play(calls)
    before = vectors(flame.folder)
    request = next(d for way, s, d in calls.seen if way == "down" and s == "b" and _is(d, "train", None, 2))
    member = flame.member("b")
    assert decode(member.answer(request)).kind == "answer"  # as it was sent, it is answered from the disk
    assert member.site is not None and member.site.counts["repeated"] == 1
    reply = decode(member.answer(change(request)))
    assert reply.kind == "refused" and set(reply.note) == {"why", "instance_id"}
    assert why is None or member.site.counts[why] == 1
    assert vectors(flame.folder) == before


def test_a_site_whose_states_are_gone_says_so_and_does_not_begin_anew(flame: Federation) -> None:
    calls = flame.calls()
    flame.play(calls)
    request = next(d for way, s, d in calls.seen if way == "down" and s == "b" and _is(d, "train", None, 2))
    for path in flame.folder.glob("b/*/client-*/*"):
        path.unlink()
    assert decode(flame.member("b").answer(request)).note["why"] == "behind"
    assert any("is not here" in s for s in flame.said)


@pytest.mark.parametrize("first", [0, 1])
def test_a_copy_of_a_kit_elsewhere_is_not_taken_for_the_site(
    first: int, flame: Federation, undisturbed: dict[str, bytes]
) -> None:
    """It has the certificate and even the same table, but not the site's folder. From its second round on it can only
    refuse, as it has no state: that is not taken for the site's refusal either."""
    flame.waiting = replace(flame.waiting, seconds=30)
    calls = flame.calls()
    flame.folder.mkdir()
    copy = flame.member("b")
    copy.folder = flame.folder / "elsewhere"
    taken = []

    def both(site: str, data: bytes) -> list[bytes]:
        message = decode(data)
        if site == "b" and message.kind != "hello" and (message.kind == "welcome" or message.round >= first):
            taken.append(copy.answer(data))
            calls.box.append(("b", taken[-1]))
        return [data]

    calls.before = both
    last(lead := flame.lead(calls))
    assert vectors(flame.folder) == undisturbed
    assert any("somebody else" in s and "site b" in s for s in flame.said)
    assert lead.hub is not None and ("refused" if first else "answer") in {decode(d).kind for d in taken}
    assert lead.hub.counts["foreign"] > 0


def test_a_full_disk_acknowledges_nothing_and_keeps_the_state_whole(
    flame: Federation, undisturbed: dict[str, bytes]
) -> None:
    flame.waiting = replace(flame.waiting, seconds=5)
    calls, full = flame.calls(), [True]
    member = calls.members["b"]

    def writing(data: bytes) -> bytes | None:
        if decode(data).kind == "train" and decode(data).round == 1 and full:
            full.clear()
            with mock.patch("os.fsync", side_effect=OSError(28, "No space left on device")):
                assert decode(member(data) or b"").note["why"] == "disk"
            return None  # and nothing was acknowledged; asked again, there is space
        return member(data)

    calls.members["b"] = writing
    flame.play(calls)
    assert any("No space left" in s for s in flame.said)
    assert vectors(flame.folder) == undisturbed


def test_a_client_that_raises_is_left_out_of_its_round_and_tells_no_values(flame: Federation) -> None:
    calls = flame.calls()
    member = flame.member("b")
    calls.members["b"] = member.answer
    work = member.answer

    def raising(data: bytes) -> bytes:
        if decode(data).kind == "train" and decode(data).round == 1:
            assert member.site is not None
            with mock.patch.object(member.site, "bench", side_effect=ValueError("secret 4711")):
                return work(data)
        return work(data)

    calls.members["b"] = raising
    result = flame.play(calls)
    assert result.run.counts["trained"] == 8
    assert any("secret 4711" in s for s in flame.said) and not any(b"4711" in d for _, _, d in calls.seen)


# --- agreement --------------------------------------------------------------------------------------------------------


def test_other_settings_are_refused_with_the_field(flame: Federation, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('method = "flame"\nmodel = "softmax"\nseed = 3\n[settings]\nlam = 0.7\n')
    calls = flame.calls()
    member = flame.member("b")
    member.own = replace(member.own, recipe=str(mine))
    calls.members["b"] = member.answer
    line = r"site b refused: the server and this side disagree: settings.lam is 0.1 there and 0.7 here\."
    with pytest.raises(SartorError, match=line):
        flame.play(calls)
    assert not list(flame.folder.glob("*/*/client-*"))  # before the first round


def test_a_server_that_changed_its_settings_is_refused(flame: Federation) -> None:
    flame.play()
    flame.recipe = Recipe(method="flame", settings={"lam": 0.2}, **QUICK)
    with pytest.raises(SartorError, match=r"settings.lam is 0.1 there and 0.2 here"):
        flame.play()


def test_a_table_with_other_columns_is_refused_by_name(flame: Federation, tmp_path: Path) -> None:
    text = flame.paths["b"].read_text().replace("dose", "amount", 1)
    (tmp_path / "b.csv").write_text(text)
    flame.paths = flame.paths | {"b": tmp_path / "b.csv"}
    with pytest.raises(SartorError, match=r"the table of site b has no column 'dose', which that of site a has\."):
        flame.play()


def test_a_table_that_changed_after_joining_is_refused_by_name(flame: Federation, tmp_path: Path) -> None:
    flame.play()
    (tmp_path / "b.csv").write_text(flame.paths["b"].read_text().replace("dose", "amount", 1))
    flame.paths = flame.paths | {"b": tmp_path / "b.csv"}
    flame.recipe = flame.recipe.model_copy(update={"rounds": 5})
    with pytest.raises(SartorError, match=r"site b refused: the table of site b has no column 'dose'"):
        flame.play()


def test_a_new_text_is_refused_without_being_told(flame: Federation, tmp_path: Path) -> None:
    calls = flame.calls()
    flame.play(calls)
    (tmp_path / "b.csv").write_text(flame.paths["b"].read_text().replace("east", "secret-ward", 1))
    flame.paths = flame.paths | {"b": tmp_path / "b.csv"}
    flame.recipe = flame.recipe.model_copy(update={"rounds": 5})
    calls = flame.calls()
    with pytest.raises(SartorError, match=r"column 'ward' of site b holds a text that was not agreed on"):
        flame.play(calls)
    assert not any(b"secret-ward" in d for _, _, d in calls.seen)


def test_differences_name_every_field() -> None:
    a, b = {"settings": {"lam": 1.0, "rho": 2.0}, "seed": 0}, {"settings": {"lam": 1.5, "rho": 2.0}, "dtype": "x"}
    assert differences(a, b) == [
        'dtype is absent there and "x" here',
        "seed is 0 there and absent here",
        "settings.lam is 1.0 there and 1.5 here",
    ]
    assert digest(a) == digest({"seed": 0, "settings": {"rho": 2.0, "lam": 1.0}}) != digest(b)


# --- what crosses -----------------------------------------------------------------------------------------------------


def test_only_messages_scores_and_names_of_columns_cross(tmp_path: Path, paths: dict[str, Path]) -> None:
    """Everything that passed, both ways: its kinds, names, shapes; no row or column of the data, no path, no file."""
    fed = Federation(tmp_path, Recipe(method="flame", **QUICK), paths)
    calls = fed.calls()
    result = fed.play(calls)
    d = result.run.problem.start.numel()
    allowed = {(1, d), (1,)}
    numbers = set()
    for _, site, data in calls.seen:
        message = decode(data)
        for name, array in message.arrays.items():
            assert name in {"w", "global", "message/u", "steps"} or name.split("/")[0] in {"personal", "global"}
            assert array.shape in allowed, name
            numbers |= set(np.asarray(array, dtype=np.float32).ravel().tolist())
        assert set(message.note) <= _NOTES, message.note
        assert str(tmp_path).encode() not in data and b".csv" not in data and os.sep.encode() not in _words(message)
        assert site in NAMES
    for name in NAMES:
        table = fed.member(name).table
        values = {float(np.float32(v)) for v in table.x[:, :2].ravel()}
        assert len(values) > 50 and not values & numbers  # no single number of the data is among all that were sent
    kinds = [decode(d).kind for way, _, d in calls.seen if way == "up"]
    assert set(kinds) == {"joined", "ready", "answer", "noted"}


_NOTES = {"recipe", "schema", "counts", "terms", "clients", "total", "largest", "first", "stage", "instance_id"}


def _words(message: Message) -> bytes:
    """What a note says in words, without the recipe that the server sent."""
    note = {k: v for k, v in message.note.items() if k not in ("recipe", "terms")}
    return repr(note).encode()


def test_scores_can_be_withheld(tmp_path: Path, paths: dict[str, Path]) -> None:
    scores = {"personal/test/loss": torch.tensor([1.0, 3.0, torch.nan])}
    assert shared(scores, "mean")["personal/test/loss"].tolist() == [2.0, 2.0, 2.0]
    assert bool(shared(scores, "none")["personal/test/loss"].isnan().all())
    fed = Federation(tmp_path, Recipe(**QUICK, method="flame"), {"a": paths["all"]}, key="hospital", share="mean")
    found = fed.play(fed.calls(["a"]))
    assert found.summary["personal"]["accuracy_std"] == 0 and found.summary["personal"]["accuracy_mean"] > 0


def test_waiting_refuses_nonsense() -> None:
    for bad in ({"seconds": 0.0}, {"clients": 0}, {"timeouts": 0}, {"again": -1.0}):
        with pytest.raises(SartorError):
            Waiting(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(("field", "value"), [("attack", "sign-flip"), ("drop", 0.2), ("unseen", 0.2)])
def test_a_real_federation_pretends_nothing(field: str, value: object, flame: Federation) -> None:
    flame.recipe = flame.recipe.model_copy(update={field: value})
    with pytest.raises(SartorError, match=f"does not pretend {field}"):
        flame.play()


@pytest.mark.parametrize(("field", "value"), [("compress", "int8"), ("compress_down", "int8"), ("dp_noise", 1.0)])
def test_what_a_real_federation_cannot_do_yet_is_refused(field: str, value: object, flame: Federation) -> None:
    flame.recipe = flame.recipe.model_copy(update={field: value})
    with pytest.raises(SartorError, match=f"has no {field} yet"):
        flame.play()
