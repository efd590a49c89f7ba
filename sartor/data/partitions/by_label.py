"""Partitions by label: a few labels per client, Dirichlet shares, shards, dominating classes, power-law sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...errors import SartorError, need
from ...seeds import stream
from .assignment import Assignment, cut, divide, flag, held, labelled, real, room, whole

TRIES = 200  # draws before a partition gives up on finding one in which every client has `minimum` samples


def deal(clients: int, k: int, classes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[m, k] labels: k distinct ones for each client, every class equally often (up to one).

    Each client takes the k classes with most places left, ties at random. As k ≤ C, no class has more places than there
    are clients; taking the fullest first keeps it so until the end, and no client ever needs the same class twice.
    """
    left = np.full(len(classes), clients * k // len(classes))
    left[rng.permutation(len(classes))[: clients * k % len(classes)]] += 1
    out = np.empty((clients, k), dtype=np.int64)
    for i in range(clients):
        chosen = np.lexsort((rng.random(len(classes)), -left))[:k]
        left[chosen] -= 1
        out[i] = classes[chosen]
    return out


def hand_out(
    owner: str, y: np.ndarray, labels: np.ndarray, weight: np.ndarray, floor: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Divide each class among the clients that hold it, in proportion to their weights, at least `floor` for each."""
    rows: list[list[np.ndarray]] = [[] for _ in labels]
    for c in np.unique(labels):
        members = rng.permutation(np.flatnonzero(y == c))
        holders = np.flatnonzero((labels == c).any(axis=1))
        if len(members) < floor * len(holders):
            raise SartorError(
                f"{owner}: class {c} has {len(members)} samples, too few for the {len(holders)} clients that are to "
                f"hold at least {floor} of them. Use fewer clients, fewer labels per client or a smaller minimum."
            )
        counts = divide(weight[holders], len(members), floor)
        for i, part in zip(holders, cut(members, counts), strict=True):
            rows[i].append(part)
    return [np.concatenate(r) for r in rows]


def present(owner: str, y: np.ndarray, k: int, classes: int | None) -> np.ndarray:
    """The classes that occur; refuses more labels per client than there are."""
    labelled(owner, classes)
    there = np.unique(y)
    need(k <= len(there), f"{owner}: {k} labels per client asked for; the data have {len(there)} classes.")
    return there


@dataclass(frozen=True)
class Labels:
    """k labels per client, classes cut into equal shares: label skew by quantity.

    Every client has exactly k different labels, and all samples of the classes in use are dealt out. `distinct=False`
    is the draw of FLAME's experiments: each class is cut into ceil(k m / C) shards, all are shuffled, and each client
    takes k in turn, so that it may meet a label twice and some shards may be left over.
    """

    k: int = 2
    distinct: bool = True

    def __post_init__(self) -> None:
        whole("Labels", k=self.k)
        flag("Labels", distinct=self.distinct)

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """Deal labels to clients, then samples of those labels."""
        there = present("Labels", y, self.k, classes)
        m = room("Labels", len(y), clients, minimum)
        rows: list[np.ndarray] = []
        for attempt in range(TRIES):  # which labels meet decides a client's size, so another deal may hold the minimum
            rng = stream(seed, "partition/labels", attempt)
            if self.distinct:
                rows = hand_out("Labels", y, deal(m, self.k, there, rng), np.ones(m), 1, rng)
            else:
                rows = self._shards(y, there, m, rng)
            if min(len(r) for r in rows) >= minimum:
                break
        held(f"Labels(k={self.k})", rows, minimum)
        return Assignment(rows)

    def _shards(self, y: np.ndarray, there: np.ndarray, m: int, rng: np.random.Generator) -> list[np.ndarray]:
        each = math.ceil(self.k * m / len(there))
        shards = [s for c in there for s in np.array_split(rng.permutation(np.flatnonzero(y == c)), each)]
        order = rng.permutation(len(shards))
        return [np.concatenate([shards[s] for s in order[i * self.k : (i + 1) * self.k]]) for i in range(m)]


@dataclass(frozen=True)
class Shards:
    """k shards per client of the data sorted by label, all shards of one size (McMahan et al. 2017)."""

    k: int = 2

    def __post_init__(self) -> None:
        whole("Shards", k=self.k)

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """Sort by label, cut into k m equal shards, deal k to each client."""
        labelled("Shards", classes)
        m = room("Shards", len(y), clients, minimum)
        rng = stream(seed, "partition/shards")
        shuffled = rng.permutation(len(y))
        shards = np.array_split(shuffled[np.argsort(y[shuffled], kind="stable")], m * self.k)
        order = rng.permutation(m * self.k).reshape(m, self.k)
        rows = [np.concatenate([shards[s] for s in mine]) for mine in order]
        held(f"Shards(k={self.k})", rows, minimum)
        return Assignment(rows)


@dataclass(frozen=True)
class Dirichlet:
    """Each class shared out by a Dirichlet(beta) draw: label skew by distribution.

    The draw is repeated until every client has `minimum` samples. With `overlap` client i draws int(p_i n_c) samples of
    class c independently of the others, as in FLAME's experiments.
    """

    beta: float = 0.5
    overlap: bool = False

    def __post_init__(self) -> None:
        real("Dirichlet", beta=self.beta)
        flag("Dirichlet", overlap=self.overlap)

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """Draw how many samples of each class a client has, then the samples."""
        members = [np.flatnonzero(y == c) for c in present("Dirichlet", y, 1, classes)]
        m = room("Dirichlet", len(y), clients, minimum, self.overlap)
        best = 0
        for attempt in range(TRIES):
            rng = stream(seed, "partition/dirichlet", attempt)
            shares = rng.dirichlet(np.full(m, self.beta), size=len(members))
            if self.overlap:
                counts = np.array([(p * len(r)).astype(np.int64) for p, r in zip(shares, members, strict=True)])
            else:
                counts = np.array([divide(p, len(r)) for p, r in zip(shares, members, strict=True)])
            best = max(best, int(counts.sum(axis=0).min()))
            if best >= minimum:
                return Assignment(self._draw(members, counts, rng), overlap=self.overlap)
        raise SartorError(
            f"Dirichlet(beta={self.beta}): no draw in {TRIES} gave each of {m} clients {minimum} samples; in the best "
            f"one the smallest client had {best}. Use fewer clients, a larger beta or a smaller minimum."
        )

    def _draw(self, members: list[np.ndarray], counts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
        if self.overlap:
            return [
                np.concatenate([rng.choice(r, k, replace=False) for r, k in zip(members, column, strict=True)])
                for column in counts.T
            ]
        parts = [cut(rng.permutation(r), row) for r, row in zip(members, counts, strict=True)]
        return [np.concatenate(mine) for mine in zip(*parts, strict=True)]
