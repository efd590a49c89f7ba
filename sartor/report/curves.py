"""Curves: accuracy and loss against rounds and megabytes, and over rounds what methods say of themselves (residuals,
the Lagrangian, curvature). A line for each method or model, with bands over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..judge.metrics import BEST_FIRST
from . import chart_style
from .entries import Line, Material, ReportEntry, by_attack, switched
from .pieces import Chart, Section, Words, plain

AGAINST = ("rounds", "megabytes")
ROOM = 5_000  # points of all lines of a chart together
Value = Callable[[Line], float | None]


def section(material: Material) -> Section | None:
    """Both charts; None where nothing was scored."""
    charts = [
        _chart(material.entries, "accuracy", f"mean test {material.score}"),
        _chart(material.entries, "loss", "mean test loss"),
    ]
    there = [c for c in charts if c is not None]
    return Section("curves", "As training goes on", there) if there else None


def room(lines: int) -> int:
    """How many points each of so many lines may have, so that a page stays small; history.jsonl has all."""
    return max(12, ROOM // max(1, lines))


def over_seeds(entry: ReportEntry, value: Value, most: int) -> list[tuple[int, float, float, float, float]]:
    """(round, megabytes, mean, least, most over seeds) in rounds that all seeds have: of many some, and the last."""
    rounds = sorted(set.intersection(*(set(lines) for lines in entry.by_round)))
    step = -(-len(rounds) // most)
    found = []
    for at in rounds[::-1][::step][::-1] if rounds else []:
        lines = [seed[at] for seed in entry.by_round]
        values = [v for line in lines if (v := value(line)) is not None]
        if len(values) == len(lines):
            spent = sum(line["bytes_up"] + line["bytes_down"] for line in lines) / len(lines) / 1e6
            found.append((at, spent, sum(values) / len(values), min(values), max(values)))
    return found


def traces(
    entry: ReportEntry, place: int, points: Sequence[Any], against: str, reach: float = 0.0, many: bool = False
) -> list[dict[str, Any]]:
    """A line with its band, of the points that `over_seeds` gives; of a method that sends nothing, against megabytes,
    its last value as far as `reach`."""
    if not points:
        return []
    x = [p[1] if against == "megabytes" else p[0] for p in points]
    name = plain(entry.brief)
    shape: dict[str, Any] = {"type": "scatter", "legendgroup": name, "name": name}
    if against == "megabytes" and max(x) == 0:
        last = points[-1][2]
        dots = {**chart_style.line(place), "dash": "dot"}
        return [{**shape, "x": [0, reach or 1], "y": [last, last], "mode": "lines", "line": dots}]
    found = [
        {
            **shape,
            "x": x,
            "y": [p[2] for p in points],
            "mode": "lines+markers",
            "line": chart_style.line(place),
            "marker": chart_style.marker(place, 6),
        }
    ]
    if len(entry.runs) > 1:
        edge = {"x": x + x[::-1], "y": [p[4] for p in points] + [p[3] for p in reversed(points)]}
        hidden = {"showlegend": False, "hoverinfo": "skip", "mode": "lines", "line": {"width": 0}}
        found.insert(0, {**shape, **edge, **hidden, "fill": "toself", "fillcolor": chart_style.shade(place, many)})
    return found


def _of(model: str, measure: str) -> Value:
    return lambda line: (line.get(model) or {}).get(f"{measure}_mean")


def _chart(entries: Sequence[ReportEntry], measure: str, title: str) -> Chart | None:
    """With several entries a line for each and a switch for the model; with one a line for each model."""
    most = room(len(entries) * len(BEST_FIRST))
    found = {(m, id(e)): over_seeds(e, _of(m, measure), most) for m in BEST_FIRST for e in entries}
    models = [m for m in BEST_FIRST if any(found[m, id(e)] for e in entries)]
    if not models:
        return None
    rows: list[list[Any]] = [[e.name, m, *point] for e in entries for m in models for point in found[m, id(e)]]
    reach = max(float(row[3]) for row in rows)
    scenes, lone = by_attack(entries), len(entries) == 1
    variants: dict[str, dict[str, Any]] = {}
    for under, mine in scenes.items():
        for model in ["all"] if lone else models:
            for against in AGAINST:
                if lone:
                    each = [(m, found[m, id(mine[0])]) for m in models]
                    data = [t for m, points in each for t in _by_model(mine[0], m, points, against, reach)]
                else:
                    lines = [(e, found[model, id(e)]) for e in mine]
                    many = len(mine) > 4
                    data = [t for i, (e, p) in enumerate(lines) for t in traces(e, i, p, against, reach, many)]
                scale = chart_style.scores(title) if measure == "accuracy" else _wide(title, [row[4] for row in rows])
                across = {"title": {"text": "megabytes up and down, all clients" if against != "rounds" else against}}
                variants[f"{under}|{model}|{against}"] = {"data": data, "layout": {"xaxis": across, "yaxis": scale}}
    seeds = max(len(e.runs) for e in entries)
    said = f" The band reaches from the worst to the best of {seeds} seeds." if seeds > 1 else ""
    said += " A method that sends nothing is a dotted line against megabytes." if reach and not lone else ""
    head = ["method", "model", "round", "megabytes", "mean", "least over seeds", "most over seeds"]
    choices = {"under": list(scenes), "model": ["all"] if lone else models, "against": AGAINST}
    shown, switches = switched(variants, choices)
    return Chart(measure, f"{title[0].upper()}{title[1:]} over clients.{said}", shown, head, rows, switches)


def _by_model(
    entry: ReportEntry, model: str, points: Sequence[Any], against: str, reach: float
) -> list[dict[str, Any]]:
    """The lines of one model, with the model's look."""
    found, mark = traces(entry, 0, points, against, reach), chart_style.MODEL_MARKS[model]
    for trace in found:
        trace |= {"name": model, "legendgroup": model}
        if "fill" in trace:
            trace["fillcolor"] = f"{mark['color']} 0.15"
        else:
            trace["line"] = {"color": mark["color"], "dash": chart_style.MODEL_DASHES[model], "width": 2}
            trace["marker"] = {**mark, "size": 7}
    return found


def _wide(title: str, values: Sequence[float]) -> dict[str, Any]:
    """An axis of positive numbers; logarithmic where they span much."""
    spans = min(values) > 0 and max(values) > 30 * min(values)
    return {"title": {"text": title}, "type": "log" if spans else "linear"}


# --- diagnostics ------------------------------------------------------------------------------------------------------


def diagnostics(material: Material) -> Section:
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
        value = _diagnostic(name)
        found = [(e, over_seeds(e, value, room(len(material.entries) * len(names)))) for e in material.entries]
        points_of = {id(e): points for e, points in found}
        rows += [[e.name, name, p[0], *p[2:]] for e, points in found for p in points]
        values = [p[2] for _, points in found for p in points]
        axis = _wide(_words(name), values) | {"exponentformat": "power"}
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


def _diagnostic(name: str) -> Value:
    def value(line: Line) -> float | None:
        found = line["diagnostics"].get(name)
        return None if found is None else float(found)

    return value
