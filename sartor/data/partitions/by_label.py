"""Partitions by label: a few labels per client, shards of sorted data, Dirichlet shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...errors import SartorError, need
from ...seeds import stream
from .assignment import Assignment, cut, divide, held, labelled, real, room, whole

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
    occurring: np.ndarray = np.unique(y)
    need(k <= len(occurring), f"{owner}: {k} labels per client asked for; the data have {len(occurring)} classes.")
    return occurring


@dataclass(frozen=True)
class Labels:
    """k labels per client, classes cut into equal shares: label skew by quantity.

    Every client has exactly k different labels, and all samples of the classes in use are dealt out.

        >>> clients = st.data.load("digits").split(st.Labels(k=2), clients=10, seed=0)
        >>> len(set(clients.y[clients.bounds[0, 0] : clients.bounds[0, 3]].tolist()))
        2
    """

    k: int = 2

    def __post_init__(self) -> None:
        whole("Labels", k=self.k)

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """Deal labels to clients, then samples of those labels."""
        occurring = present("Labels", y, self.k, classes)
        m = room("Labels", len(y), clients, minimum)
        rows: list[np.ndarray] = []
        for attempt in range(TRIES):  # which labels meet decides a client's size, so another deal may hold the minimum
            rng = stream(seed, "partition/labels", attempt)
            rows = self.draw(y, occurring, m, rng)
            if min(len(r) for r in rows) >= minimum:
                break
        held(f"Labels(k={self.k})", rows, minimum)
        return Assignment(rows)

    def draw(self, y: np.ndarray, occurring: np.ndarray, m: int, rng: np.random.Generator) -> list[np.ndarray]:
        """The rows of each client, of the classes that occur."""
        return hand_out("Labels", y, deal(m, self.k, occurring, rng), np.ones(m), 1, rng)


@dataclass(frozen=True)
class Shards:
    """k shards per client of the data sorted by label, all shards of one size (McMahan et al. 2017).

    For example:

        >>> clients = st.data.load("digits").split(st.Shards(k=2), clients=10, seed=0)
    """

    k: int = 2

    def __post_init__(self) -> None:
        whole("Shards", k=self.k)

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """Sort by label, cut into k m equal shards, deal k to each client."""
        labelled("Shards", classes)
        m = room("Shards", len(y), clients, minimum)
        need(self.k * m <= len(y), f"Shards: {self.k} shards for each of {m} clients, but {len(y)} samples.")
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

    The draw is repeated until every client has `minimum` samples.

        >>> clients = st.data.load("digits").split(st.Dirichlet(beta=0.3), clients=10, seed=0)
    """

    beta: float = 0.5
    overlap: ClassVar[bool] = False  # whether two clients may hold the same sample

    def __post_init__(self) -> None:
        real("Dirichlet", beta=self.beta)

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """Draw how many samples of each class a client has, then the samples."""
        members = [np.flatnonzero(y == c) for c in present("Dirichlet", y, 1, classes)]
        m = room("Dirichlet", len(y), clients, minimum, self.overlap)
        best = 0
        for attempt in range(TRIES):
            rng = stream(seed, "partition/dirichlet", attempt)
            counts = self.counts(rng.dirichlet(np.full(m, self.beta), size=len(members)), members)
            best = max(best, int(counts.sum(axis=0).min()))
            if best >= minimum:
                return Assignment(self.draw(members, counts, rng), overlap=self.overlap)
        raise SartorError(
            f"Dirichlet(beta={self.beta}): no draw in {TRIES} gave each of {m} clients {minimum} samples; in the best "
            f"one the smallest client had {best}. Use fewer clients, a larger beta or a smaller minimum."
        )

    def counts(self, shares: np.ndarray, members: list[np.ndarray]) -> np.ndarray:
        """[C, m] samples of each class that each client gets."""
        return np.array([divide(p, len(r)) for p, r in zip(shares, members, strict=True)])

    def draw(self, members: list[np.ndarray], counts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
        """The rows of each client."""
        parts = [cut(rng.permutation(r), row) for r, row in zip(members, counts, strict=True)]
        return [np.concatenate(mine) for mine in zip(*parts, strict=True)]
