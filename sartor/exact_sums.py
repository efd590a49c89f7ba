"""Sums of numbers of any size without rounding: each number is a whole one in units of 2^−256, and those are added.

A whole number travels as LIMBS signed words, v = Σ_k word_k · 2^(32 k) with |word_k| < 2^32. Words are added one by
one, also modulo 2^64 under masks (federation/masks.py): of up to 2^30 numbers none runs over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

UNIT = 256  # bits behind the point: 1e-77
LIMBS = 16
MOST = 2.0**224  # of one number; 2^31 of them are below 2^256


def whole(x: float) -> int:
    """x in units of 2^−256, rounded down; below 1e-61 a double's last digits are lost."""
    numerator, denominator = float(x).as_integer_ratio()
    return (numerator << UNIT) // denominator


def worth(total: int) -> float:
    """What so many units are worth."""
    return total / (1 << UNIT)  # Python divides whole numbers exactly, and rounds once


def to_words(numbers: Iterable[int]) -> np.ndarray:
    """[n, LIMBS] the words of n whole numbers."""
    rows = []
    for v in numbers:
        size = abs(v).to_bytes(4 * LIMBS, "little")
        words = np.frombuffer(size, "<u4").astype(np.int64)
        rows.append(-words if v < 0 else words)
    return np.array(rows, dtype=np.int64).reshape(-1, LIMBS)


def from_words(words: np.ndarray) -> list[int]:
    """The whole numbers of sums of words [n, LIMBS]."""
    rows: Sequence[Sequence[int]] = words.tolist()
    return [sum(word << 32 * k for k, word in enumerate(row)) for row in rows]
