"""What a paper claims, held against the columns of a table: how often an order of methods comes out, and how far our
numbers are from the printed ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from .cells import UNITS, about, in_words, matches
from .experiment import HIGH, Claim, Experiment, Table, read
from .outputs import has_authors, name, number

# Cells that are the same in all of these, but for what an order is about, are compared with each other.
ALIKE = ("dataset", "partition", "network", "attack", "attackers", "drop", "budget", "model")
WHO = ("method", "aggregator", "lam")  # these too, where an order is not about methods
PRINTED = {"accuracy": "paper", "spread": "paper_spread"}  # a measure → the paper's number
POINTS = 2.0
SHOWN = 3  # cases that are named where an order does not come out
PAPER, WRITTEN, AUTHORS = "in the paper's own numbers", "as written", "with the authors' switches"


class Case(NamedTuple):
    """Cells that differ only in what an order is about: of each member the numbers, the member claimed best first."""

    name: str
    values: list[list[float]]
    each: Sequence[Sequence[Mapping[str, float]]] = ()  # the same of every seed; none where only means are known
    work: Sequence[Sequence[Sequence[float] | None]] = ()  # what each was given (work.Work), where it is known
    edge: Sequence[Sequence[bool]] = ()  # whether its best setting lies at an end of its grid

    def holds(self, lower: bool = False) -> bool:
        """Whether every number of a member is at least as good as every number of the next."""
        return all(gap(a, b, lower) >= 0 for a, b in zip(self.values, self.values[1:], strict=False))


def gap(first: Sequence[float], second: Sequence[float], lower: bool) -> float:
    """By how much the worst of the first is better than the best of the second."""
    return min(second) - max(first) if lower else min(first) - max(second)


def claims(experiment: Experiment) -> list[Claim]:
    """What the papers claim, then what the experiment asks itself."""
    told = [Claim.model_validate(c) for file in about(experiment) for c in file.get("claims", [])]
    return told + experiment.questions + _asked_here(experiment)


def _asked_here(experiment: Experiment) -> list[Claim]:
    """Claims of other experiments that are asked here with equal work."""
    return [claim for claim in _published(experiment.folder / "published") if claim.fair == experiment.name]


@cache
def _published(folder: Path) -> list[Claim]:
    """The claims of all papers that are asked with equal work elsewhere."""
    raw = [c for path in sorted(folder.glob("*.toml")) for c in read(path)[1].get("claims", [])]
    return [Claim.model_validate(c) for c in raw if "fair" in c]


def measures(experiment: Experiment) -> list[str]:
    """What its claims are about besides accuracy, and those of others that it asks with equal work."""
    asked = {m for claim in claims(experiment) for m in (claim.measure, *claim.also)}
    return sorted(asked - {"accuracy", "bytes"})  # which every cell has


def fallen(cells: Sequence[Mapping[str, Any]], claim: Claim, column: str) -> list[Mapping[str, Any]]:
    """Of a claim about how far numbers fall: the second of its two kinds of cells with the difference to the first as
    their accuracy, seed by seed. Of any other claim the cells themselves."""
    if not claim.fall:
        return list(cells)
    before, after = claim.fall
    keys = [k for k in (*ALIKE, *WHO, "label") if k not in {*before, *after}]
    starts = {tuple(str(c.get(k)) for k in keys): c for c in cells if matches(c, before)}
    found: list[Mapping[str, Any]] = []
    for cell in cells:
        start = starts.get(tuple(str(cell.get(k)) for k in keys)) if matches(cell, after) else None
        if start is not None and cell["unit"] in UNITS:
            which = _which(cell, column)
            first, then = start[f"each{which}"] or {}, cell[f"each{which}"] or {}
            found.append({**cell, f"each{which}": {s: then[s] - first[s] for s in then if s in first}})
    return found


def cases(cells: Sequence[Mapping[str, Any]], claim: Claim, order: Sequence[Table], column: str) -> list[Case]:
    """The cases in which every cell of an order has a number in this column, over the seeds that all of them have."""
    said = {key for member in order for key in member}
    keys = [k for k in (*ALIKE, *(() if said & {"method", "label"} else WHO)) if k not in said]
    found: dict[tuple[Any, ...], list[list[Mapping[str, Any]]]] = {}
    for cell in cells:
        for i, member in enumerate(order):
            if _is_asked(cell, claim.measure, column) and matches(cell, claim.of) and matches(cell, member):
                found.setdefault(tuple(cell.get(k) for k in keys), [[] for _ in order])[i].append(cell)
    out = []
    for key, members in found.items():
        seeds = set.intersection(*(_seeds(c, column) for cells in members for c in cells))
        values = [[_value(c, column, claim.measure, seeds) for c in cells] for cells in members]
        known = [[v for v in of_one if v is not None] for of_one in values]
        if all(k and len(k) == len(v) for k, v in zip(known, values, strict=True)):
            alike = {k: v for k, v in zip(keys, key, strict=True) if v is not None}
            each = [[_each(c, column, claim.measure) for c in cells] for cells in members]
            work = [[c["work"] for c in cells] for cells in members]
            edge = [[bool(c.get("edge")) for c in cells] for cells in members]
            out.append(Case(", ".join(in_words(alike)), known, each, work, edge))
    return out


def _is_asked(cell: Mapping[str, Any], measure: str, column: str) -> bool:
    """Whether a cell has numbers of this kind; bytes are asked only where an accuracy is reached."""
    if measure == "bytes":
        return cell["unit"] == "bytes" and bool(_seeds(cell, column))
    return cell["unit"] in UNITS


def _each(cell: Mapping[str, Any], column: str, measure: str) -> dict[str, float]:
    """A cell's number of every seed, as `_value` has their mean."""
    if column == PAPER:
        return {}
    which = _which(cell, column)
    accuracy: dict[str, float] = cell[f"each{which}"] or {}
    if measure == "bytes":  # in tenfolds: how many times more is a difference
        return {seed: math.log10(value) for seed, value in accuracy.items()}
    found = accuracy if measure == "accuracy" else (cell[f"more{which}"] or {}).get(measure, {})
    if not found and len(accuracy) == 1 and measure in ("spread", "loss_var") and cell[f"{measure}{which}"] is not None:
        found = dict.fromkeys(accuracy, cell[f"{measure}{which}"])  # one seed: the mean is its own
    return {seed: value / _unit(cell, measure) for seed, value in found.items()}


def _unit(cell: Mapping[str, Any], measure: str) -> float:
    return 1.0 if measure in ("loss_var", "training_loss", "training_curve", "bytes") else UNITS[cell["unit"]]


def _which(cell: Mapping[str, Any], column: str) -> str:
    """The ending of the fields that hold a column; where the authors' code does not differ, theirs is ours."""
    return "_authors" if column == AUTHORS and cell["verdict_authors"] is not None else ""


def _seeds(cell: Mapping[str, Any], column: str) -> set[str]:
    return set(cell[f"each{_which(cell, column)}"] or ())


def _value(cell: Mapping[str, Any], column: str, measure: str, seeds: set[str]) -> float | None:
    """A cell's number over these seeds, as a fraction (losses as they are)."""
    which, value = _which(cell, column), None
    if column == PAPER:
        value = cell[PRINTED[measure]] if measure in PRINTED else None
    elif (known := _each(cell, column, measure)) and seeds and seeds <= set(known):
        return mean(known[s] for s in seeds)
    elif seeds == _seeds(cell, column):  # of the others only the mean over all seeds is kept
        value = cell.get(f"{measure}{which}")
    return None if value is None else float(value) / _unit(cell, measure)


def our_columns(table: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Our columns, and what they are called."""
    return [(WRITTEN, WRITTEN), (AUTHORS, AUTHORS)] if has_authors(table) else [(WRITTEN, "ours")]


def judged(claim: Claim, table: Mapping[str, Any]) -> list[str]:
    """How often each order of a claim comes out, in words; nothing of what was not run."""
    columns = [(PAPER, PAPER), *our_columns(table)]
    what = "" if claim.measure == "accuracy" else f"{claim.measure.replace('_', ' ')} of "
    sign = " ≥ " if claim.measure in HIGH else " ≤ "
    sentences = []
    for order in claim.orders:
        found = [(word, cases(fallen(table["cells"], claim, column), claim, order, column)) for column, word in columns]
        if parts := [_counted(some, claim.measure, word) for word, some in found if some]:
            sentences.append(f"{what}{sign.join(map(_words, order))}: {'; '.join(parts)}.")
    return sentences


def _counted(found: Sequence[Case], measure: str, column: str) -> str:
    lower = measure not in HIGH
    not_so = [c for c in found if not c.holds(lower)]
    text = f"{column} in {len(found) - len(not_so)} of {len(found)} cases"
    if len(found[0].values) == 2 and not lower:
        text += f" ({100 * mean(gap(c.values[0], c.values[1], lower) for c in found):+.1f} points on average)"
    if column == PAPER or not 0 < len(not_so) <= SHOWN:
        return text
    return f"{text}, not in " + " nor ".join(f"{c.name} ({_numbers(c)})" for c in not_so)


def _numbers(case: Case) -> str:
    return ", ".join("/".join(f"{v:.3g}" for v in values) for values in case.values)


def _words(member: Table) -> str:
    def word(key: str, value: object) -> str:
        text = "/".join(map(str, value)) if isinstance(value, list) else str(value)
        return text if isinstance(value, str | list) else f"{key} = {text}"

    return " ".join(word(k, v) for k, v in member.items())


def distances(table: Mapping[str, Any]) -> str:
    """How far our numbers are from the printed ones, where the data are the same; "" where there are none."""
    parts = []
    for column, word in our_columns(table):
        which = "_authors" if column == AUTHORS else ""
        if found := list(_far(table, which)):
            near = sum(points <= POINTS for points, _ in found)
            points, cell = max(found, key=lambda f: f[0])
            ours, unit = cell[f"ours{which}"], cell["unit"]
            parts.append(
                f"{word}, {near} of {len(found)} are within {POINTS:g} points, the median distance is "
                f"{median(p for p, _ in found):.1f}, the largest {points:.1f} ({cell['row'] or name(cell)}: "
                f"{number(ours, unit)}, the paper {number(cell['paper'], unit)})"
            )
    return f"Distances from the printed numbers: {'; '.join(parts)}." if parts else ""


def _far(table: Mapping[str, Any], which: str) -> Iterator[tuple[float, Mapping[str, Any]]]:
    for c in table["cells"]:
        if c["unit"] in UNITS and c["differs"] is None and c["paper"] is not None and c[f"ours{which}"] is not None:
            yield abs(c[f"ours{which}"] - c["paper"]) * 100 / UNITS[c["unit"]], c
