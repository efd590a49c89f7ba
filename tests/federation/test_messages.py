"""The wire format: what is written is read back, and nothing else is; ten thousand damaged messages are refused."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from sartor.federation.rounds.messages import MAGIC, Damaged, Message, decode, encode, packed, plain, spec_of, unpacked

RUN = "0123456789abcdef" * 2
GOOD = Message(
    "answer",
    RUN,
    "a" * 64,
    7,
    (1, 4),
    (-1, 6),
    {"message/u": np.arange(20, dtype=np.float32).reshape(2, 10), "steps": np.array([3, 4])},
    {"stage": "train"},
)
SPEC = {"message/u": (torch.float32, (10,)), "steps": (torch.int64, ())}


def same(a: Message, b: Message) -> None:
    assert a.arrays.keys() == b.arrays.keys()
    for k, v in a.arrays.items():
        assert v.dtype == b.arrays[k].dtype and v.shape == b.arrays[k].shape
        assert v.tobytes() == np.ascontiguousarray(b.arrays[k]).tobytes()
    assert {k: v for k, v in vars(a).items() if k != "arrays"} == {k: v for k, v in vars(b).items() if k != "arrays"}


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=20),
        st.sampled_from(["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"]).flatmap(
            lambda t: arrays_of.arrays(t, arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
        ),
        max_size=4,
    ),
    st.integers(0, 2**31 - 1),
    st.sets(st.integers(0, 2**31 - 1), max_size=5),
)
def test_what_is_written_is_read_back(arrays: dict[str, np.ndarray], round: int, clients: set[int]) -> None:
    message = Message("train", RUN, "", round, tuple(sorted(clients)), (-1,) * len(clients), arrays)
    same(decode(encode(message)), message)


def test_ten_thousand_fuzzed_messages_are_read_or_refused_and_nothing_else() -> None:
    draw = np.random.default_rng(0)
    good, refused = encode(GOOD), 0
    for i in range(10_000):
        data = bytearray(good)
        for _ in range(int(draw.integers(1, 6))):
            at, kind = int(draw.integers(len(data))), i % 4
            if kind == 0:
                data[at] ^= 1 << int(draw.integers(8))
            elif kind == 1:
                del data[at : at + int(draw.integers(1, 40))]
            elif kind == 2:
                data[at:at] = draw.bytes(int(draw.integers(1, 20)))
            else:
                data[at] = int(draw.choice(list(b'[]{}",:0123456789-eE.\\')))
            data = data or bytearray(b"\0")
        try:
            found = decode(bytes(data))
            values = unpacked(found.arrays, len(found.clients), SPEC)
            assert all(torch.isfinite(v).all() for v in values.values())
        except Damaged as e:
            refused += 1
            assert len(str(e)) < 80
    assert refused > 5_000


def header(**change: Any) -> bytes:
    found = json.loads(encode(GOOD)[12 : 12 + int.from_bytes(encode(GOOD)[8:12], "little")])
    text = json.dumps(found | change).encode()
    return MAGIC + len(text).to_bytes(4, "little") + text + b"\0" * 96


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x05pickle",
        MAGIC + b"\xff\xff\xff\xff",
        MAGIC + b"\x02\0\0\0[]",
        MAGIC + (200_000).to_bytes(4, "little") + b"[" * 200_000,
        header(round=-1),
        header(round=True),
        header(round=1.5),
        header(round=10**400),
        header(clients=[4, 1]),
        header(clients=[1, 1]),
        header(clients="12"),
        header(kind="exec"),
        header(kind=["answer"]),
        header(run="x" * 65),
        header(note=[]),
        header(more=1),
        header(arrays=[["u", "float32", [2684354560]]]),
        header(arrays=[["u", "float32", [10**18, 10**18]]]),
        header(arrays=[["u", "float32", [-1]]]),
        header(arrays=[["u", "object", [2]]]),
        header(arrays=[["u", "float32", [1] * 9]]),
        header(arrays=[["u", "float32", [2]], ["u", "float32", [2]]]),
        header(arrays=[["u", "float32", [2]]]),
        header(arrays=[["u", ["float32"], [2]]]),
        header(arrays=[["u", "float32", 2]]),
        header(arrays={}),
    ],
)
def test_what_is_no_message_is_refused_without_taking_memory(data: bytes) -> None:
    decode(header())
    tracemalloc.start()
    try:
        with pytest.raises(Damaged):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_arrays_are_checked_against_what_was_agreed() -> None:
    u = np.zeros((2, 10), dtype=np.float32)
    steps = np.array([1, 2])
    assert unpacked({"message/u": u, "steps": steps}, 2, SPEC)["message/u"].shape == (2, 10)
    bad = u.copy()
    bad[1, 3] = np.inf
    for arrays, words in (
        ({"message/u": u}, "other arrays"),
        ({"message/u": u.astype(np.float64), "steps": steps}, "another type"),
        ({"message/u": u[:, :9], "steps": steps}, "another shape"),
        ({"message/u": np.zeros((3, 10), np.float32), "steps": steps}, "another shape"),
        ({"message/u": bad, "steps": steps}, "NaN or Inf"),
    ):
        with pytest.raises(Damaged, match=words):
            unpacked(arrays, 2, SPEC)


def test_scores_may_be_missing_but_not_infinite() -> None:
    spec = {"loss": (torch.float64, ())}
    assert unpacked({"loss": np.array([np.nan, 1.0])}, 2, spec, numbers=True)["loss"].isnan().tolist() == [True, False]
    for value in (np.inf, 1e101):
        with pytest.raises(Damaged, match="loss"):
            unpacked({"loss": np.array([value, 1.0])}, 2, spec, numbers=True)


def test_what_is_common_to_all_travels_once() -> None:
    w = torch.arange(5.0)
    down = {"w": w.expand(3, -1), "u": torch.eye(3)}
    sent = packed(down)
    assert sent["w"].shape == (1, 5) and sent["u"].shape == (3, 3)
    back = unpacked(sent, 3, spec_of(down))
    assert torch.equal(back["w"], down["w"]) and torch.equal(back["u"], down["u"])


def test_what_is_received_lies_where_vector_instructions_like_it() -> None:
    """Wherever it began in the message: the bits of what is computed from it must not depend on that."""
    for size in range(1, 40):
        sent = {"w": torch.arange(size, dtype=torch.float32)[None]}
        header = Message("train", run="r" * (size % 8), clients=(0,), since=(-1,), arrays=packed(sent))
        arrays = decode(encode(header)).arrays
        for found in (plain(arrays, 1), unpacked(arrays, 1, spec_of(sent))):
            assert torch.equal(found["w"], sent["w"]) and found["w"].data_ptr() % 64 == 0
