"""Every code against its paper's formula, its length against the bytes that are written, its reader against noise."""

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
from torch import Tensor

import sartor as st
from sartor.compressors import (
    DGC,
    HEADER,
    LBGM,
    NAMES,
    QSGD,
    Code,
    Compressor,
    Draws,
    Float16,
    Int4,
    Int8,
    RandomProjection,
    Sketch,
    TopK,
    decode,
    elias,
    encode,
    frames,
    lengths,
)
from sartor.compressors.qsgd import Levels
from sartor.compressors.wire import packed, unpacked

SOME: list[Compressor] = [
    *(made() for made in NAMES.values()),
    *(TopK(k=0.5), TopK(k=1.0), TopK(k=3), QSGD(s=1), QSGD(s=1000, bucket=16), QSGD(s=2, bucket=7)),
    *(Sketch(rows=1, k=0.3), Sketch(rows=4), RandomProjection(k=4, fresh=False, seed=5)),
    *(DGC(k=0.2, warmup=0, masking=False, clip=1.0), LBGM(delta=0.0)),
]
FLOATS = (torch.float32, torch.float64)


def draws(round: int = 0, clients: int = 5, seed: int = 0) -> Draws:
    return Draws(seed, "test", round, np.arange(clients))


def numbers(size: int, dtype: torch.dtype = torch.float64, clients: int = 5, seed: int = 0) -> Tensor:
    """Vectors of very different sizes; the last is 0."""
    x = np.random.default_rng(seed).normal(size=(clients, size)) * 10.0 ** np.arange(-2, clients - 2)[:, None]
    x[-1] = 0
    return torch.from_numpy(x).to(dtype)


def code_of(compressor: Compressor, x: Tensor, round: int = 0, rounds: int = 1) -> tuple[Code, Tensor]:
    """The code of the last of some rounds, and the last whole vectors before it."""
    memory = {k: v.expand(len(x), -1) for k, v in compressor.memory(0 * x[0]).items()}
    for r in range(round, round + rounds):
        last = memory.get("l", 0 * x)
        code, memory = compressor.encode(x * (1 + r), memory, draws(r, len(x)))
    return code, last


# --- the wire ---------------------------------------------------------------------------------------------------------


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


# --- each code against its paper --------------------------------------------------------------------------------------


def unbiased(found: Tensor, x: Tensor) -> None:
    """The mean of draws [n, d] is x within five standard errors in every coordinate."""
    error = (found.mean(0) - x).abs()
    standard = found.std(0) / math.sqrt(len(found))
    assert bool((error <= 5 * standard + 1e-12).all()), (error / standard).max()
    assert float(standard.max()) > 0  # they are random at all


@pytest.mark.parametrize("settings", [{"s": 1}, {"s": 4}, {"s": 3, "bucket": 5}])
def test_qsgd_is_unbiased_with_the_variance_of_its_lemma(settings: dict[str, int]) -> None:
    n, d = 10_000, 17
    x = torch.from_numpy(np.random.default_rng(1).normal(size=d))
    code, _ = QSGD(**settings).encode(x.expand(n, -1), {}, draws(3, n))
    found = code.value()
    unbiased(found, x)
    assert float((found - x).square().sum(1).mean()) <= QSGD(**settings).omega(d) * float(x.square().sum())


def test_qsgd_by_hand() -> None:
    """‖(3, −4)‖ = 5: with s = 5 both are on the grid; with s = 1 they are 0 or ±5."""
    x = torch.tensor([[3.0, -4.0]], dtype=torch.float64)
    code, _ = QSGD(s=5).encode(x, {}, draws(clients=1))
    assert isinstance(code, Levels)
    assert code.norms.tolist() == [[5.0]] and code.q.tolist() == [[3.0, -4.0]] and torch.equal(code.value(), x)
    found = QSGD(s=1).encode(x.expand(400, -1), {}, draws(clients=400))[0].value()
    assert set(found[:, 0].tolist()) == {0.0, 5.0} and set(found[:, 1].tolist()) == {0.0, -5.0}


def test_each_client_draws_its_own_and_the_same_whoever_is_beside_it() -> None:
    x = torch.full((4, 50), 0.3, dtype=torch.float64)
    all_four = QSGD().encode(x, {}, draws(clients=4))[0].value()
    assert not torch.equal(all_four[0], all_four[1])
    alone = QSGD().encode(x[:1], {}, Draws(0, "test", 0, np.array([2])))[0].value()
    assert torch.equal(alone[0], all_four[2])


@pytest.mark.parametrize("rows", [1, 4, 5])
def test_the_count_sketch_is_unbiased(rows: int) -> None:
    """Over 10,000 keys; one row has the variance (‖x‖² − x_j²) / columns in every coordinate."""
    d = 12
    x = torch.from_numpy(np.random.default_rng(2).normal(size=(1, d)))
    sketch = Sketch(k=4 * rows, rows=rows)
    assert sketch.columns(d) == min(d, 4 * rows) // rows
    found = torch.cat([sketch.encode(x, {}, draws(r, 1))[0].value() for r in range(10_000)])
    unbiased(found, x[0])
    if rows == 1:
        squares = (found - x).square()
        expected = (x.square().sum() - x.square()) / 4
        wrong = (squares.mean(0) - expected).abs() / (squares.std(0) / 100)
        assert float(wrong.max()) < 5
    else:
        assert float((found - x).square().sum(1).mean()) <= sketch.omega(d) * float(x.square().sum())


def test_the_sketch_finds_heavy_hitters() -> None:
    """The few large coordinates of a vector are the largest estimates, and nearly right."""
    x = 1e-3 * torch.from_numpy(np.random.default_rng(3).normal(size=(1, 500)))
    x[0, [7, 300]] = torch.tensor([5.0, -4.0], dtype=x.dtype)
    found = Sketch(k=400, rows=5).encode(x, {}, draws(clients=1))[0].value()
    assert sorted(found[0].abs().topk(2).indices.tolist()) == [7, 300]
    torch.testing.assert_close(found[0, [7, 300]], x[0, [7, 300]], atol=0.05, rtol=0)


def test_the_projection_is_lp_projs_own() -> None:
    x = numbers(30)
    P = st.LpProj(d_sub=6, projection_seed=4).P(30)
    code, _ = RandomProjection(k=6, fresh=False, seed=4).encode(x, {}, draws())
    assert torch.equal(code.z, P.project(x))  # type: ignore[attr-defined]
    assert torch.equal(code.value(), P.lift(P.project(x) * (30 / 6)))


def test_a_fresh_projection_is_unbiased_with_the_variance_of_its_formula() -> None:
    x = torch.from_numpy(np.random.default_rng(4).normal(size=(1, 9)))
    found = torch.cat([RandomProjection(k=3).encode(x, {}, draws(r, 1))[0].value() for r in range(2_500)])
    unbiased(found, x[0])
    squares = (found - x).square().sum(1)
    expected = RandomProjection(k=3).omega(9) * float(x.square().sum())
    assert abs(float(squares.mean()) - expected) < 5 * float(squares.std()) / 50


def test_top_k_is_the_largest_coordinates() -> None:
    x = numbers(20)
    found = TopK(k=0.15).encode(x, {}, draws())[0].value().numpy()
    for row, wanted in zip(found, x.numpy(), strict=True):
        kept = np.sort(np.argsort(-np.abs(wanted), kind="stable")[:3])
        expected = np.zeros(20)
        expected[kept] = wanted[kept]
        assert row.tolist() == expected.tolist()
    assert torch.equal(TopK(k=1.0).encode(x, {}, draws())[0].value(), x)


@pytest.mark.parametrize(("compressor", "levels"), [(Int8(), 127), (Int4(), 7)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_grids_err_by_half_a_step(compressor: Compressor, levels: int, dtype: torch.dtype) -> None:
    x = numbers(400, dtype)
    found = compressor.encode(x, {}, draws())[0].value()
    s = x.abs().amax(1, keepdim=True) / levels
    error = (found - x).abs()
    assert bool((error <= s / 2 * (1 + 400 * torch.finfo(dtype).eps)).all())
    assert float((error / s)[:-1].max()) > 0.45  # and the bound is nearly met
    assert bool((error <= x.abs()).all())  # never worse than sending nothing: a contraction
    assert torch.equal(found[-1], x[-1])  # 0


def test_a_grid_keeps_its_own_points() -> None:
    x = torch.tensor([[-7.0, -3.0, 0.0, 1.0, 7.0]])
    assert torch.equal(Int4().encode(x, {}, draws(clients=1))[0].value(), x)
    y = torch.arange(-127.0, 128.0)[None] / 4
    assert torch.equal(Int8().encode(y, {}, draws(clients=1))[0].value(), y)


def test_float16_is_exact_on_what_it_can_represent() -> None:
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    x = torch.from_numpy(every[np.isfinite(every)].astype(np.float64))[None]
    assert torch.equal(Float16().encode(x, {}, draws(clients=1))[0].value(), x)
    large = torch.tensor([[1e6, -1e300, 65504.0]], dtype=torch.float64)
    assert Float16().encode(large, {}, draws(clients=1))[0].value().tolist() == [[65504.0, -65504.0, 65504.0]]


def test_elias_omega_code() -> None:
    """The code words of Elias' paper; lengths and reader against the writer."""
    known = {
        1: "0",
        2: "100",
        3: "110",
        4: "101000",
        8: "1110000",
        15: "1111110",
        16: "10100100000",
        100: "1011011001000",
    }
    assert {n: elias.word(n) for n in known} == known
    table = elias.lengths(5000)
    for n in [*range(1, 5001, 7), 5000]:
        word = elias.word(n)
        assert table[n] == len(word) and elias.read(word + "1", 0) == (n, len(word))


def test_lbgm_recycles_what_is_in_line_for_one_number() -> None:
    """Any multiple of the look-back gradient costs a scalar and is exact; what is at a right angle is sent whole."""
    g = numbers(50, torch.float32, seed=5)[:4]
    lbgm = LBGM(delta=0.0)
    code, memory = lbgm.encode(g, {"l": torch.zeros_like(g)}, draws(clients=4))
    assert lengths(code).tolist() == [HEADER + 200] * 4 and torch.equal(memory["l"], g)
    for factor in (1.0, -0.3, 1e-4, 250.0):
        again, kept = lbgm.encode(factor * g, memory, draws(clients=4))
        assert lengths(again).tolist() == [HEADER + 4] * 4 and torch.equal(kept["l"], g)
        torch.testing.assert_close(again.value(), factor * g, rtol=1e-5, atol=0)
    other = torch.from_numpy(np.random.default_rng(6).normal(size=(4, 50))).float()
    across = other - (other * g).sum(1, True) / (g * g).sum(1, True) * g
    code, memory = LBGM(delta=0.9).encode(across, memory, draws(clients=4))
    assert lengths(code).tolist() == [HEADER + 200] * 4 and torch.equal(memory["l"], across)


@pytest.mark.parametrize("angle", [0.1, 0.5, 1.0, 1.5])
def test_lbgm_errs_by_the_sine(angle: float) -> None:
    """At an angle α of the look-back gradient the error is sin²α of ‖g‖², or 0 where that is above δ."""
    l = torch.tensor([[2.0, 0.0, 0.0]], dtype=torch.float64)  # noqa: E741
    g = 3 * torch.tensor([[math.cos(angle), math.sin(angle), 0.0]], dtype=torch.float64)
    code, _ = LBGM(delta=0.5).encode(g, {"l": l}, draws(clients=1))
    error = float((code.value() - g).square().sum() / g.square().sum())
    sine = math.sin(angle) ** 2
    assert error == (pytest.approx(sine) if sine <= 0.5 else 0.0)
    assert lengths(code).tolist() == [HEADER + (8 if sine <= 0.5 else 24)]


def test_dgc_at_full_density_is_momentum_sgd() -> None:
    """Without momentum factor masking; with it, nothing of the momentum is left and it is plain SGD."""
    draw, m = np.random.default_rng(7), 0.9
    steps = torch.from_numpy(draw.normal(size=(12, 3, 8)))
    momentum, plain = DGC(k=1.0, momentum=m, masking=False), DGC(k=1.0, momentum=m)
    kept = {c: c.memory(torch.zeros(8, dtype=torch.float64)) for c in (momentum, plain)}
    u = torch.zeros(3, 8, dtype=torch.float64)
    for t, g in enumerate(steps):
        u = m * u + g
        for compressor, wanted in ((momentum, u), (plain, g)):
            code, kept[compressor] = compressor.encode(g, kept[compressor], draws(t, 3))
            torch.testing.assert_close(code.value(), wanted, rtol=1e-12, atol=1e-12)


def test_dgc_is_algorithm_4() -> None:
    """Against the paper's lines in plain NumPy, client by client."""
    draw, m, clip, d = np.random.default_rng(8), 0.7, 2.0, 30
    dgc = DGC(k=0.1, momentum=m, warmup=2, clip=clip)
    memory = {k: v.expand(4, -1) for k, v in dgc.memory(torch.zeros(d, dtype=torch.float64)).items()}
    U, V = np.zeros((4, d)), np.zeros((4, d))
    for t in range(6):
        g = draw.normal(size=(4, d))
        code, memory = dgc.encode(torch.from_numpy(g), memory, draws(t, 4))
        sent = max(1, round(d * 0.1 ** (min(t + 1, 3) / 3)))
        for i in range(4):
            step = g[i] * min(1, clip / np.linalg.norm(g[i]))
            U[i] = m * U[i] + step
            V[i] = V[i] + U[i]
            mask = np.zeros(d, dtype=bool)
            mask[np.argsort(-np.abs(V[i]))[:sent]] = True
            np.testing.assert_allclose(code.value()[i], V[i] * mask, atol=1e-12)
            V[i], U[i] = V[i] * ~mask, U[i] * ~mask
        np.testing.assert_allclose(memory["u"], U, atol=1e-12)
        np.testing.assert_allclose(memory["v"], V, atol=1e-12)


def test_dgc_warms_up_as_in_the_paper() -> None:
    """75%, 93.75%, 98.4375%, 99.6% and then 99.9% are left out."""
    d = 1_000_000
    shares = [DGC().sent(d, t) / d for t in range(6)]
    np.testing.assert_allclose(shares, [0.25, 0.0625, 0.015625, 0.004, 0.001, 0.001], rtol=0.02)


@pytest.mark.parametrize("compressor", SOME, ids=str)
def test_nan_and_inf_are_not_turned_into_numbers(compressor: Compressor) -> None:
    """A broken vector stays broken, so that the server leaves it out; the others are not touched by it."""
    clean = numbers(64)
    for bad in (math.nan, math.inf):
        x = clean.clone()
        x[1, 3] = bad
        code, _ = code_of(compressor, x)
        assert lengths(code).shape == (5,)
        others = [0, 2, 3, 4]
        torch.testing.assert_close(code.value()[others], code_of(compressor, clean)[0].value()[others])
        if not (isinstance(compressor, Float16) and bad == math.inf):  # a number that is too large becomes the largest
            assert not bool(torch.isfinite(code.value()[1]).all())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TopK(k=0), r"top-k needs k in \(0, 1\].*got 0"),
        (lambda: TopK(k=2.5), "whole number above 1"),
        (lambda: DGC(momentum=1.0), r"dgc needs momentum in \[0, 1\)"),
        (lambda: DGC(warmup=-1), "dgc needs warmup >= 0"),
        (lambda: DGC(clip=0.0), "dgc needs clip > 0"),
        (lambda: QSGD(s=0), "qsgd needs 1 <= s"),
        (lambda: QSGD(bucket=0), "qsgd needs bucket >= 1"),
        (lambda: Sketch(rows=16), "sketch needs 1 to 15 rows"),
        (lambda: RandomProjection(seed=-1), "projection needs a seed"),
        (lambda: LBGM(delta=1.0), r"lbgm needs delta in \[0, 1\)"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any, message: str) -> None:
    with pytest.raises(st.SartorError, match=message):
        make()
