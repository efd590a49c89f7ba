"""What the sites' tables must have in common, and a site's own table brought to it.

Only names travel: columns, the texts of text columns, whether numbers are missing, classes. Sites may have seen
different texts and classes (a ward that only one hospital has): the agreed table has them all. A column that one has
and another has not is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from ..data import Clients, Dataset
from ..data.tables.columns import NUMBERS, Column, feature_names, places
from ..errors import SartorError, need, readable
from .rounds.messages import Damaged

Schema = dict[str, Any]  # columns, shape, classes
_KINDS = (*NUMBERS, "text", "sentences", "empty")
_WIDEST = 100_000  # columns, texts and classes that one site may bring
_LONGEST = 1_000  # characters of a name


def of(dataset: Dataset) -> Schema:
    """A table's schema. Whether numbers are missing is part of it, how many is not."""
    return {
        "columns": [asdict(c) | {"texts": list(c.texts)} for c in dataset.columns if c.kind != "left out"],
        "shape": list(dataset.x.shape[1:]),
        "classes": None if dataset.classes is None else list(dataset.class_names),
    }


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """A schema's columns."""
    return tuple(Column(**c | {"texts": tuple(c["texts"])}) for c in schema["columns"])


def checked(found: Any) -> Schema:
    """A schema that somebody else sent; Damaged where it is none, or would make everybody's table very wide."""
    if not isinstance(found, dict) or found.keys() != {"columns", "shape", "classes"}:
        raise Damaged("no columns")
    columns, shape, classes = found["columns"], found["shape"], found["classes"]
    if not isinstance(columns, list) or not all(map(_is_column, columns)):
        raise Damaged("a column is not described")
    if not isinstance(shape, list) or not all(type(n) is int and 0 < n < _WIDEST for n in shape):
        raise Damaged("a sample has no shape")
    if classes is not None and not _are_texts(classes):
        raise Damaged("classes are not named")
    names = [c["name"] for c in columns]
    if len(set(names)) < len(names) or len(classes or []) + sum(1 + len(c["texts"]) for c in columns) > _WIDEST:
        raise Damaged("too many columns, texts or classes, or one column twice")
    return found


def _is_column(found: Any) -> bool:
    good = isinstance(found, dict) and found.keys() == {"name", "kind", "texts", "missing", "other"}
    good = good and type(found["missing"]) is bool and type(found["other"]) is bool
    good = good and found["kind"] in _KINDS and _are_texts([found["name"]]) and _are_texts(found["texts"])
    return good and (found["kind"] != "sentences" or len(found["texts"]) == 1)


def _are_texts(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(text, str) and len(text) <= _LONGEST for text in found)


def width(schema: Schema) -> int:
    """How many features a sample has."""
    return len(feature_names(columns_of(schema))) or math.prod(schema["shape"])


def agree(schemas: Mapping[str, Schema]) -> tuple[Schema, dict[str, str]]:
    """One schema for most sites, and why the others have another: a site that differs from most is left out."""
    others: dict[str, str] = {}
    while True:
        there = {site: schema for site, schema in schemas.items() if site not in others}
        first, model = max(there.items(), key=lambda entry: sum(not _differs(s, entry[1]) for s in there.values()))
        apart = {site: _differs(schema, model, site, f"site {first}") for site, schema in there.items()}
        if not any(apart.values()):
            each = [{c.name: c for c in columns_of(schema)} for schema in there.values()]
            columns = [_agreed([own[c["name"]] for own in each]) for c in model["columns"]]
            whole = {
                **model,
                "columns": [asdict(c) for c in columns],
            }  # also of what one without values cannot be held to
            apart = {site: _differs(schema, whole, site, "the others") for site, schema in there.items()}
        if not any(apart.values()):
            break
        others |= {site: why for site, why in apart.items() if why}
    classes = None if model["classes"] is None else _sorted({c for s in there.values() for c in s["classes"]})
    shape = [len(feature_names(columns))] if columns else model["shape"]
    full = {"columns": [asdict(c) | {"texts": list(c.texts)} for c in columns], "shape": shape, "classes": classes}
    return full, others


def _differs(schema: Schema, model: Schema, site: str = "", whose: str = "") -> str:
    """Why a table is not like the model's; empty where it is."""
    try:
        compare(schema, model, f"site {site}", whose)
    except SartorError as e:
        return readable(str(e), 300)
    return ""


def _agreed(same: Sequence[Column]) -> Column:
    """One column as the sites have it: all texts; where a site has no values at all, the others' kind."""
    kinds = {c.kind for c in same} - {"empty"}
    gaps = any(c.kind == "empty" or c.missing for c in same)
    if not kinds:
        return same[0]
    if "text" in kinds:
        texts = {t for c in same for t in c.texts} | ({""} if any(c.kind == "empty" for c in same) else set())
        return Column(same[0].name, "text", tuple(sorted(texts)), other=any(c.other for c in same))
    if "sentences" in kinds:
        return next(c for c in same if c.kind == "sentences")
    kind = next(k for k in ("date", "number", "flag") if k in kinds)
    return Column(same[0].name, kind, missing=gaps)


def compare(schema: Schema, model: Schema, who: str, whose: str) -> None:
    """Refuse a table whose columns are not the model's, naming the column."""
    mine, theirs = ({c["name"]: _kind(c["kind"]) for c in s["columns"]} for s in (schema, model))
    encoders = [{c["name"]: c["texts"][0] for c in s["columns"] if c["kind"] == "sentences"} for s in (schema, model)]
    for column in [*theirs, *mine]:
        need(column in mine, f"the table of {who} has no column {column!r}, which that of {whose} has.")
        need(column in theirs, f"the table of {who} has a column {column!r}, which that of {whose} has not.")
        kinds = mine[column], theirs[column]
        good = kinds[0] == kinds[1] or "empty" in kinds
        need(good, f"column {column!r} holds {kinds[0]} at {who} and {kinds[1]} at {whose}.")
        by = [encoder[column] for encoder in encoders if column in encoder]
        need(len(set(by)) <= 1, f"column {column!r} is embedded by {by[:1]} at {who} and by {by[1:]} at {whose}.")
    need(
        (schema["classes"] is None) == (model["classes"] is None),
        f"the target is {_target(schema)} at {who} and {_target(model)} at {whose}.",
    )
    good = bool(mine) or schema["shape"] == model["shape"]
    need(good, f"a sample has shape {schema['shape']} at {who} and {model['shape']} at {whose}.")


def _kind(kind: str) -> str:
    return "number" if kind == "flag" else kind


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
    columns = columns_of(schema)
    known = replace(dataset, x=_features(dataset, columns, who), columns=columns) if columns else dataset
    if schema["classes"] is None:
        return known
    for name in own["classes"]:
        need(name in schema["classes"], f"the target of {who} has a class that was not agreed on.")
    numbers = np.array([schema["classes"].index(name) for name in own["classes"]], dtype=np.int64)
    known = replace(known, classes=len(schema["classes"]), class_names=tuple(schema["classes"]))
    return replace(known, y=numbers[dataset.y])


def _features(dataset: Dataset, columns: Sequence[Column], who: str) -> np.ndarray:
    """[n, k] the agreed features of a site's samples."""
    wanted = feature_names(columns)
    for name in dataset.feature_names:  # which text it is stays here: a refusal is sent to the server
        need(name in wanted, f"column {name.partition('=')[0]!r} of {who} holds a text that was not agreed on.")
    x = np.zeros((len(dataset), len(wanted)), dtype=dataset.x.dtype)
    x[:, [wanted.index(name) for name in dataset.feature_names]] = dataset.x
    for column, at in places(columns).items():
        agreed = next(c for c in columns if c.name == column)
        if next(c.kind for c in dataset.columns if c.name == column) == "empty":
            if agreed.kind == "text":
                x[:, wanted.index(f"{column}=")] = 1.0
            elif agreed.kind in NUMBERS:
                x[:, at], x[:, at + 1] = np.nan, 1.0
    return x


def among(own: Clients, first: int, m: int, total: int, largest: int) -> Clients:
    """A site's clients as the numbers `first`, ... of a federation of m, whose other clients' samples are not here.

    The others have as many training samples as makes the federation's total and its largest client right: who knows
    one other's number would know too much. Their rows lie beyond the end.
    """
    counts = own.counts("train")
    need(first + len(own) <= m, "the server's count of clients does not match this site's.")
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
