"""What the files hold that runs, comparisons, tunings and repeated experiments leave, field by field.

A folder may have been cut off, mended by hand or made by somebody else: whoever reads one says what it must hold
(`read_json(path, SUMMARY)`), and a field of another type is one clear line. Fields that nobody reads are not named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from ..data.clients import PARTS
from ..data.tables.columns import WAYS
from ..judge.choice import SHARES
from ..judge.metrics import MODELS, ORACLE
from ..judge.prediction_metrics import NUMBERS, PROBABILITIES, SCORES

# Clients trained; the minibatch gradients that they evaluated (see Stack.gradients); those of fine-tuning that the
# personal models of the last evaluation took (they are made anew for each evaluation, so a sum would say nothing);
# answers left out as they hold NaN or Inf, clients not reached, late answers; rounds in which nobody answered.
COUNTS = ("trained", "steps", "finetune_steps", "excluded", "dropped", "late", "skipped")
Whole = Annotated[int, Field(ge=0, lt=2**63)]
Number = Annotated[float, Field(ge=-1e100, le=1e100)]  # means and variances of such are finite, too
Numbers = dict[str, Number | None]


def _each(kind: Any, *names: str) -> dict[str, Any]:
    return dict.fromkeys(names, kind)


def _list(kind: Any) -> Any:
    return list[kind]


def _by_name(kind: Any) -> Any:
    return dict[str, kind]


def _checked(kind: Any, check: Callable[[Any], Any]) -> Any:
    return Annotated[kind, AfterValidator(check)]


def _table(name: str, fields: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> Any:
    """A JSON object with these fields, of which the optional ones may be missing."""
    given = {k: (kind, None) for k, kind in (optional or {}).items()} | {k: (kind, ...) for k, kind in fields.items()}
    return create_model(name, **given)  # type: ignore[call-overload]


def _having(*names: str) -> Callable[[Numbers], Numbers]:
    def check(found: Numbers) -> Numbers:
        if lacking := [name for name in names if found.get(name) is None]:
            raise ValueError(f"there is no {lacking[0]}")
        return found

    return check


def _naming(*names: str) -> Callable[[Numbers], Numbers]:
    """Numbers that are said to be known or not."""

    def check(found: Numbers) -> Numbers:
        if lacking := [name for name in names if name not in found]:
            raise ValueError(f"there is no {lacking[0]}")
        return found

    return check


def _even(found: BaseModel) -> BaseModel:
    """Lists with an entry for each client have the same length, and every row of numbers one for each column."""
    given = {k: v for k, v in found if v is not None}
    each = {len(given[k]) for k in ("names", "samples", "labels", "weights") if k in given}
    wide = given.get("classes", 0) if "labels" in given else len(given["names"])
    rows = {len(row) for row in (*given.get("labels", []), *given.get("weights", []))}
    called = {len(given["class_names"])} if given.get("class_names") and "labels" in given else set()
    if len(each) > 1 or (rows | called) - {wide}:
        raise ValueError("its lists have different lengths")
    return found


def _measured(found: Numbers) -> Numbers:
    """The sizes of clients and, where there are labels, all that is measured of those."""
    sizes = ("samples", "clients", "size_min", "size_median", "size_max", "size_gini")
    labels = ("labels_per_client", "label_entropy_mean", "emd_mean", "emd_max")
    return _having(*sizes, *(labels if "emd_mean" in found else ()))(found)


def _dealt(found: BaseModel) -> BaseModel:
    """Where the skew was measured, it is known of what."""
    given = dict(found)
    if given["measures"] is not None and (given["source"] is None or given["partition"] is None):
        raise ValueError("it measures data of which it does not say how they were dealt out")
    return _even(found)


def _ended(found: BaseModel) -> BaseModel:
    """A run that ended says what it took; of one that failed, only why is known."""
    given = dict(found)
    needed = ["clients", "hostile", "report", "reported_round", "bytes_up", "bytes_down", "seconds", "stopped", *COUNTS]
    needed += ["budget"] if given["stopped"] == "budget" else []
    needed += ["rounds_to_target"] if given["bytes_to_target"] is not None else []
    if given["error"] is None and (lacking := [name for name in needed if given[name] is None]):
        raise ValueError(f"there is no {lacking[0]}")
    return found


def _accounted(found: BaseModel) -> BaseModel:
    """Where something was sent, it is known with how much noise."""
    given = dict(found)
    if given["compositions"] and None in (given["noise"], given["sampling_rate"]):
        raise ValueError("there is no noise, or no sampling rate")
    return found


def _tabled(found: BaseModel) -> BaseModel:
    """Every model is one that there can be, and has a value of every metric; every client has a number or nothing of
    each metric, and the clients are the same for all models. Matrices and curves have the sizes that they should."""
    given = dict(found)
    size, places = len(given["class_names"]), given["places"] or {}
    clients: list[str] | None = None
    for model, table in given["models"].items():
        if model not in MODELS:
            raise ValueError(f"there is no model {model!r}")
        own = dict(table)
        for name in given["metrics"]:
            if name not in own["averaged"] or name not in own["pooled"]:
                raise ValueError(f"there is no {name} of the {model} model")
        rows = [dict(row) for row in own["clients"]]
        for row in rows:
            numbers = [row.get(name, "") for name in given["metrics"]]
            if not all(v is None or (isinstance(v, int | float) and abs(v) <= 1e100) for v in numbers):
                raise ValueError(f"a client of the {model} model lacks a metric")
        for one in (own, *rows):
            if one["confusion"] is not None and {len(one["confusion"]), *map(len, one["confusion"])} != {size}:
                raise ValueError("a confusion matrix is not of its classes")
            if one["curves"] is not None and not _placed(dict(one["curves"]), places):
                raise ValueError("a curve does not lie at its places")
        names = [row["name"] for row in rows]
        if (clients := names if clients is None else clients) != names:
            raise ValueError("its models are of different clients")
    return found


def _placed(curves: Mapping[str, Any], places: Mapping[str, Any]) -> bool:
    """Whether curves have a number for each of their places, and groups what they should have."""
    known = {k: len(places.get("roc", ())) for k in ("roc", "roc_low", "roc_high")}
    known |= {"residuals": len(places.get("residuals", ())) + 1}
    groups = (("calibration", 3), ("fit", 4))
    even = all(len(group) == wide for name, wide in groups for group in curves[name] or ())
    return even and all(curves[name] is None or len(curves[name]) == count for name, count in known.items())


def _alike(found: BaseModel) -> BaseModel:
    """A record has a number of each kind for each of its rounds."""
    given = dict(found)
    columns = [given["bytes"], *(column for model in given["models"].values() for _, column in model)]
    if any(len(column) != len(given["rounds"]) for column in columns):
        raise ValueError("its lists have different lengths")
    return found


# --- one run ----------------------------------------------------------------------------------------------------------

_KNOWN = _checked(Numbers, _having("accuracy_mean", "loss_mean"))
_BLOCK = _checked(_KNOWN, _naming("accuracy_std", "accuracy_worst10", "loss_var"))  # None where only means are known
_BLOCKS = _each(_BLOCK | None, *MODELS)
_UNSEEN = _table("unseen", _BLOCKS | _each(Whole, "clients", "steps"))
_PRIVACY = _table(
    "privacy",
    {
        **_each(Number | None, "epsilon", "clip", "noise", "sampling_rate"),
        **_each(str, "neighbouring", "where"),
        "delta": Number,
        "compositions": Whole,
    },
)
_PROMISE = _checked(_PRIVACY, _accounted)
_SUMMARY = _table(
    "summary",
    {
        **_each(str, "method", "attack"),
        **_each(Whole, "rounds", "seed"),
        **_each(str | None, "aggregator", "compress", "compress_down", "stopped"),
        **_each(Whole | None, "budget", "bytes_up", "bytes_down", "rounds_to_target", "bytes_to_target"),
        **_each(Number | None, "attackers", "seconds", "accuracy_per_megabyte", "target_accuracy"),
        **_BLOCKS,
        "warnings": list[str],
    },
    {
        **_each(str, "data", "partition", "model", "report", "error", "metric", "reference"),
        **_each(Whole | None, "clients", "cohort", "hostile", "reported_round", "parameters", *COUNTS),
        **_each(Number | None, "drop", "stragglers"),
        ORACLE: _BLOCK | None,
        "gradients_per_client": Numbers | None,
        "local_steps": Whole | None,
        "own_work": str | None,
        "personal_model": str | None,
        "choice": dict[str, Whole] | None,
        "unseen": _UNSEEN | None,
        "privacy": _PROMISE | None,
    },
)
SUMMARY = _checked(_SUMMARY, _ended)
_CLIENT = _table(
    "client",
    {
        **_each(Whole, *PARTS),
        **_each(bool, "hostile", "unseen"),
        "name": str,
        "chosen": Annotated[str, Field(pattern=f"^({'|'.join(SHARES)})$")],
        **_each(Number | None, "chosen_test_accuracy", "chosen_test_loss"),
    },
    _each(Number | None, *(f"{m}_{p}_{s}" for m in MODELS for p in PARTS for s in ("loss", "accuracy"))),
)
CLIENTS = _list(_CLIENT)
_LINE = _table(
    "line",
    {
        **_each(Whole, "round", "bytes_up", "bytes_down"),
        **_BLOCKS,
        "seconds": Number,
        "diagnostics": dict[str, Number],
        "warnings": list[str],
    },
    {**_each(Whole, *COUNTS), "validation": Number | None, "training": dict[str, Number]},
)
HISTORY = _list(_LINE)
_BEST = _table("best", {"round": Whole, "value": Number, "scores": list[str]})
CHECKPOINT = _table(
    "checkpoint",
    {
        **_each(Whole, "round", "bytes_up", "bytes_down", "silent"),
        "settings": str,
        "seconds": Number,
        "most": Whole | None,
        "counts": _table("counts", _each(Whole, *COUNTS)),
        "history": HISTORY,
    },
    {"best": _BEST, "sartor": str},
)
_MEASURES = _checked(Numbers, _measured)
_DATA = _table(
    "data",
    {"classes": Whole | None, "names": list[str], "samples": list[Whole]},
    {
        "source": str,
        "partition": _table("partition", _each(str, "name", "text")),
        "measures": _MEASURES,
        "labels": list[list[Whole]],
        **_each(list[str], "class_names", "too_small"),
        "overlap": bool,
        "left_out": Whole,
    },
)
DATA = _checked(_DATA, _dealt)
_COLUMN = _table(
    "column",
    {
        "name": str,
        "kind": Annotated[str, Field(pattern="^(number|date|flag|text|sentences|empty|left out)$")],
        "texts": list[str],
        "missing": bool,
    },
    {"other": bool} | _each(list[Number], "fill", "centre", "spread"),
)
INPUTS = _table(
    "inputs",
    {
        "shape": list[Whole],
        "classes": Whole | None,
        "ends": list[Number] | None,
        "target": str | None,
        "images": list[list[Number]] | None,
        "how": Annotated[str, Field(pattern=f"^({'|'.join(WAYS)})$")],
        "columns": _list(_COLUMN),
        **_each(list[str], "class_names", "names"),
    },
    {"target_scale": list[Number]},
)
_MEASURED = _table("measured", {"value": Number | None, **_each(Number | None, "low", "high")}, {"clients": Whole})
_BIN = _table("bin", {"from": Number, "to": Number, "confidence": Number, "right": Number, "samples": Whole})
_GROUP = Annotated[list[Number], Field(min_length=3, max_length=4)]  # of a calibration or a fit
_CURVES = _table(
    "curves",
    {},
    {
        **_each(list[Number] | None, "roc", "roc_low", "roc_high"),
        **_each(_list(_GROUP) | None, "calibration", "fit"),
        "residuals": list[Whole] | None,
    },
)
_OF_CLIENT = create_model(  # beside these a number for each metric
    "metrics of a client",
    __config__=ConfigDict(extra="allow"),
    name=(str, ...),
    samples=(Whole, ...),
    confusion=(list[list[Whole]] | None, None),
    curves=(_CURVES, None),
    missing=(dict[str, str], None),
    intervals=(_by_name(Annotated[list[Number], Field(min_length=2, max_length=2)]), None),
)
_OF_MODEL = _table(
    "metrics of a model",
    {
        **_each(_by_name(_MEASURED), "averaged", "pooled"),
        "confusion": list[list[Whole]] | None,
        "reliability": _list(_BIN) | None,
        "clients": _list(_OF_CLIENT),
    },
    {"curves": _CURVES},
)
_METRICS = _table(
    "metrics",
    {
        "kind": Annotated[str, Field(pattern=f"^({PROBABILITIES}|{SCORES}|{NUMBERS})$")],
        "metrics": _by_name(_table("metric", {"title": str, "higher": bool})),
        "class_names": list[str],
        "positive": str | None,
        **_each(Whole, "clients", "samples"),
        "level": Number,
        "resamples": dict[str, Whole],
        "notes": list[str],
        "models": _by_name(_OF_MODEL),
    },
    {"places": _by_name(list[Number])},
)
METRICS = _checked(_METRICS, _tabled)
_DECISION = _table("decision", {"name": str, **_each(Number, "scale", "shift"), "threshold": Number | None})
DECISIONS = _table("decisions", {"calibrate": str, "threshold": str, "clients": _list(_DECISION)})
COLLABORATION = _checked(_table("collaboration", {"names": list[str], "weights": list[list[Number]]}), _even)

# --- many runs --------------------------------------------------------------------------------------------------------

COMPARED = _list(SUMMARY)
_CELL = _table("cell", _each(str, "folder", "method", "attack", "aggregator") | {"seed": Whole, "attackers": Number})
PLAN = _table(
    "plan",
    {
        "methods": list[str],
        "seeds": list[Whole],
        "settings": dict[str, dict[str, Any]],
        "recipe": dict[str, Any],
        "cells": _list(_CELL),
    },
    {"references": list[str]},
)
_UNDER = {"attack": str, "attackers": Number}
_INTERVAL = _table(
    "interval", _UNDER | {"method": str, "seeds": Whole} | _each(Number | None, "accuracy", "low", "high")
)
_PAIR = _table(
    "pair",
    _UNDER | _each(str, "a", "b") | _each(Number, "mean", "effect", "p", "p_holm") | _each(Whole, "n", "zeros"),
)
SIGNIFICANCE = _table("significance", {"intervals": _list(_INTERVAL), "pairs": _list(_PAIR)})
_TRIAL = _table(
    "trial", {"settings": dict[str, Any], "score": Number | None, "error": str | None}, {"gradients": Number | None}
)
_TUNED = _table("tuned", {"trials": _list(_TRIAL), "best": _TRIAL | None}, {"fixed": dict[str, Any]})
_BASE = _table("base", {"recipe": dict[str, Any], "seeds": list[Whole]})
TUNING = _table("tuning", {"base": _BASE, "methods": _by_name(_TUNED)})

# --- repeated experiments ---------------------------------------------------------------------------------------------

_PRINTED = _table(
    "printed",
    _each(Number | None, "paper", "ours", "ours_authors") | _each(str | None, "unit", "method"),
    {
        **_each(Number | None, "std", "attackers"),
        **_each(str | None, "row", "dataset", "partition", "model", "attack", "aggregator"),
        **_each(str | None, "verdict", "verdict_authors"),
    },
)
EXPERIMENT = _table(
    "experiment",
    _each(str, "title", "paper", "where") | {"counts": dict[str, Whole], "cells": _list(_PRINTED)},
)
_COLUMNS = _table("columns", _each(list[Number | None], "accuracy", "loss", "std", "loss_var"))
_RECORD = _table(
    "record",
    {"recipe": dict[str, Any], "rounds": list[Whole], "bytes": list[Number], "models": _by_name(_COLUMNS)},
    {"warnings": list[str], "weights": list[list[Number]]},
)
RECORD = _checked(_RECORD, _alike)
