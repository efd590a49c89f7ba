"""Elias' omega code (Elias 1975): whole numbers from 1, small ones in few bits. QSGD's recursive coding.

ω(1) = 0;   ω(n): begin with a 0; while n > 1: put n in binary before it, then n = (bits of n) − 1
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .wire import sound

_LONGEST = 64  # bits of the code of any number that occurs (below 2^32)


@lru_cache(maxsize=8)
def lengths(most: int) -> np.ndarray:
    """[most + 1] the bits of the code of each number up to `most`; that of 0 is not used."""
    n = np.arange(most + 1)
    total = np.ones(most + 1, dtype=np.int64)
    while bool((n > 1).any()):
        bits = np.where(n > 1, np.frexp(n.astype(np.float64))[1], 0)
        total += bits
        n = np.where(n > 1, bits - 1, 1)
    return total


def word(n: int) -> str:
    """The code of n as 0s and 1s."""
    found = "0"
    while n > 1:
        found = f"{n:b}{found}"
        n = n.bit_length() - 1
    return found


def read(bits: str, at: int) -> tuple[int, int]:
    """The number whose code begins at `at`, and where it ends."""
    n, begin = 1, at
    while True:
        sound(at < len(bits) and at - begin <= _LONGEST, "it breaks off within a number")
        if bits[at] == "0":
            return n, at + 1
        end = at + n + 1
        sound(end <= len(bits) and n < _LONGEST, "it breaks off within a number")
        n, at = int(bits[at:end], 2), end
