"""Fairness: how good models are in the mean against how unevenly that is spread over clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..judge.metrics import BEST_FIRST, SHOWN
from . import chart_style
from .entries import Material, ReportEntry, by_attack, switched
from .pieces import Chart, Section, Shown, Table, Words, plain
from .terminal import number

SPREADS = {"loss": "variance of test losses over clients", "accuracy": "variance of test scores over clients"}
NAMES = ("pooled", "std", "var", "min", "worst10", "best10", "jain", "gini", "entropy")
HEADS = ("pooled mean", "std", "variance", "worst", "worst 10%", "best 10%", "Jain", "Gini", "entropy")


def section(material: Material) -> Section | None:
    """The scatter plot as the papers have it, and a table with more ways to say it."""
    parts: list[Chart | Table | Words] = []
    if (chart := _chart(material)) is not None:
        parts.append(chart)
    rows = _rows(material)
    if rows:
        parts.append(Table(["model" if material.comparison is None else "method", *HEADS], rows, id="fairness-table"))
        said = "Over benign clients. Pooled: over all test samples. All clients alike: Jain 1, Gini 0, entropy log n."
        parts.append(Words(said, "soft"))
    return Section("fairness", "How evenly accuracy is spread", parts) if parts else None


def _last(entry: ReportEntry, model: str) -> list[dict[str, Any]]:
    """The scores of a model at the end, of each seed; of runs that are summed up, in the reported round."""
    ends = [run.summary or run.history[-1] for run in entry.runs]
    return [end[model] for end in ends if end.get(model) is not None]


def _spread(found: dict[str, Any], of: str) -> float | None:
    if of == "loss":
        return found.get("loss_var")
    return None if found["accuracy_std"] is None else float(found["accuracy_std"]) ** 2


def _chart(material: Material) -> Chart | None:
    models = [m for m in BEST_FIRST if any(_last(e, m) for e in material.entries)]
    if not models:
        return None
    scenes, lone, rows = by_attack(material.entries), len(material.entries) == 1, list[list[Any]]()
    variants: dict[str, dict[str, Any]] = {}
    for under, mine in scenes.items():
        for place, entry in enumerate(mine):
            for model in models:
                for of in SPREADS:
                    each = [(f["accuracy_mean"], _spread(f, of)) for f in _last(entry, model)]
                    each = [(a, v) for a, v in each if a is not None and v is not None]
                    if not each:
                        continue
                    mean, spread = (float(np.mean(side)) for side in zip(*each, strict=True))
                    rows.append([entry.name, model, of, mean, spread, len(each)])
                    mark = {**chart_style.MODEL_MARKS[model], "size": 12} if lone else chart_style.marker(place, 12)
                    key = f"{under}|{'all' if lone else model}|{of}"
                    variant = variants.setdefault(key, {"data": [], "layout": _axes(of, material.score)})
                    variant["data"] += _marks(model if lone else plain(entry.brief), mark, each, (mean, spread))
    choices = {"under": list(scenes), "model": ["all"] if lone else models, "variance of": list(SPREADS)}
    shown, switches = switched(variants, choices)
    small = " Small marks are single seeds." if max(len(e.runs) for e in material.entries) > 1 else ""
    return Chart(
        "fairness",
        f"Up is better in the mean, left is fairer: the upper left corner is where one wants to be.{small}",
        shown,
        ["method", "model", "variance of", "mean", "variance", "seeds"],
        rows,
        switches,
    )


def _axes(of: str, score: str) -> dict[str, Any]:
    across = {"title": {"text": SPREADS[of]}, "rangemode": "tozero"}
    return {"xaxis": across, "yaxis": chart_style.scores(f"mean test {score}")}


def _marks(name: str, mark: dict[str, Any], each: Sequence[Any], mean: tuple[float, float]) -> list[dict[str, Any]]:
    """The mean over seeds, and small marks for the single ones."""
    shape: dict[str, Any] = {
        "mode": "markers",
        "name": name,
        "legendgroup": name,
        "hovertemplate": "%{y:.3f}, variance %{x:.4g}",
    }
    found = [{**shape, "x": [mean[1]], "y": [mean[0]], "marker": mark}]
    if len(each) > 1:
        single: dict[str, Any] = {"x": [v for _, v in each], "y": [a for a, _ in each], "showlegend": False}
        found.insert(0, {**shape, **single, "marker": {**mark, "size": 5, "opacity": 0.45}})
    return found


def _rows(material: Material) -> list[list[Any]]:
    """How accuracy is spread, a row for each method's chosen model, or for each model of a single run."""
    if material.comparison is None:
        ends = [run.summary for run in material.runs if run.summary is not None]
        named = [(m, end[m]) for end in ends for m in SHOWN if end.get(m) is not None]
    else:
        rows = material.comparison.rows()
        named = [(", ".join([r["method"], *r["scenario"].words()]), r["chosen"]) for r in rows if r["chosen"]]
    return [[name, *(_shown(f.get(f"accuracy_{k}")) for k in NAMES)] for name, f in named]


def _shown(value: float | None) -> Shown:
    return Shown(number(value), value)
