"""Diagnostics over rounds: residuals, the Lagrangian, curvature, and whatever else a method says of itself."""

from __future__ import annotations

from typing import Any

from .curves import Value, over_seeds, room, traces
from .entries import Line, Material, by_attack, switched
from .pieces import Chart, Section, Words


def section(material: Material) -> Section:
    """A chart with a switch for the quantity; a sentence where there are none."""
    lines = [line for run in material.runs for line in run.history]
    names = list(dict.fromkeys(k for line in lines for k in line["diagnostics"]))
    if not names:
        none = "None: the methods have no such numbers, or they were switched off."
        return Section("diagnostics", "Diagnostics", [Words(none, "soft")])
    variants: dict[str, dict[str, Any]] = {}
    rows: list[list[Any]] = []
    scenes = by_attack(material.entries)
    for name in names:
        value = _of(name)
        found = [(e, over_seeds(e, value, room(len(material.entries) * len(names)))) for e in material.entries]
        points_of = {id(e): points for e, points in found}
        rows += [[e.name, name, p[0], *p[2:]] for e, points in found for p in points]
        values = [p[2] for _, points in found for p in points]
        spans = min(values) > 0 and max(values) > 30 * min(values)
        axis = {"title": {"text": _words(name)}, "type": "log" if spans else "linear", "exponentformat": "power"}
        for under, mine in scenes.items():
            each = [(e, points_of[id(e)]) for e in mine]
            data = [t for i, (e, p) in enumerate(each) for t in traces(e, i, p, "rounds", many=len(mine) > 4)]
            layout = {"xaxis": {"title": {"text": "rounds"}}, "yaxis": axis, "showlegend": len(material.entries) > 1}
            variants[f"{under}|{_words(name)}"] = {"data": data, "layout": layout}
    shown, switches = switched(variants, {"under": list(scenes), "quantity": [_words(name) for name in names]})
    chart = Chart(
        "diagnostics",
        "What methods say of themselves over rounds: how well clients' inner problems are solved, how far models are "
        "from where they are pulled, the curvature that a step size has to suit. Mean, maximum or norm over clients.",
        shown,
        ["method", "quantity", "round", "mean", "least over seeds", "most over seeds"],
        rows,
        switches,
    )
    return Section("diagnostics", "Diagnostics", [chart])


def _words(name: str) -> str:
    return name.replace("_", " ")


def _of(name: str) -> Value:
    def value(line: Line) -> float | None:
        found = line["diagnostics"].get(name)
        return None if found is None else float(found)

    return value
