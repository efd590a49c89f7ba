"""Gaussian noise of a site's own: from its operating system's entropy, never from a seed that others know."""

from __future__ import annotations

import math
import os

import numpy as np

_DRAWS = 4  # as Opacus' secure mode: the last bits of a sum of four tell none of them (Holohan, Braghin 2021)


def standard_normal(size: int, round: int = 0, client: int = 0, step: int = 0) -> np.ndarray:
    """[size] N(0, 1). What it is drawn for is taken, and does not matter: what is drawn here cannot be drawn again."""
    half = -(-size // 2)
    found = np.zeros(2 * half)
    for _ in range(_DRAWS):
        bits = np.frombuffer(os.urandom(16 * half), np.uint64).reshape(2, half) >> np.uint64(11)
        radius = np.sqrt(-2 * np.log((bits[0] + np.uint64(1)) * 2.0**-53))  # of a number in (0, 1]
        angle = 2 * math.pi * 2.0**-53 * bits[1]
        found += np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return found[:size] / math.sqrt(_DRAWS)
