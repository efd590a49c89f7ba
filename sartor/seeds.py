"""Randomness is data: every draw is a function of (seed, purpose, round, client), never of a shared generator.

Philox is a counter-based generator: the key holds (seed, purpose), the two high words of the counter hold (round,
client), and drawing only moves the low words. So streams never overlap, and who draws first, on which engine, changes
nothing.

What every client draws in every round (the order of its batches) comes from a hash of the same numbers instead, all
clients in a few array operations: a generator for each of them would take longer than a small model's step.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
import torch

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def torch_seed(seed: int) -> Iterator[None]:
    """Inside, PyTorch's own generator begins at `seed`, for layers that draw their first weights by themselves; after
    it, it goes on as it was. It is one for all threads: the others wait, or they would draw from another's seed."""
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def stream(seed: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    """The random generator that belongs to (seed, purpose, round, client)."""
    key = np.array([seed & 0xFFFFFFFFFFFFFFFF, zlib.crc32(purpose.encode())], dtype=np.uint64)
    counter = np.array([0, 0, round, client], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def hashes(seed: int | np.ndarray, purpose: str, round: int, clients: np.ndarray, places: np.ndarray) -> np.ndarray:
    """[c, n] random uint64, each a function of (seed, purpose, round, client, place) alone (SplitMix64); `seed` is one
    for all clients, or [c] of each client's run."""
    key = words([seed]) if isinstance(seed, int) else seed  # an array, not a number: it wraps without a warning
    for word in ([zlib.crc32(purpose.encode())], [round], clients):
        key = _mix(key + _ODD * (np.asarray(word).astype(np.uint64) + np.uint64(1)))
    return _mix(key[:, None] + _ODD * (places.astype(np.uint64) + np.uint64(1)))


def words(seeds: Sequence[int] | np.ndarray) -> np.ndarray:
    """Seeds as the 64 bits that are drawn from."""
    return np.array([int(seed) & 0xFFFFFFFFFFFFFFFF for seed in seeds], dtype=np.uint64)


def orders(
    seed: int | np.ndarray, purpose: str, round: int, clients: np.ndarray, counts: np.ndarray, epochs: np.ndarray
) -> np.ndarray:
    """[most epochs, c, n] a permutation of 0..counts[i] − 1 for each of a client's `epochs` [c]; what follows it, and
    what comes after its last epoch, is padding. Small ones are kept: all methods of a comparison draw the same."""
    drawn = np.zeros((int(epochs.max()), len(clients), int(counts.max())), dtype=np.int64)
    for epoch in range(len(drawn)):  # small clients have the most of them
        here = np.flatnonzero(epochs > epoch)
        who, sizes = clients[here], counts[here]
        if isinstance(seed, int) and len(here) * int(sizes.max()) <= _SMALL:
            found = _kept(seed, purpose, round, epoch, *(v.astype(np.int64).tobytes() for v in (who, sizes)))
        else:
            found = _shuffled(seed if isinstance(seed, int) else seed[here], purpose, round, epoch, who, sizes)
        drawn[epoch, here, : found.shape[1]] = found
    return drawn


_SMALL = 1 << 14  # numbers of an epoch's orders that are kept, in two bytes each ...
_MANY = 1 << 12  # ... and how many of them: 128 MiB at most


@lru_cache(maxsize=_MANY)
def _kept(seed: int, purpose: str, round: int, epoch: int, clients: bytes, counts: bytes) -> np.ndarray:
    each = (np.frombuffer(v, np.int64) for v in (clients, counts))
    return _shuffled(seed, purpose, round, epoch, *each).astype(np.int16)


def _shuffled(
    seed: int | np.ndarray, purpose: str, round: int, epoch: int, clients: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """[c, n] one epoch's order of each of these clients."""
    at = np.arange(int(counts.max()))
    keys = hashes(seed, purpose, round, clients, (epoch << 32) + at)
    keys[at >= counts[:, None]] = np.uint64(0xFFFFFFFFFFFFFFFF)
    order: np.ndarray = np.argsort(keys, axis=-1)
    return order


_ODD = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser: every bit of the input changes every bit of the output with even chance."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed
