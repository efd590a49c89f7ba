"""From kept runs to the number of a cell, and from two numbers to a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ...data import Dominant, parse
from .cells import UNITS, PaperCell
from .experiment import Reading

AGREES, HIGHER, LOWER = "agrees", "ours higher", "ours lower"
OTHER_DATA, NOT_RUN, UNPRINTED = "data set not the same", "not run", "no printed number"
POINT = 0.01  # of accuracy: what counts as agreeing whatever the spread over seeds; for bytes, of the paper's number


class Value(NamedTuple):
    """A cell's number over seeds, in the unit of the paper."""

    mean: float | None  # None: no round within the budget, or the target was not reached
    std: float | None  # over seeds, of a sample; None for a single one
    seeds: int
    spread: float | None  # the standard deviation over clients, mean over seeds; in the unit of the paper
    loss: float | None
    loss_var: float | None
    round: float | None  # that was read, mean over seeds
    each: dict[str, float]  # of every seed that has a number
    more: Mapping[str, Mapping[str, float]] = MappingProxyType({})  # other measures of claims, of every seed


def where_in(run: Mapping[str, Any], model: str, reading: Reading, budget: float | None = None) -> int | None:
    """The place in the history that is read; None: there is none within the budget."""
    column = run["models"][model]
    spent = _bytes(run, reading)
    allowed = [i for i, r in enumerate(run["rounds"]) if r >= reading.first_round or i == len(run["rounds"]) - 1]
    allowed = [i for i in allowed if budget is None or spent[i] <= budget]
    if not allowed:
        return None
    if reading.round == "last":
        return allowed[-1]
    scores = column["validation"] if reading.round == "best" else column[_kind(reading)]
    known = [i for i in allowed if scores[i] is not None]
    return max(known, key=lambda i: (scores[i], -i)) if known else allowed[-1]  # no validation data: the last round


def one(run: Mapping[str, Any], cell: PaperCell, reading: Reading) -> dict[str, float | None] | None:
    """A run's numbers for a cell, as fractions and bytes; None: the method has no such model."""
    model = "oracle" if cell.model == "chosen" and reading.choice == "test" else cell.model
    if model not in run["models"]:
        return None
    column = run["models"][model]
    if cell.target is not None:
        reached = [i for i, v in enumerate(column[_kind(reading)]) if v is not None and v >= cell.target]
        at = reached[0] if reached else None
        return {"value": None if at is None else _bytes(run, reading)[at], "round": _round(run, at)}
    at = where_in(run, model, reading, cell.budget)
    if at is None:
        return {"value": None, "round": None}
    found = {k: column[k][at] for k in ("std", "loss", "loss_var")}
    return {"value": column[_kind(reading)][at], "round": _round(run, at), **found}


def measured(run: Mapping[str, Any], cell: PaperCell, reading: Reading, measure: str) -> float | None:
    """Another measure of a run, as a fraction: the spread of accuracy or the variance of losses over clients, or the
    training loss in the round that is read; over the curve of evaluated rounds the mean of training loss or accuracy
    (how fast it gets there), or the wobble: how much accuracy changes from one to the next in the second half; inside:
    of the weight that clients give to others, the share inside their group."""
    model = "oracle" if cell.model == "chosen" and reading.choice == "test" else cell.model
    column = run["models"].get(model)
    if column is None:
        return None
    if measure == "inside":
        return _inside(run)
    if measure in ("spread", "loss_var", "training_loss"):
        kept = column.get({"spread": "std", "training_loss": "training"}.get(measure, measure))
        at = where_in(run, model, reading, cell.budget)
        return None if at is None or kept is None else kept[at]
    curve = column.get("training") if measure == "training_curve" else column[_kind(reading)]
    if curve is None or None in curve:
        return None
    if measure == "wobble":
        late = np.abs(np.diff(curve[len(curve) // 2 :]))
        return float(late.mean()) if len(late) else None
    return float(np.mean(curve))


def _inside(run: Mapping[str, Any]) -> float | None:
    """The mean over clients of the share of their weight on others that is on clients of their group."""
    dealt = parse(run["recipe"]["partition"])
    if "weights" not in run or not isinstance(dealt, Dominant):
        return None
    xi = np.array(run["weights"], dtype=float)
    np.fill_diagonal(xi, 0.0)
    group = np.array([dealt.group(i, len(xi)) for i in range(len(xi))])
    given = xi.sum(axis=1)
    own = (xi * (group[:, None] == group[None, :])).sum(axis=1)
    return float(np.mean(own[given > 0] / given[given > 0])) if (given > 0).any() else None


def over_seeds(
    runs: Sequence[Mapping[str, Any]], cell: PaperCell, reading: Reading, measures: Iterable[str] = ()
) -> Value | None:
    """The mean over runs with different seeds, and other measures of each; None where the method has no such model."""
    found = [one(run, cell, reading) for run in runs]
    if not found or any(f is None for f in found):
        return None
    there = [f for f in found if f is not None]
    pairs = zip(runs, there, strict=True)
    scale = UNITS.get(cell.unit, 1.0)
    values = [f["value"] for f in there if f["value"] is not None]
    complete = len(values) == len(there)
    return Value(
        scale * float(np.mean(values)) if complete else None,
        scale * float(np.std(values, ddof=1)) if complete and len(values) > 1 else None,
        len(there),
        _mean(there, "std", scale),
        _mean(there, "loss"),
        _mean(there, "loss_var"),
        _mean(there, "round"),
        {str(run["recipe"]["seed"]): scale * f["value"] for run, f in pairs if f["value"] is not None},
        {name: each for name in measures if (each := _of_seeds(runs, cell, reading, name))},
    )


def _of_seeds(runs: Sequence[Mapping[str, Any]], cell: PaperCell, reading: Reading, name: str) -> dict[str, float]:
    values = {str(run["recipe"]["seed"]): measured(run, cell, reading, name) for run in runs}
    scale = 1.0 if "loss" in name or name == "training_curve" else UNITS.get(cell.unit, 1.0)
    return {seed: scale * value for seed, value in values.items() if value is not None}


def stored_value(row: Mapping[str, Any], which: str) -> Value:
    """The number that a row of a stored table has in a column ("" or "_authors")."""
    each, seeds = row[f"each{which}"], row[f"seeds{which}"]
    spread, loss, loss_var, at = (row.get(f"{key}{which}") for key in ("spread", "loss", "loss_var", "round"))
    more = dict(row.get(f"more{which}") or {})
    return Value(row.get(f"ours{which}"), row.get(f"std{which}"), seeds, spread, loss, loss_var, at, dict(each), more)


def together(first: Value, second: Value) -> Value:
    """The number over the seeds of both, which have none in common."""
    each = first.each | second.each
    values = list(each.values())
    complete = first.mean is not None and second.mean is not None
    n, m = first.seeds, second.seeds

    def mean(a: float | None, b: float | None) -> float | None:
        return None if a is None or b is None else (n * a + m * b) / (n + m)

    return Value(
        float(np.mean(values)) if complete else None,
        float(np.std(values, ddof=1)) if complete else None,
        n + m,
        mean(first.spread, second.spread),
        mean(first.loss, second.loss),
        mean(first.loss_var, second.loss_var),
        mean(first.round, second.round),
        each,
        {k: {**first.more[k], **second.more[k]} for k in first.more if k in second.more},
    )


def score(runs: Sequence[Mapping[str, Any]], model: str, reading: Reading, on: str) -> float | None:
    """What a grid's best is chosen by: the mean validation accuracy in the round that is read; an oracle takes the test
    accuracy. None where there is no such number."""
    found: list[float] = []
    for run in runs:
        name = model if model in run["models"] else next(iter(run["models"]), "")
        at = where_in(run, name, reading) if name else None
        value = None if at is None else run["models"][name]["validation" if on == "validation" else _kind(reading)][at]
        if value is None:
            return None
        found.append(value)
    return float(np.mean(found)) if found else None


def verdict(cell: PaperCell, value: Value | None) -> str:
    """What a number says about the paper's: equal within two standard deviations (ours or theirs) or a point."""
    if value is None:
        return NOT_RUN
    if cell.paper is None and cell.printed is None:
        return UNPRINTED
    if cell.differs is not None:
        return OTHER_DATA
    never = math.inf if cell.target is not None else -math.inf  # bytes that never suffice, an accuracy not to be had
    paper = never if cell.paper is None else cell.paper
    ours = never if value.mean is None else value.mean
    point = (
        POINT * cell.paper if cell.target is not None and cell.paper is not None else POINT * UNITS.get(cell.unit, 1.0)
    )
    if ours == paper or abs(ours - paper) <= max(2 * (value.std or 0.0), 2 * (cell.paper_std or 0.0), point) + 1e-12:
        return AGREES
    return HIGHER if ours > paper else LOWER


def _kind(reading: Reading) -> str:
    return "pooled" if reading.accuracy == "pooled" else "accuracy"


def _bytes(run: Mapping[str, Any], reading: Reading) -> list[float]:
    each = {"float64": 8}.get(run["recipe"].get("dtype", "float32"), 4) if reading.bytes == "floats" else 1
    return [b / each for b in run["bytes"]]


def _round(run: Mapping[str, Any], at: int | None) -> float | None:
    return None if at is None else float(run["rounds"][at])


def _mean(found: Sequence[Mapping[str, float | None]], key: str, scale: float = 1.0) -> float | None:
    values = [f.get(key) for f in found]
    return None if None in values else scale * float(np.mean([v for v in values if v is not None]))
