"""Elias' omega code."""

from __future__ import annotations

from sartor.compressors import (
    elias,
)


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
