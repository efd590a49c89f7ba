"""Metrics that practitioners use: averaged over clients and pooled over samples, and by client; class_charts.py and
number_charts.py have the curves and confusions below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..judge.metrics import BEST_FIRST, SHOWN
from . import chart_style, class_charts, compared_curves, number_charts
from .entries import Material
from .pieces import Chart, Part, Picker, Section, Shown, Table, Words, plain
from .terminal import number, ranged

ROOM = 20_000  # rows of numbers of clients
POINTS = 500  # clients that are drawn each; of more only the box, without points
HOW = {"averaged": "averaged over clients", "pooled": "pooled over samples"}


def section(material: Material) -> Section | None:
    """Of a single run all of it, of a comparison a row for each method."""
    if material.comparison is not None:
        return _compared(material.metrics)
    tables = [table for each in material.metrics.values() for table in each]
    if len(tables) != 1:
        return None
    table = tables[0]
    parts: list[Part] = [_overview(table), *_said(table), _by_client(table), _clients(table)]
    found = [class_charts.roc(table), class_charts.calibration(table), class_charts.confusion(table)]
    found += [number_charts.fit(table), number_charts.residuals(table)]
    charts = [chart for chart in found if chart is not None]
    if any(chart.clients is not None for chart in charts):
        few = "A client's intervals are over its own test samples: of few they are too narrow, and of a value that no "
        parts += [_picker(table), Words(few + "resample changes (an accuracy of 1) they have no width.", "soft")]
    elif charts and table["clients"] > 1:
        parts.append(Words("Curves are of all clients' samples, pooled; this run has none by client.", "soft"))
    return Section("metrics", "Metrics", [*parts, *charts])


def _said(table: Mapping[str, Any]) -> list[Words]:
    """What the numbers are, and which are not there."""
    level, draws = f"{table['level']:.0%}", table["resamples"]
    text = (
        f"On {table['samples']} test samples of {table['clients']} clients. In brackets: {level} bootstrap intervals, "
    )
    text += f"averaged over clients ({draws['averaged']} resamples of clients) and pooled over samples "
    text += f"({draws['pooled']} resamples of each client's samples)."
    if table["positive"] is not None:
        text += f" Sensitivity, AUROC and AUPRC are of {table['positive']}."
    return [Words(text, "soft"), *(Words(f"{note}.", "soft") for note in table["notes"])]


def _models(table: Mapping[str, Any], order: Sequence[str] = SHOWN) -> dict[str, Any]:
    return {m: table["models"][m] for m in order if m in table["models"]}


def _titles(table: Mapping[str, Any]) -> list[str]:
    return [about["title"] for about in table["metrics"].values()]


def _overview(table: Mapping[str, Any]) -> Table:
    """A row for each metric, averaged and pooled beside each other for each model."""
    columns = {f"{model}, {how}": found[how] for model, found in _models(table, BEST_FIRST).items() for how in HOW}
    rows = [
        [about["title"], *(Shown(ranged(found[name]), found[name]["value"]) for found in columns.values())]
        for name, about in table["metrics"].items()
    ]
    return Table(["metric", *columns], rows, id="metrics-table")


def _clients(table: Mapping[str, Any]) -> Table:
    """The chosen model of each client."""
    rows = table["models"]["chosen"]["clients"]
    cells = [[r["name"], r["samples"], *(Shown(number(r[n]), r[n]) for n in table["metrics"])] for r in rows]
    return Table(
        ["client", "test samples", *_titles(table)],
        cells,
        id="client-metrics-table",
        summary=f"The chosen model of each client ({len(rows)})",
        find="client",
        pick="curves" in rows[0],
    )


def _picker(table: Mapping[str, Any]) -> Picker:
    """Each client's metrics by model; of the chosen one with intervals over its own samples."""
    models = _models(table, BEST_FIRST)
    chosen = table["models"]["chosen"]["clients"]
    titles = {name: about["title"] for name, about in table["metrics"].items()}
    ranges = [[(r.get("intervals") or {}).get(name) for name in titles] for r in chosen]
    reasons = [_reasons(r.get("missing") or {}, titles) for r in chosen]
    about = {
        "names": [r["name"] for r in chosen],
        "samples": [r["samples"] for r in chosen],
        "metrics": list(titles.values()),
        "models": list(models),
        "values": [[[r[name] for name in titles] for r in found["clients"]] for found in models.values()],
        "intervals": ranges,
        "missing": reasons,
    }
    head = [f"{m} [{table['level']:.0%} interval]" if m == "chosen" else m for m in models]
    return Picker(["metric", *head], about)


def _reasons(missing: Mapping[str, str], titles: Mapping[str, str]) -> str:
    """What a client lacks, and why: "Not defined: AUROC, AUPRC (one class only)."."""
    by_reason: dict[str, list[str]] = {}
    for name, why in missing.items():
        by_reason.setdefault(why, []).append(titles.get(name, name))
    said = [f"{', '.join(names)} ({why})" for why, names in by_reason.items()]
    return f"Not defined: {'; '.join(said)}." if said else ""


def _by_client(table: Mapping[str, Any]) -> Chart:
    """A box of all clients for each model; a metric at a time."""
    variants: dict[str, Any] = {}
    for name, about in table["metrics"].items():
        data = []
        for model, found in _models(table).items():
            each = [(r["name"], r[name]) for r in found["clients"] if r[name] is not None]
            if each:
                data.append(_box(model, each))
        if not data:  # no client has a value
            continue
        better = "higher" if about["higher"] else "lower"
        axis = {"title": {"text": f"{about['title']} on test data (the {better} the better)"}}
        variants[about["title"]] = {"data": data, "layout": {"xaxis": axis, "showlegend": False}}
    many = table["clients"] > POINTS
    rows = [
        [model, r["name"], r["samples"], *(r[n] for n in table["metrics"])]
        for model, found in _models(table, BEST_FIRST).items()
        for r in found["clients"]
    ][:ROOM]
    return Chart(
        "client-metrics",
        "Every client's value, by model: a point is a client, a box holds the middle half of them."
        + (" Of so many clients only the box is drawn, its whiskers from the lowest to the highest." if many else ""),
        variants,
        ["model", "client", "test samples", *_titles(table)],
        rows,
        {"metric": list(variants)},
        height=260,
    )


def _compared(metrics: Mapping[str, Sequence[Mapping[str, Any]]]) -> Section | None:
    """A row for each method and way: its chosen models, the mean over seeds; and their curves."""
    tables = [table for each in metrics.values() for table in each]
    kinds = {tuple(table["metrics"]) for table in tables if "chosen" in table["models"]}
    if not kinds:
        return None
    names = [n for n in max(kinds, key=len) if all(n in kind for kind in kinds)]
    titles = [next(table["metrics"][n]["title"] for table in tables) for n in names]
    rows = []
    for how in HOW:
        for method, each in metrics.items():
            values = [_mean([t["models"]["chosen"][how][n]["value"] for t in each]) for n in names]
            rows.append([method, HOW[how], *(Shown(number(v), v) for v in values)])
    words = Words("The chosen models on test data, means over seeds; intervals are in each run's metrics.json.", "soft")
    notes = dict.fromkeys(note for table in tables for note in table["notes"])
    said = [Words(f"{note}.", "soft") for note in list(notes)[:5]]
    table = Table(["method", "over", *titles], rows, id="metrics-table")
    return Section("metrics", "Metrics", [table, words, *said, *compared_curves.charts(metrics)])


def _box(model: str, each: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """A box of the clients' values, with a point for each where they are not too many."""
    values = [value for _, value in each]
    trace: dict[str, Any] = {"type": "box", "name": model, "orientation": "h", "line": {"width": 1.5}}
    trace |= {"marker": {"color": chart_style.MODEL_MARKS[model]["color"], "size": 5}, "fillcolor": "--soft 0.08"}
    if len(each) > POINTS:
        low, first, middle, third, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist()
        ends = {"lowerfence": [low], "q1": [first], "median": [middle], "q3": [third], "upperfence": [high]}
        return trace | ends | {"x": [middle], "y": [model]}
    trace |= {"x": values, "y": [model] * len(each), "boxpoints": "all", "jitter": 0.5, "pointpos": 0}
    trace |= {"customdata": [plain(name) for name, _ in each], "hoveron": "points"}
    return trace | {"hovertemplate": "%{customdata}: %{x:.3f}<extra></extra>"}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if len(known) == len(values) and known else None
