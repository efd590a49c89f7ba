"""Partitions that do not look at labels: equal shares, unequal sizes, noise, and the clients that nature made."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ...errors import SartorError, need, see
from ...seeds import stream
from .assignment import Assignment, cut, divide, real, room, whole


@dataclass(frozen=True)
class IID:
    """Equal shares of the shuffled data: no skew.

    For example:

        >>> clients = st.data.load("digits").split(st.IID(), clients=10, seed=0)
    """

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """Shuffle all samples and give each client the same number, up to one."""
        m = room("IID", len(y), clients, minimum)
        return Assignment(np.array_split(stream(seed, "partition/iid").permutation(len(y)), m))


@dataclass(frozen=True)
class Quantity:
    """Sizes in proportion to a Dirichlet(beta) draw, labels alike: quantity skew.

    Every client first gets `minimum` samples, the rest is divided in proportion to p ~ Dir(beta · 1).

        >>> clients = st.data.load("digits").split(st.Quantity(beta=0.5), clients=10, seed=0)
        >>> sizes = clients.bounds[:, 3] - clients.bounds[:, 0]
    """

    beta: float = 0.5

    def __post_init__(self) -> None:
        real("Quantity", beta=self.beta)

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """Draw the sizes, then samples at random."""
        n = len(y)
        m = room("Quantity", n, clients, minimum)
        rng = stream(seed, "partition/quantity")
        p = rng.dirichlet(np.full(m, self.beta))
        return Assignment(cut(rng.permutation(n), divide(p, n, minimum)))


@dataclass(frozen=True)
class Noise:
    """Equal shares, and Gaussian noise on the features that grows from client to client: quality skew.

    Client i of m, i = 1..m, gets noise of variance sigma · i/m, as FLAME's paper states. Noise is added to the
    standardised features of all three parts, and drawn once (the authors' code draws it anew at every access).

        >>> clients = st.data.load("digits").split(st.Noise(sigma=0.1), clients=10, seed=0)
    """

    sigma: float = 0.1

    def __post_init__(self) -> None:
        real("Noise", sigma=self.sigma)

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """Equal shares as IID gives them, with a noise level for each client."""
        m = room("Noise", len(y), clients, minimum)
        rows = np.array_split(stream(seed, "partition/noise").permutation(len(y)), m)
        return Assignment(rows, noise=self.deviations(m))

    def deviations(self, m: int) -> np.ndarray:
        """[m] the standard deviation of each client's noise."""
        levels: np.ndarray = np.sqrt(self.sigma * (np.arange(m) + 1) / m)
        return levels


FEW = 5  # clients that are named where they are left out


def in_order(names: list[str]) -> list[int]:
    """The order in which people expect names: "writer 2" before "writer 10"."""

    def pieces(i: int) -> list[str | int]:
        return [int(part) if k % 2 else part for k, part in enumerate(re.split(r"(\d+)", names[i]))]

    return sorted(range(len(names)), key=pieces)


@dataclass(frozen=True)
class Natural:
    """One client for each key in the data: writer, device, hospital.

    `clients=None` takes every key that has at least `minimum` samples, a number takes that many of them at random.

        >>> data = st.data.load(([[0.0]] * 20, [0, 1] * 10, ["north"] * 10 + ["south"] * 10))
        >>> data.split(st.Natural(), seed=0).names
        ['north', 'south']
    """

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """Group the rows by key."""
        if keys is None:
            raise SartorError(
                "Natural needs a client key, and these data have none. Load a table with client_key (--client-key), "
                "or use another partition."
            )
        whole("Natural", minimum=minimum)
        values, inverse, sizes = np.unique(keys, return_inverse=True, return_counts=True)
        names = [str(value) for value in values]
        enough = [i for i in in_order(names) if sizes[i] >= minimum]
        need(
            len(enough) > 0,
            f"Natural: none of the {len(values)} keys has {minimum} samples (the most is {int(sizes.max())}). "
            f"Use a smaller minimum.{see('small-clients')}",
        )
        if clients is not None:
            enough = self._some(enough, clients, seed, minimum)
        by_key = np.split(np.argsort(inverse, kind="stable"), np.cumsum(sizes)[:-1])
        few = [names[i] for i in in_order(names) if sizes[i] < minimum]
        taken = [by_key[i] for i in enough]
        return Assignment(taken, names=[names[i] for i in enough], left_out=len(few), too_small=few[:FEW])

    @staticmethod
    def _some(enough: list[int], clients: int, seed: int, minimum: int) -> list[int]:
        whole("Natural", clients=clients)
        need(
            clients <= len(enough),
            f"Natural: {clients} clients asked for, but only {len(enough)} keys have at least {minimum} samples. "
            f"Use fewer clients or a smaller minimum.{see('small-clients')}",
        )
        chosen = stream(seed, "partition/natural").choice(len(enough), clients, replace=False)
        return [enough[i] for i in sorted(chosen)]
