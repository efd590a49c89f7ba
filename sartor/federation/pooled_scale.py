"""One scale for all sites' numbers: each tells of its clients' columns how many values, their mean and their squares.

It is the one exchange between joining and the first round: which rows a client trains on depends on its number, which
is settled when all have joined. The target is one more column where it is a number. A site answers once in a run, of
at least so many rows of a client (limits.least_rows): of fewer it says nothing, and takes the others' scale. The
simulation computes the same bits (data/tables/moments.py). With secure aggregation only sums leave: masked_scale.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..data import Dataset
from ..data.dataset import Agreed
from ..data.inputs import Inputs
from ..data.partitions.label_blind import Natural
from ..data.tables.columns import numbers_at, of_pooled
from ..data.tables.moments import Moments, columns_scale, pooled
from ..run.complete import columns_of, target_of
from ..run.recipe import Recipe
from .rounds.messages import Damaged
from .table_schema import Schema
from .table_schema import columns_of as schema_columns

_LARGEST = 1e100  # a mean or spread; squares are its square
Scale = dict[str, Any]  # mean and spread of the columns, and of the target


def needed(recipe: Recipe, schema: Schema) -> bool:
    """Whether this run has anything to put to a common scale."""
    return _columns(recipe, schema) + _targets(recipe, schema) > 0


def widths(recipe: Recipe, schema: Schema) -> tuple[int, int]:
    """How many columns are put to scale, and how many targets."""
    return _columns(recipe, schema), _targets(recipe, schema)


def _columns(recipe: Recipe, schema: Schema) -> int:
    return len(numbers_at(schema_columns(schema)).at) if columns_of(recipe) == "pooled" else 0


def _targets(recipe: Recipe, schema: Schema) -> int:
    return int(schema["classes"] is None and target_of(recipe) == "pooled")


# --- at a site --------------------------------------------------------------------------------------------------------


def measured(table: Dataset, recipe: Recipe, schema: Schema, first: int, least: int) -> Moments:
    """What a site answers: [clients, columns], zeros where a client has fewer than `least` values."""
    _, order, bounds = table.deal(Natural(), None, recipe.seed, tuple(recipe.parts), recipe.minimum, first)
    each = []
    if _columns(recipe, schema):
        each.append(table.column_moments(order, bounds))
    if _targets(recipe, schema):
        each.append(table.target_moments(order, bounds))
    found = Moments(*(np.concatenate(parts, axis=1) for parts in zip(*each, strict=True)))
    enough = found.counts >= least
    return Moments(*(np.where(enough, v, 0.0) for v in found))


def given(recipe: Recipe, schema: Schema, scale: Any) -> Agreed | None:
    """The scale in a server's welcome; Damaged where it is none, or one that nothing can be divided by."""
    if not needed(recipe, schema):
        return None
    if not isinstance(scale, dict) or scale.keys() != {"mean", "spread", "target"}:
        raise Damaged("no scale")
    for name, wide in (("mean", _columns(recipe, schema)), ("spread", _columns(recipe, schema)), ("target", 2)):
        values = scale[name]
        if not isinstance(values, list) or len(values) != wide or not all(map(_is_number, values)):
            raise Damaged("a scale of other columns")
    if min([*scale["spread"], scale["target"][1]]) <= 0:
        raise Damaged("a spread that is not above zero")
    return Agreed(np.array(scale["mean"]), np.array(scale["spread"]), (scale["target"][0], scale["target"][1]))


def _is_number(value: Any) -> bool:
    return type(value) is float and math.isfinite(value) and abs(value) <= _LARGEST


# --- at the server ----------------------------------------------------------------------------------------------------


def checked(arrays: Mapping[str, np.ndarray], recipe: Recipe, schema: Schema, rows: Sequence[int]) -> Moments:
    """A site's answer; Damaged where it cannot be one of clients with so many training rows."""
    shape = (len(rows), _columns(recipe, schema) + _targets(recipe, schema))
    if arrays.keys() != set(Moments._fields):
        raise Damaged("other statistics than were asked for")
    if any(v.dtype != np.float64 or v.shape != shape for v in arrays.values()):
        raise Damaged("statistics of another shape")
    if not all(np.isfinite(v).all() for v in arrays.values()):
        raise Damaged("statistics hold NaN or Inf")
    found = Moments(**{k: np.array(v, dtype=np.float64) for k, v in arrays.items()})
    counts, most = found.counts, np.array(rows, dtype=np.float64)[:, None]
    if (counts < 0).any() or (counts > most).any() or (counts != np.round(counts)).any():
        raise Damaged("statistics of more rows than the site has, or of fewer than none")
    nothing = counts == 0
    if (found.means[nothing] != 0).any() or (found.squares[nothing] != 0).any() or (found.squares < 0).any():
        raise Damaged("statistics of no rows, or squares below zero")
    if (np.abs(found.means) > _LARGEST).any() or (found.squares > _LARGEST).any():
        raise Damaged("statistics that are too large")
    return found


def settled(each: Sequence[Moments], recipe: Recipe, schema: Schema) -> Scale:
    """The scale of all, in the order of clients."""
    whole, wide = Moments.joined(list(each)), _columns(recipe, schema)
    columns, target = (Moments(*(values[:, part] for values in whole)) for part in (slice(wide), slice(wide, None)))
    mean, spread = columns_scale(columns, numbers_at(schema_columns(schema)).scaled[:wide])
    of_target = [float(v[0]) for v in pooled(target)] if _targets(recipe, schema) else [0.0, 1.0]
    return {"mean": mean.tolist(), "spread": spread.tolist(), "target": of_target}


def inputs(scale: Scale | None, recipe: Recipe, schema: Schema, names: Sequence[str]) -> Inputs | None:
    """How samples are read for the global model, where that is the same at all sites; None where each has its own."""
    agreed, columns = given(recipe, schema, scale), schema_columns(schema)
    how = columns_of(recipe) if columns else "raw"
    if agreed is None or how == "own":
        return None
    classes = schema["classes"]
    statistics = of_pooled(agreed.mean, agreed.spread, columns) if how == "pooled" else None
    return Inputs(
        tuple(schema["shape"]),
        None if classes is None else len(classes),
        tuple(classes or ()),
        columns=columns,
        how=how,
        names=tuple(names),
        statistics=statistics,
        target_scale=agreed.target,
    )
