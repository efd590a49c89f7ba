"""Randomness is data: every draw is a function of (seed, purpose, round, client), never of a shared generator.

Philox is a counter-based generator: the key holds (seed, purpose), the two high words of the counter hold (round,
client), and drawing only moves the low words. So streams never overlap, and who draws first, on which engine, changes
nothing.
"""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    """The random generator that belongs to (seed, purpose, round, client)."""
    key = np.array([seed & 0xFFFFFFFFFFFFFFFF, zlib.crc32(purpose.encode())], dtype=np.uint64)
    counter = np.array([0, 0, round, client], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
