"""What the sites' tables must have in common, and a site's own table brought to it.

Only names travel: columns, the texts of text columns, classes. Sites may have seen different texts and classes (a ward
that only one hospital has): the agreed table has them all. A column that one has and another has not is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..data import Clients, Dataset
from ..errors import SartorError, need

Schema = dict[str, Any]  # columns, features, shape, classes


def of(dataset: Dataset) -> Schema:
    """A table's schema."""
    return {
        "columns": _columns(dataset.feature_names),
        "features": list(dataset.feature_names),
        "shape": list(dataset.x.shape[1:]),
        "classes": None if dataset.classes is None else list(dataset.class_names),
    }


def _columns(features: Sequence[str]) -> dict[str, str]:
    """Each column's kind: a text column `c` has features "c=value"."""
    return {name.partition("=")[0]: "text" if "=" in name else "number" for name in features}


def agree(schemas: Mapping[str, Schema]) -> Schema:
    """One schema for all sites; refuses where they do not have the same columns."""
    first, model = next(iter(schemas.items()))
    for site, schema in schemas.items():
        compare(schema, model, f"site {site}", f"site {first}")
    texts: dict[str, set[str]] = {c: set() for c, kind in model["columns"].items() if kind == "text"}
    for schema in schemas.values():
        for name in schema["features"]:
            column, equals, value = name.partition("=")
            if equals:
                texts[column].add(value)
    features = [
        name
        for column in model["columns"]
        for name in ([f"{column}={v}" for v in sorted(texts[column])] if column in texts else [column])
    ]
    classes = None if model["classes"] is None else _sorted({c for s in schemas.values() for c in s["classes"]})
    shape = [len(features)] if features else model["shape"]
    return {"columns": model["columns"], "features": features, "shape": shape, "classes": classes}


def compare(schema: Schema, model: Schema, who: str, whose: str) -> None:
    """Refuse a table whose columns are not the model's, naming the column."""
    mine, theirs = schema["columns"], model["columns"]
    for column in [*theirs, *mine]:
        need(column in mine, f"the table of {who} has no column {column!r}, which that of {whose} has.")
        need(column in theirs, f"the table of {who} has a column {column!r}, which that of {whose} has not.")
        kinds = mine[column], theirs[column]
        need(kinds[0] == kinds[1], f"column {column!r} holds {kinds[0]} at {who} and {kinds[1]} at {whose}.")
    need(
        (schema["classes"] is None) == (model["classes"] is None),
        f"the target is {_target(schema)} at {who} and {_target(model)} at {whose}.",
    )
    good = bool(mine) or schema["shape"] == model["shape"]
    need(good, f"a sample has shape {schema['shape']} at {who} and {model['shape']} at {whose}.")


def _target(schema: Schema) -> str:
    return "a number" if schema["classes"] is None else "a class"


def _sorted(classes: set[str]) -> list[str]:
    """Numbers by size, else by the alphabet: as one table with all rows would have them."""
    try:
        return sorted(classes, key=int)
    except ValueError:
        return sorted(classes)


def fitted(dataset: Dataset, schema: Schema, who: str) -> Dataset:
    """A site's table with the agreed columns and classes."""
    own = of(dataset)
    compare(own, schema, who, "the federation")
    for name in own["features"]:  # which text it is stays here: a refusal is sent to the server
        there = name in schema["features"]
        need(there, f"column {name.partition('=')[0]!r} of {who} holds a text that was not agreed on.")
    x = dataset.x
    if own["features"] != schema["features"]:
        x = np.zeros((len(dataset), len(schema["features"])), dtype=dataset.x.dtype)
        x[:, [schema["features"].index(name) for name in own["features"]]] = dataset.x
    if schema["classes"] is None:
        return replace(dataset, x=x, feature_names=tuple(schema["features"]))
    for name in own["classes"]:
        need(name in schema["classes"], f"the target of {who} has a class that was not agreed on.")
    numbers = np.array([schema["classes"].index(name) for name in own["classes"]], dtype=np.int64)
    known = replace(dataset, x=x, feature_names=tuple(schema["features"]), classes=len(schema["classes"]))
    return replace(known, y=numbers[dataset.y], class_names=tuple(schema["classes"]))


def among(own: Clients, first: int, m: int, total: int, largest: int) -> Clients:
    """A site's clients as the numbers `first`, ... of a federation of m, whose other clients' samples are not here.

    The others have as many training samples as makes the federation's total and its largest client right: who knows
    one other's number would know too much. Their rows lie beyond the end.
    """
    counts = own.counts("train")
    rest = total - int(counts.sum())
    bounds = np.full((m, 4), len(own.x), dtype=np.int64)
    bounds[first : first + len(own)] = own.bounds
    for i in [*range(first), *range(first + len(own), m)]:
        here = min(rest, largest)
        bounds[i, 1:] += here
        rest -= here
    if rest != 0:
        raise SartorError("the server's count of training samples does not match this site's.")
    names = [str(i) for i in range(m)]
    names[first : first + len(own)] = own.names
    return Clients(own.x, own.y, bounds, names, own.classes, own.about)


def unseen(
    schema: Schema, counts: np.ndarray, names: list[str], dtype: torch.dtype, about: dict[str, object]
) -> Clients:
    """The federation as its server knows it: how many samples each client has [m, 3], and nothing of what they are."""
    ends = 1 + np.cumsum(counts).reshape(-1, 3)
    bounds = np.column_stack([ends[:, 0] - counts[:, 0], ends])
    classes = None if schema["classes"] is None else len(schema["classes"])
    y = torch.zeros(1, dtype=dtype if classes is None else torch.int64)
    return Clients(torch.zeros(1, *schema["shape"], dtype=dtype), y, bounds, names, classes, about)


def stand_in(clients: Clients) -> Clients:
    """Clients with samples of zeros, to find out what messages will look like."""
    x, y = clients.x.expand(6, *clients.x.shape[1:]).clone(), clients.y.expand(6).clone()
    bounds = np.tile(np.array([[0, 2, 4, 6]]), (len(clients), 1))
    return Clients(x, y, bounds, clients.names, clients.classes, clients.about)
