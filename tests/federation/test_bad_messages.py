"""False messages are counted, refused and change nothing; neither do a full disk and a client that raises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from sites import Federation, is_message, last, vectors

from sartor.federation.rounds import decode, encode


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
    calls.after = lambda site, data: (
        [change(data)] if site == "b" and is_message(data, "answer", "train", 1) else [data]
    )
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
    request = next(d for way, s, d in calls.seen if way == "down" and s == "b" and is_message(d, "train", None, 2))
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
    request = next(d for way, s, d in calls.seen if way == "down" and s == "b" and is_message(d, "train", None, 2))
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
    assert any("another process" in s and "site b" in s for s in flame.said)
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
