"""The columns of a table: what each holds, which features it becomes, how a client's numbers are made ready.

    number    one feature; missing values are filled, and a second feature says where they were
    date      a number: days since 1970
    flag      true/false, or numbers that are all 0 or 1: 1/0, not scaled; the same for missing values
    text      a feature for each text ("ward=east"); a missing text is a text of its own ("ward="). Of very many texts
              the most frequent have one each, and all others one together
    sentences text that is embedded, as asked for: as many features as the encoder gives ("note[0]")
    empty, left out    no feature

Which texts there are, and whether anything is missing, is the table's schema and the same for all clients. Numbers are
put to scale by the mean and standard deviation of all clients' samples ("pooled"), of each client's own ("own"), or not
at all ("raw"); always of training samples alone. What is missing becomes the pooled mean (a median of all clients could
not be had from sums, moments.py), or the client's own median.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...errors import SartorError, see
from .moments import Moments, columns_scale, moments, spread_of
from .sentences import WIDTH
from .summed_moments import summed_scale

WAYS = ("pooled", "own", "raw")
NUMBERS = ("number", "flag", "date")
MISSING = " is missing"
OTHER = " is another text"
_AT_ONCE = 1 << 22  # values that are looked at together


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    kind: str  # number, date, flag, text, sentences, empty or left out
    texts: tuple[str, ...] = ()  # of a text column: those with a feature of their own; of sentences: the encoder
    missing: bool = False  # of numbers and flags: some are missing
    other: bool = False  # of a text column: all other texts have one feature together

    @property
    def features(self) -> list[str]:
        """What its features are called."""
        if self.kind == "text":
            return [*(f"{self.name}={text}" for text in self.texts), *([self.name + OTHER] if self.other else [])]
        if self.kind == "sentences":
            return [f"{self.name}[{i}]" for i in range(WIDTH)]
        if self.kind in NUMBERS:
            return [self.name, self.name + MISSING] if self.missing else [self.name]
        return []


def places(columns: Sequence[Column]) -> dict[str, int]:
    """The first feature of each column that has any."""
    found, at = {}, 0
    for column in columns:
        if column.features:
            found[column.name] = at
        at += len(column.features)
    return found


def feature_names(columns: Sequence[Column]) -> tuple[str, ...]:
    """All features, in order."""
    return tuple(name for column in columns for name in column.features)


@dataclass(frozen=True, eq=False)
class Statistics:
    """What is put in place of missing values [m, k], then subtracted [m, k], then divided by [m, k].

    A row for each client, or one for all.
    """

    fill: np.ndarray
    centre: np.ndarray
    spread: np.ndarray

    def of(self, client: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A client's own [k] each; None: of one that took no part, for which the clients' are averaged."""
        if client is None:
            return self.fill.mean(0), self.centre.mean(0), self.spread.mean(0)
        at = 0 if len(self.fill) == 1 else client
        return self.fill[at], self.centre[at], self.spread[at]

    def take(self, ids: Sequence[int] | np.ndarray) -> Statistics:
        """Those of some clients."""
        if len(self.fill) == 1:
            return self
        rows = np.asarray(ids)
        return Statistics(self.fill[rows], self.centre[rows], self.spread[rows])


def ready(x: np.ndarray, own: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    """Samples [n, k] without missing values and to scale, in the type that they have."""
    fill, centre, spread = (values.astype(x.dtype) for values in own)
    out: np.ndarray = (np.where(np.isnan(x), fill, x) - centre) / spread
    return out


def learn(
    x: np.ndarray,
    train: Sequence[slice],
    columns: Sequence[Column],
    how: str,
    table: str = "the table",
    summed: bool = False,
) -> Statistics:
    """The statistics of samples [n, k], of which each client trains on a slice. `summed`: pooled ones are those that
    secure aggregation gives, of sums alone."""
    k, where = x.shape[1], places(columns)
    if how == "raw":
        for column in columns:
            if column.missing:
                count = int(x[:, where[column.name] + 1].sum())
                raise SartorError(
                    f"{table}: column {column.name} is missing in {count} of {len(x)} rows; raw columns are not "
                    f"imputed: take columns=own (--columns own), or fill it, or leave it out.{see('missing-values')}"
                )
        return Statistics(np.zeros((1, k)), np.zeros((1, k)), np.ones((1, k)))
    if how == "pooled":
        scale = summed_scale if summed else columns_scale
        return of_pooled(*scale(columns_moments(x, train, columns), numbers_at(columns).scaled), columns)
    numbers = numbers_at(columns)
    m, at, scaled = len(train), numbers.at, numbers.scaled
    found = Statistics(np.zeros((m, k)), np.zeros((m, k)), np.ones((m, k)))
    for i, part in enumerate(train):
        wide = max(1, _AT_ONCE // max(part.stop - part.start, 1))
        for some in np.array_split(np.arange(len(at)), -(-len(at) // wide) or 1):
            fill, mean, std = _describe(x[part][:, at[some]].astype(np.float64))
            found.fill[i, at[some]] = fill
            found.centre[i, at[some]] = np.where(scaled[some], mean, 0.0)
            found.spread[i, at[some]] = np.where(scaled[some], spread_of(mean, std), 1.0)
    return found


class Numbers(NamedTuple):
    """Features that hold numbers."""

    at: np.ndarray  # [c] which ones
    scaled: np.ndarray  # [c] not true/false, which stays 0 or 1


def numbers_at(columns: Sequence[Column]) -> Numbers:
    """Where a table's numbers stand."""
    where = places(columns)
    kinds = {where[c.name]: c.kind for c in columns if c.kind in NUMBERS}
    scaled = np.array([kind != "flag" for kind in kinds.values()], dtype=bool)
    return Numbers(np.array(list(kinds), dtype=np.int64), scaled)


def columns_moments(x: np.ndarray, train: Sequence[slice], columns: Sequence[Column]) -> Moments:
    """The moments [m, c] of each client's numbers, of which it trains on a slice of the samples [n, k]."""
    at, each = numbers_at(columns).at, []
    for part in train:
        wide = max(1, _AT_ONCE // max(part.stop - part.start, 1))
        pieces = [moments(x[part][:, some]) for some in np.array_split(at, -(-len(at) // wide) or 1)]
        each.append(Moments(*(np.concatenate(values, axis=1) for values in zip(*pieces, strict=True))))
    return Moments.joined(each)


def of_pooled(mean: np.ndarray, spread: np.ndarray, columns: Sequence[Column]) -> Statistics:
    """One row for all clients: numbers are centred and scaled by mean and spread [c]; what is missing is the mean."""
    k, (at, scaled) = len(feature_names(columns)), numbers_at(columns)
    found = Statistics(np.zeros((1, k)), np.zeros((1, k)), np.ones((1, k)))
    found.fill[0, at] = mean
    found.centre[0, at] = np.where(scaled, mean, 0.0)
    found.spread[0, at] = np.where(scaled, spread, 1.0)
    return found


def _describe(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Median, mean and standard deviation of each column [n, c], missing values left out; zeros where all are."""
    if not np.isnan(values).any():
        return np.median(values, axis=0), values.mean(axis=0), values.std(axis=0)
    out = np.zeros((3, values.shape[1]))
    for at, column in enumerate(values.T):
        there = column[~np.isnan(column)]
        if len(there):
            out[:, at] = np.median(there), there.mean(), there.std()
    return out[0], out[1], out[2]


def words(columns: Sequence[Column], how: str) -> list[str]:
    """A line for each column: what was done to it."""
    scale = {
        "own": "to scale by each client's own mean and standard deviation (training samples)",
        "pooled": "to scale by the mean and standard deviation of all clients' training samples",
        "raw": "as they are",
    }[how]
    filled = "all clients' mean" if how == "pooled" else "the client's own median"
    lines = []
    for column in columns:
        gap = f"; missing ones are {filled}, and a second feature says where" if column.missing else ""
        said = {
            "number": f"numbers, {scale}{gap}",
            "date": f"dates, as days since 1970, {scale}{gap}",
            "flag": f"true/false, as 1/0{gap}",
            "text": "text, a feature for each of "
            + (f"the {len(column.texts)} most frequent values, one for all others" if column.other else "")
            + ("" if column.other else f"{len(column.texts)} values")
            + ("; a missing one is a value of its own" if "" in column.texts else ""),
            "sentences": f"text, embedded by {''.join(column.texts)}; a missing one is zeros",
            "empty": "left out: all values are missing",
            "left out": "left out, as asked for",
        }[column.kind]
        lines.append(f"{column.name}: {said}")
    return lines


def grouped(lines: Sequence[str]) -> list[str]:
    """The same with columns beside each other to which the same was done: "age, dose: numbers, ..."."""
    same: dict[str, list[str]] = {}
    for line in lines:
        name, _, said = line.partition(": ")
        same.setdefault(said, []).append(name)
    return [f"{_some(names)}: {said}" for said, names in same.items()]


def _some(names: Sequence[str], most: int = 50) -> str:
    """Names with commas; of many the first."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
