"""Compression on the wire: the simulation's numbers and bytes, through kills and losses; bad codes are refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from killed import Killed, killed_at
from sites import NAMES, QUICK, SMALL, Calls, Federation, is_message, last, personal, simulated, vectors
from subsets import one_in

from sartor.compressors import HEADER
from sartor.compressors.wire import Frame, framed
from sartor.errors import SartorError
from sartor.federation.coded_rounds import split
from sartor.federation.rounds import Message, decode, encode
from sartor.federation.rounds.messages import Damaged
from sartor.federation.rounds.packing import CODES
from sartor.run.recipe import Recipe
from sartor.storage import load_tensors

BOTH = {"compress": "top-k(k=0.1)", "compress_down": "int8"}
METHODS = ("flame", "ditto", "scaffold", "fedamp", "lp-proj-2")
PAIRS = [
    *(("top-k(k=0.1)", "none"), ("none", "int8"), ("qsgd(s=16)", "qsgd(s=16)"), ("sketch", "projection")),
    *(("lbgm", "lbgm"), ("int4", "top-k(k=0.2)"), ("float16", "sketch(rows=3)")),
]


def coded_bytes(calls: Calls, way: str, kind: str, stage: str | None) -> int:
    """Read off the wire: the lengths of the codes in the messages of a kind, one of each site and round."""
    found = {}
    for there, site, data in calls.seen:
        message = decode(data)
        if there == way and message.kind == kind and message.note.get("stage") == stage:
            found[site, message.round] = len(message.arrays[CODES])
    return sum(found.values())


@pytest.mark.parametrize(
    "case",
    [("ditto", "dgc(k=0.1,warmup=2)", "lbgm"), *one_in(5, [(m, *pair) for m in METHODS for pair in PAIRS])],
    ids=str,
)
def test_sites_give_the_numbers_and_the_bytes_of_the_simulation(
    case: tuple[str, str, str], tmp_path: Path, paths: dict[str, Path]
) -> None:
    method, up, down = case
    settings = {"d_sub": 5} if method == "lp-proj-2" else {}
    values = SMALL | {"rounds": 5, "method": method, "settings": settings, "cohort": 2}
    recipe = Recipe(**values, compress=up, compress_down=down)
    fed = Federation(tmp_path, recipe, paths)
    calls = fed.calls()
    found = fed.play(calls)
    there = simulated(recipe.replace(engine="serial"), paths, tmp_path / "local")
    names = {"data", "seconds"}
    assert {k: v for k, v in found.summary.items() if k not in names} == {
        k: v for k, v in there.summary.items() if k not in names
    }
    place = tmp_path / "local" / "models" / "personal.safetensors"
    expected = load_tensors(place)[0] if method != "scaffold" else {}
    for i, name in enumerate(NAMES if expected else ()):
        wanted = np.concatenate([expected[k][i].numpy().ravel() for k in sorted(expected)])
        assert np.array_equal(personal(tmp_path, name), wanted)
    if up != "none":
        assert coded_bytes(calls, "up", "answer", "train") == there.summary["bytes_up"] > 0
    if down != "none":
        assert coded_bytes(calls, "down", "train", None) == there.summary["bytes_down"] > 0


def test_a_budget_of_bytes_ends_a_federation_where_it_ends_the_simulation(
    tmp_path: Path, paths: dict[str, Path]
) -> None:
    recipe = Recipe(**SMALL | {"rounds": 9}, **BOTH, method="ditto", budget=1500)
    found = Federation(tmp_path, recipe, paths).play().summary
    there = simulated(recipe.replace(engine="serial"), paths, tmp_path / "local").summary
    assert found["rounds"] == there["rounds"] < 9 and found["stopped"] == there["stopped"] == "budget"


@pytest.mark.parametrize("up", ["projection", "sketch", "lbgm"])
def test_server_and_site_remember_the_same_bits_of_many_clients(
    up: str, tmp_path: Path, paths: dict[str, Path]
) -> None:
    """All clients of a site are computed together, the server reads them one by one: what both keep must not drift."""
    recipe = Recipe(**SMALL | {"rounds": 6}, method="flame", compress=up, compress_down="qsgd(s=16)")
    fed = Federation(tmp_path, recipe, {"a": paths["all"]}, key="hospital")
    calls = fed.calls(["a"])
    result = fed.play(calls)
    kept = result.run.engine.save()
    for client in range(3):
        slots = [load_tensors(p) for p in tmp_path.glob(f"a/*/client-{client}/*.safetensors")]
        tensors, _ = max(slots, key=lambda slot: slot[1]["round"])
        for name in ("held.w", "last.u", *(["up.u.l"] if up == "lbgm" else [])):
            assert torch.equal(kept[f"packing/{name}"][client], tensors[f"state/compress.{name}"])
            assert bool(kept[f"packing/{name}"][client].abs().sum() > 0)


# --- exactly once -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory, paths: dict[str, Path]) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("calm")
    Federation(folder, Recipe(method="flame", **QUICK, **BOTH), paths).play()
    return vectors(folder)


@pytest.fixture
def coded(tmp_path: Path, paths: dict[str, Path]) -> Federation:
    return Federation(tmp_path / "fed", Recipe(method="flame", **QUICK, **BOTH), paths)


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_between_writes_errors_and_memories_end_in_the_same_bytes(
    when: str, tmp_path: Path, paths: dict[str, Path], calm: dict[str, bytes]
) -> None:
    recipe = Recipe(method="flame", **QUICK, **BOTH)
    with killed_at(10**9, "before") as done:
        Federation(tmp_path / "count", recipe, paths).play()
    assert any("compress" in k for k in calm)
    for at in range(when == "after", len(done), 5):
        fed = Federation(tmp_path / str(at), recipe, paths)
        with killed_at(at, when), pytest.raises(Killed):
            fed.play()
        fed.play()
        assert vectors(fed.folder) == calm, at


def test_lost_and_doubled_codes_change_nothing(coded: Federation, calm: dict[str, bytes]) -> None:
    coded.play_lost_and_doubled()
    assert vectors(coded.folder) == calm


def test_a_coded_answer_that_was_lost_moves_neither_side(coded: Federation, paths: dict[str, Path]) -> None:
    """The run equals one in which the site sat out that round: nobody remembers a code that was not heard."""
    calls = coded.calls()
    calls.after = lambda site, data: [] if site == "b" and is_message(data, "answer", "train", 1) else [data]
    lost = coded.play(calls)
    sat_out = Federation(coded.folder.parent / "sat out", coded.recipe, paths)
    silent = sat_out.calls()
    silent.before = lambda site, data: [] if site == "b" and is_message(data, "train", None, 1) else [data]
    there = sat_out.play(silent)
    for k, v in there.run.engine.save().items():
        assert torch.equal(v, lost.run.engine.save()[k]), k
    assert np.array_equal(personal(coded.folder, "b"), personal(sat_out.folder, "b"))


# --- codes that are none ----------------------------------------------------------------------------------------------

Change = Callable[[bytes], bytes]
D = 18  # numbers of the model: three classes of five inputs and an intercept


def _sparse(size: int, at: list[int], values: list[float]) -> bytes:
    """A code of the right form, whatever it says."""
    bits = np.array([[place >> b & 1 for b in range(5)] for place in at], dtype=np.uint8).reshape(-1)
    where = np.packbits(bits, bitorder="little").tobytes()
    payload = struct.pack("<I", len(at)) + where + np.array(values, "<f4").tobytes()
    return framed(Frame(4, size, torch.float32, payload))


BAD_CODES: dict[str, tuple[Any, str]] = {
    "too few": (lambda own: _sparse(D, [1, 2], [1.0, 2.0])[:-1], "declares"),
    "another size": (lambda own: _sparse(D - 1, [1, 2], [1.0, 2.0]), "vector of 17 numbers, and 18 are expected"),
    "a huge size": (lambda own: _sparse(2**31, [1, 2], [1.0, 2.0]), "vector of 2147483648 numbers"),
    "NaN": (lambda own: _sparse(D, [1, 2], [1.0, float("nan")]), "NaN or Inf"),
    "Inf": (lambda own: _sparse(D, [1, 2], [1.0, float("inf")]), "NaN or Inf"),
    "beyond the vector": (lambda own: _sparse(D, [1, 30], [1.0, 2.0]), "go beyond the vector"),
    "one place twice": (lambda own: _sparse(D, [2, 2], [1.0, 2.0]), "do not rise"),
    "more than agreed": (lambda own: framed(Frame(0, D, torch.float32, bytes(4 * D))), "longer than anything"),
    "two": (lambda own: (own + own)[: len(own)] + own, "longer than anything"),
    "frames without end": (lambda own: framed(Frame(0, 0, torch.float32, b"")) * 2, "longer than anything"),
    "none": (lambda own: b"", "not the 1 codes"),
    "another type": (lambda own: framed(Frame(4, D, torch.float64, struct.pack("<I", 0))), "another type than agreed"),
    "changed": (lambda own: own[:-1] + bytes([own[-1] ^ 1]), "checksum"),
    "an unknown kind": (lambda own: framed(Frame(99, D, torch.float32, b"")), "no code of kind 99"),
    "an earlier message": (lambda own: framed(Frame(8, D, torch.float32, bytes(4))), "earlier message"),
}


@pytest.mark.parametrize("what", BAD_CODES)
def test_a_code_that_is_none_is_that_sites_failure_and_named(what: str, coded: Federation) -> None:
    change, text = BAD_CODES[what]
    calls = coded.calls()

    def lying(site: str, data: bytes) -> list[bytes]:
        if site != "b" or not is_message(data, "answer", "train", 1):
            return [data]
        reply = decode(data)
        codes = np.frombuffer(change(reply.arrays[CODES].tobytes()), np.uint8)
        return [encode(replace(reply, arrays=reply.arrays | {CODES: codes}))]

    calls.after = lying
    result = last(coded.lead(calls))
    assert result.run.round == 3 and result.run.counts["trained"] == 8
    said = next(s for s in coded.said if "an answer of site b was not taken" in s)
    assert text in said
    assert all(torch.isfinite(v).all() for v in result.run.server.values() if isinstance(v, torch.Tensor))


@pytest.mark.parametrize("arrays", [{}, {CODES: np.zeros((1, 9), np.uint8)}, {CODES: np.zeros(9)}, "as they are"])
def test_an_answer_without_codes_is_not_taken(arrays: Any, coded: Federation) -> None:
    calls = coded.calls()

    def lying(site: str, data: bytes) -> list[bytes]:
        if site != "b" or not is_message(data, "answer", "train", 1):
            return [data]
        reply = decode(data)
        plain = {"message/u": np.zeros((1, D), np.float32)} if arrays == "as they are" else arrays
        return [encode(replace(reply, arrays={"steps": reply.arrays["steps"]} | plain))]

    calls.after = lying
    assert last(coded.lead(calls)).run.counts["trained"] == 8
    assert any("an answer of site b was not taken: no codes" in s for s in coded.said)


@pytest.mark.parametrize(
    "change",
    [
        lambda codes: codes[:-1],
        lambda codes: codes + codes,
        lambda codes: b"",
        lambda codes: codes[:-1] + bytes([codes[-1] ^ 1]),
        lambda codes: framed(Frame(0, D, torch.float32, np.full(D, np.nan, "<f4").tobytes())),
        lambda codes: framed(Frame(0, D, torch.float32, bytes(4 * D))),
    ],
    ids=["cut", "twice", "none", "changed", "NaN", "longer"],
)
def test_a_downlink_that_is_no_code_changes_nothing_at_a_site(change: Change, coded: Federation) -> None:
    calls = coded.calls()
    coded.play(calls)
    before = vectors(coded.folder)
    request = next(d for way, s, d in calls.seen if way == "down" and s == "b" and is_message(d, "train", None, 2))
    member, asked = coded.member("b"), decode(request)
    assert decode(member.answer(request)).kind == "answer"
    for path in coded.folder.glob("b/*/client-1/*"):  # the round is to be computed anew, not answered from the disk
        if load_tensors(path)[1]["round"] == 2:
            path.unlink()
    codes = np.frombuffer(change(asked.arrays[CODES].tobytes()), np.uint8)
    reply = decode(coded.member("b").answer(encode(replace(asked, arrays=asked.arrays | {CODES: codes}))))
    assert reply.kind == "refused" and reply.note["why"] == "damaged"
    assert decode(coded.member("b").answer(request)).kind == "answer"
    assert vectors(coded.folder) == before


def test_another_model_in_codes_is_another_model(coded: Federation) -> None:
    """What a site was asked in a round it is not asked again with other codes."""
    calls = coded.calls()
    coded.play(calls)
    asked = [decode(d) for way, s, d in calls.seen if way == "down" and s == "b" and decode(d).kind == "train"]
    other: Message = replace(asked[-1], arrays=asked[0].arrays)
    assert decode(coded.member("b").answer(encode(other))).note["why"] == "changed"


def test_frames_are_counted_before_they_are_read() -> None:
    """Millions of empty frames cost no more than a look at the first few."""
    many = framed(Frame(0, 0, torch.float32, b"")) * 100_000
    with pytest.raises(Damaged, match="not the 2 codes"):
        split(many, 2, 1)
    with pytest.raises(SartorError, match="are no frame"):
        split(many[: HEADER - 1], 1, 1)
