"""What every partition shares: the Assignment it returns, the checks of its settings, division into whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Protocol

import numpy as np

from ...errors import SartorError, need, positive, see

CLIENTS = 10  # how many clients there are when nobody says


@dataclass(frozen=True, eq=False)
class Assignment:
    """Who holds which rows of the data."""

    rows: list[np.ndarray]  # one array of row numbers per client
    noise: np.ndarray | None = None  # [m] standard deviation of the noise on each client's features
    names: list[str] | None = None  # what the clients are called; None: "0", "1", ...
    overlap: bool = False  # whether two clients may hold the same row
    left_out: int = 0  # natural clients that were not taken as they have too few samples
    too_small: list[str] | None = None  # their names, or some of them
    test: int | None = None  # test samples of every client; None: the share that is asked for


class Partition(Protocol):
    """A rule that deals samples out to clients: a frozen dataclass of settings with one function."""

    def assign(
        self, y: np.ndarray, classes: int | None, keys: np.ndarray | None, clients: int | None, seed: int, minimum: int
    ) -> Assignment:
        """Deal the n samples with labels `y` [n] and client keys `keys` [n] out; a pure function of its arguments."""
        ...


def whole(owner: str, **values: object) -> None:
    """Refuse every value that is not a whole number of at least 1."""
    for name, value in values.items():
        good = isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)
        need(good, f"{owner} needs {name} to be a whole number of at least 1; got {value!r}.")


def real(owner: str, **values: object) -> None:
    """Refuse every value that is not a finite number above zero, text and None included."""
    for name, value in values.items():
        good = isinstance(value, Real) and not isinstance(value, bool)
        need(good, f"{owner} needs {name} to be a number; got {value!r}.")
        positive(owner, **{name: float(value)})  # type: ignore[arg-type]  # a Real, as was just checked


def flag(owner: str, **values: object) -> None:
    """Refuse every value that is neither true nor false."""
    for name, value in values.items():
        need(isinstance(value, bool), f"{owner} needs {name} to be true or false; got {value!r}.")


def room(owner: str, n: int, clients: int | None, minimum: int, overlap: bool = False) -> int:
    """The number of clients; refuses when n samples cannot give each of them `minimum`."""
    m = CLIENTS if clients is None else clients
    whole(owner, clients=m, minimum=minimum)
    wanted = minimum if overlap else m * minimum
    if n < wanted:
        raise SartorError(
            f"{owner}: {m} clients with at least {minimum} samples each need {wanted} samples; the data have {n}. "
            f"Use fewer clients or a smaller minimum.{see('small-clients')}"
        )
    return int(m)


def labelled(owner: str, classes: int | None) -> int:
    """The number of classes; refuses data with real-valued targets."""
    if classes is None:
        raise SartorError(
            f"{owner} needs class labels; these data have real-valued targets. Use iid, quantity, noise or natural."
        )
    return classes


def held(owner: str, rows: Sequence[np.ndarray], minimum: int) -> None:
    """Refuse an outcome in which a client holds fewer than `minimum` samples."""
    sizes = [len(r) for r in rows]
    if min(sizes) < minimum:
        i = int(np.argmin(sizes))
        raise SartorError(
            f"{owner} with {len(rows)} clients leaves client {i} with {sizes[i]} samples; "
            f"at least {minimum} are wanted. Use fewer clients, a milder skew or a smaller minimum."
            + see("small-clients")
        )


def divide(weights: np.ndarray, total: int, floor: int = 0) -> np.ndarray:
    """Whole numbers that sum to `total`: `floor` each, the rest in proportion to `weights` by largest remainder."""
    rest = total - floor * len(weights)
    exact = rest * np.asarray(weights, dtype=np.float64) / np.sum(weights)
    counts: np.ndarray = np.floor(exact).astype(np.int64)
    short = rest - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:short]] += 1
    counts += floor
    return counts


def cut(rows: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
    """The first counts[0] rows, the next counts[1] rows, and so on."""
    pieces: list[np.ndarray] = np.split(rows[: int(counts.sum())], np.cumsum(counts)[:-1])
    return pieces
