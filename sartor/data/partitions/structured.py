"""Partitions with a structure among clients: halves with different skews, groups with own classes, power-law sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...errors import SartorError, need
from ...seeds import stream
from .assignment import Assignment, divide, held, labelled, real, room, whole
from .by_label import Labels, deal, hand_out, present
from .label_blind import Quantity


@dataclass(frozen=True)
class Hybrid:
    """The first half of the clients by Labels(labels), the others by Quantity(beta): FLAME's hybrid skew.

    The samples are first divided at random into two pools, in proportion to the clients of each half; so no two clients
    share a sample.

        >>> clients = st.data.load("digits").split(st.Hybrid(labels=2, beta=0.5), clients=10, seed=0)
    """

    labels: int = 2
    beta: float = 0.5

    def __post_init__(self) -> None:
        whole("Hybrid", labels=self.labels)
        real("Hybrid", beta=self.beta)

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """Label skew in one pool, quantity skew in the other."""
        present("Hybrid", y, self.labels, classes)
        m = room("Hybrid", len(y), clients, minimum)
        first = self.first_half(m)
        shuffled = stream(seed, "partition/hybrid").permutation(len(y))
        one, two = np.split(shuffled, [round(len(y) * first / m)])
        left = Labels(self.labels).assign(y[one], classes, None, first, seed, minimum)
        right = Quantity(self.beta).assign(y[two], classes, None, m - first, seed, minimum)
        return Assignment([one[r] for r in left.rows] + [two[r] for r in right.rows])

    def first_half(self, m: int) -> int:
        """How many clients have label skew."""
        need(m >= 2, f"Hybrid needs at least 2 clients, one for each half; got {m}.")
        return math.ceil(m / 2)


@dataclass(frozen=True)
class Dominant:
    """Groups of clients, each with its dominating classes: FedAMP's practical non-IID setting.

    Client i of m is in group g = floor(i groups / m) and has sizes[g] samples (all three parts together): the fraction
    `share` is spread evenly over the group's own classes, the rest evenly over all others. Where the data are too few
    for these sizes, all sizes shrink by one common factor. Groups have equally many classes and clients; `widths` gives
    each group so many classes, and clients in proportion to them (FedAMP's digits, upper-case and lower-case letters:
    10/26/26). `test` gives every client so many test samples, whatever its size, in place of a share of them; training
    and validation keep their proportion.

        >>> groups = st.Dominant(groups=2, share=0.8, sizes=(100, 50))
        >>> clients = st.data.load("digits").split(groups, clients=10, seed=0)
        >>> (clients.bounds[:, 3] - clients.bounds[:, 0]).tolist()
        [100, 100, 100, 100, 100, 50, 50, 50, 50, 50]
    """

    groups: int = 5
    share: float = 0.8
    sizes: tuple[int, ...] = (600, 500, 400, 300, 200)
    widths: tuple[int, ...] | None = None
    test: int | None = None

    def __post_init__(self) -> None:
        whole("Dominant", groups=self.groups)
        if self.test is not None:
            whole("Dominant", test=self.test)
        need(self.groups >= 2, f"Dominant needs at least 2 groups; got {self.groups}.")
        real("Dominant", share=self.share)
        need(self.share <= 1, f"Dominant needs share <= 1; got {self.share}.")
        good = isinstance(self.sizes, tuple) and len(self.sizes) == self.groups
        need(good, f"Dominant needs one size for each of the {self.groups} groups; got sizes={self.sizes!r}.")
        for size in self.sizes:
            whole("Dominant", sizes=size)
        if self.widths is not None:
            good = isinstance(self.widths, tuple) and len(self.widths) == self.groups
            need(good, f"Dominant needs one width for each of the {self.groups} groups; got widths={self.widths!r}.")
            for width in self.widths:
                whole("Dominant", widths=width)

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """Count what each client holds of each class, then deal the samples of each class out."""
        total = labelled("Dominant", classes)
        need(total >= self.groups, f"Dominant: {self.groups} groups need as many classes; the data have {total}.")
        need(
            self.widths is None or sum(self.widths) == total,
            f"Dominant: widths add up to the number of classes, {total}; got {self.widths!r}.",
        )
        m = room("Dominant", len(y), clients, minimum)
        need(m >= self.groups, f"Dominant: {self.groups} groups need at least as many clients; got {m}.")
        rng = stream(seed, "partition/dominant")
        counts = self._fit(m, np.bincount(y, minlength=total), rng)
        rows: list[list[np.ndarray]] = [[] for _ in range(m)]
        for c in range(total):
            members = rng.permutation(np.flatnonzero(y == c))
            for i, end in enumerate(np.cumsum(counts[:, c])):
                rows[i].append(members[end - counts[i, c] : end])
        out = [np.concatenate(r) for r in rows]
        held(f"Dominant(sizes={self.sizes})", out, minimum)
        smallest = min(map(len, out))
        need(
            self.test is None or self.test < smallest,
            f"Dominant: test = {self.test} leaves nothing to train with at a client of {smallest} samples.",
        )
        return Assignment(out, test=self.test)

    def _fit(self, m: int, available: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """[m, C] samples of each class that each client gets, the sizes shrunk until every class suffices."""
        ties = rng.random((m, len(available)))
        factor = 1.0
        while factor > 1e-4:
            counts = np.array([self._counts(self.group(i, m), factor, ties[i]) for i in range(m)])
            wanted = counts.sum(axis=0)
            if (wanted <= available).all():
                return counts
            # Rounding may ask for a few more than the exact shares do, so a fitting factor is approached, not computed.
            factor *= min(0.999, float((available / np.maximum(wanted, 1)).min()))
        raise SartorError(f"Dominant: a class has no samples (class {int(np.argmin(available))}), so no mix can hold.")

    def group(self, client: int, m: int) -> int:
        """The group of one of m clients."""
        if self.widths is None:
            return client * self.groups // m
        ends = np.cumsum(self.widths) * m  # in units of 1/Σ widths of a client
        return int(np.searchsorted(ends, client * sum(self.widths), side="right"))

    def _own(self, group: int, classes: int) -> np.ndarray:
        """The classes that dominate in a group."""
        each = np.arange(classes)
        ends = None if self.widths is None else np.cumsum(self.widths)[:-1]
        own: np.ndarray = (np.array_split(each, self.groups) if ends is None else np.split(each, ends))[group]
        return own

    def _counts(self, group: int, factor: float, coupling: np.ndarray) -> np.ndarray:
        """[C] samples of each class for one client of a group; `tie` says which classes get the odd samples."""
        own = np.isin(np.arange(len(coupling)), self._own(group, len(coupling)))
        size = math.floor(self.sizes[group] * factor)
        mine = round(size * self.share)
        counts = np.zeros(len(coupling), dtype=np.int64)
        for which, number in ((own, mine), (~own, size - mine)):
            order = np.flatnonzero(which)[np.argsort(coupling[which])]
            counts[order] = divide(np.ones(len(order)), number)
        return counts


@dataclass(frozen=True)
class PowerLaw:
    """A few labels per client and sizes with a long tail: lognormal weights, as in FedProx and pFedMe.

    Each client has `labels` different labels and a weight from a lognormal distribution with spread `sigma`; each class
    is divided among the clients that hold it in proportion to their weights.

        >>> clients = st.data.load("digits").split(st.PowerLaw(labels=2, sigma=1.0), clients=10, seed=0)
    """

    labels: int = 2
    sigma: float = 2.0

    def __post_init__(self) -> None:
        whole("PowerLaw", labels=self.labels)
        real("PowerLaw", sigma=self.sigma)

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """Deal labels, draw weights, divide each class."""
        occurring = present("PowerLaw", y, self.labels, classes)
        m = room("PowerLaw", len(y), clients, minimum)
        rng = stream(seed, "partition/power-law")
        weight = rng.lognormal(0.0, self.sigma, m)
        floor = math.ceil(minimum / self.labels)
        rows = hand_out("PowerLaw", y, deal(m, self.labels, occurring, rng), weight, floor, rng)
        return Assignment(rows)
