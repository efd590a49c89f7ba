"""Bytes on the wire: their number, what they give back, and how damaged ones are refused."""

from __future__ import annotations

import math
import resource
import struct
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from compressor_codes import FLOATS, SOME, code_of, numbers

import sartor as st
from sartor.compressors import (
    DGC,
    HEADER,
    LBGM,
    QSGD,
    Compressor,
    Float16,
    Int4,
    Int8,
    RandomProjection,
    Sketch,
    TopK,
    decode,
    encode,
    frames,
    lengths,
)
from sartor.compressors.wire import packed, unpacked


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [1, 2, 7, 64, 610])
@pytest.mark.parametrize("compressor", SOME, ids=str)
def test_the_length_is_that_of_the_bytes_and_the_bytes_give_the_value_back(
    compressor: Compressor, size: int, dtype: torch.dtype
) -> None:
    for rounds in (1, 2):
        code, last = code_of(compressor, numbers(size, dtype), rounds=rounds)
        value = code.value()
        assert value.shape == (5, size) and value.dtype == dtype
        most = compressor.most(size, dtype.itemsize, rounds - 1)
        for row, length in enumerate(lengths(code).tolist()):
            data = encode(code, row)
            assert len(data) == length <= HEADER + most
            found = decode(data, size, last[row])
            assert found.dtype == dtype
            if isinstance(compressor, RandomProjection):  # a product of other shapes rounds otherwise
                scale = float(value[row].abs().max()) * 8 * torch.finfo(dtype).eps
                torch.testing.assert_close(found, value[row], atol=scale, rtol=0)
            else:
                assert torch.equal(found, value[row])


def test_lengths_by_hand() -> None:
    """610 numbers of 4 bytes. Top 6 of 610: how many, 6 positions of 10 bits, 6 values; 305 of 610: a bit for each."""
    x = numbers(610, torch.float32)
    assert HEADER == 16
    expected: dict[Compressor, int] = {
        Float16(): 2 * 610,
        Int8(): 4 + 610,
        Int4(): 4 + 305,
        TopK(k=0.01): 4 + 8 + 6 * 4,
        TopK(k=0.5): 4 + 77 + 305 * 4,
        Sketch(k=100, rows=5): 8 + 1 + 4 + 100 * 4,
        RandomProjection(k=21): 8 + 21 * 4,
        DGC(k=0.01, warmup=0): 4 + 8 + 6 * 4,
        LBGM(): 610 * 4,
    }
    for compressor, length in expected.items():
        assert lengths(code_of(compressor, x)[0]).tolist() == [16 + length] * 5, compressor


def test_frames_stand_one_after_another() -> None:
    parts = [encode(code_of(c, numbers(30))[0], 0) for c in (TopK(), Int8(), QSGD())]
    assert list(frames(b"".join(parts))) == parts
    with pytest.raises(st.SartorError, match="damaged"):
        list(frames(b"".join(parts)[:-1]))


def test_bits_are_packed_without_gaps() -> None:
    draw = np.random.default_rng(0)
    for bits in (0, 1, 3, 7, 8, 13, 21):
        values = draw.integers(2**bits, size=41)
        data = packed(values, bits)
        assert len(data) == math.ceil(41 * bits / 8)
        assert unpacked(data, 41, bits).tolist() == values.tolist()
        if bits:
            assert int.from_bytes(data, "little") == sum(int(v) << (bits * i) for i, v in enumerate(values))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d[:-1], "declares"),
        (lambda d: d[:9], "9 bytes are no frame"),
        (lambda d: b"", "0 bytes are no frame"),
        (lambda d: b"XX" + d[2:], "begins with b'XX'"),
        (lambda d: d[:2] + b"\x07" + d[3:], "version 7"),
        (lambda d: d[:4] + struct.pack("<I", 2**31) + d[8:], "a vector of 2147483648 numbers, and 50 are expected"),
        (lambda d: d[:-1] + bytes([d[-1] ^ 1]), "checksum"),
        (lambda d: d + b"\x00", "declares"),
        (lambda d: sealed(d[:3] + b"\x5f" + d[4:]), "no code of kind 95"),
        (lambda d: sealed(d[:16] + struct.pack("<I", 51) + d[20:]), "51 coordinates of 50"),
        (lambda d: sealed(d[:-4] + struct.pack("<f", math.nan)), "NaN or Inf"),
    ],
)
def test_a_damaged_message_is_refused_with_one_line(change: Any, message: str) -> None:
    data = encode(code_of(TopK(k=0.1), numbers(50, torch.float32))[0], 0)
    with pytest.raises(st.SartorError, match=message) as e:
        decode(change(data), 50)
    assert "\n" not in str(e.value) and "damaged" in str(e.value)


def test_a_recycled_gradient_needs_the_one_it_refers_to() -> None:
    code, last = code_of(LBGM(), numbers(50), rounds=2)
    data = encode(code, 0)
    assert len(data) == HEADER + 8
    with pytest.raises(st.SartorError, match="refers to an earlier message"):
        decode(data, 50)
    with pytest.raises(st.SartorError, match="refers to an earlier message"):
        decode(data, 50, last[0, :-1])


def sealed(data: bytes) -> bytes:
    """The same bytes with a length and a checksum that fit, so that what is inside is read."""
    head = data[:8] + struct.pack("<II", max(0, len(data) - HEADER), 0)
    check = zlib.crc32(data[HEADER:], zlib.crc32(head[:16]))
    return head[:12] + struct.pack("<I", check) + data[HEADER:]


SIZE = 40


def noise(draw: np.random.Generator, whole: list[bytes]) -> bytes:
    """Random bytes, or a true message with bytes changed, cut, repeated or swapped with another's; often sealed."""
    kind = draw.integers(6)
    if kind == 0:
        return draw.bytes(int(draw.integers(0, 200)))
    data = bytearray(whole[draw.integers(len(whole))])
    if kind == 1:  # a header that fits, and anything after it
        data[HEADER:] = draw.bytes(int(draw.integers(0, 120)))
    elif kind == 2:
        data = data[: int(draw.integers(len(data) + 1))]
    elif kind == 3:
        other = whole[draw.integers(len(whole))]
        data[HEADER:] = other[HEADER:]
    else:
        for _ in range(int(draw.integers(1, 5))):
            at = int(draw.integers(3 if kind == 4 else HEADER, len(data)))
            data[at] = int(draw.choice([0, 1, 127, 128, 255, draw.integers(256)]))
    data += draw.bytes(int(draw.integers(3))) if draw.random() < 0.1 else b""
    return sealed(bytes(data)) if len(data) >= HEADER and draw.random() < 0.8 else bytes(data)


def test_the_reader_survives_ten_thousand_damaged_messages() -> None:
    """Each gives a clear line or a finite vector of the size that was expected, within a bounded memory."""
    whole = []
    for dtype in FLOATS:
        x = numbers(SIZE, dtype)
        for compressor in SOME:
            for rounds in (1, 2):
                whole += [encode(code_of(compressor, x, rounds=rounds)[0], row) for row in (0, 4)]
    draw, last = np.random.default_rng(0), torch.ones(SIZE)
    reasons: dict[str, int] = {}
    read = 0
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        for _ in range(10_000):
            data = noise(draw, whole)
            try:
                found = decode(data, SIZE, last)
            except st.SartorError as e:
                assert str(e).startswith("the encoded message is damaged: ") and "\n" not in str(e)
                reasons[str(e).split(":")[1][:12]] = reasons.get(str(e).split(":")[1][:12], 0) + 1
            else:
                read += 1
                assert found.shape == (SIZE,) and bool(torch.isfinite(found).all())
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read > 500 and len(reasons) > 10  # the noise went deep: many were sound, others failed in many places
    assert most < 2_000_000  # bytes of NumPy's arrays; PyTorch's show in the memory of the process (in KiB)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 50_000


def test_no_memory_is_taken_for_what_a_message_only_declares() -> None:
    """A few bytes that declare four billion numbers are refused at once; what is expected bounds all the rest."""
    data = encode(code_of(TopK(k=0.1), numbers(50, torch.float32))[0], 0)
    huge = sealed(data[:4] + struct.pack("<I", 2**32 - 1) + data[8:])
    many = [sealed(data[:3] + bytes([kind]) + struct.pack("<I", 10**5) + data[8:]) for kind in range(8)]
    tracemalloc.start()
    try:
        for message, size in [(huge, 50), *((m, 10**5) for m in many)]:
            try:
                decode(message, size)
            except st.SartorError:
                continue
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 200 * 10**5  # a few hundred bytes for each number that is expected
