"""Metrics that practitioners use: averaged over clients and pooled over samples, by client, calibration, confusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..judge.metrics import BEST_FIRST, SHOWN
from . import chart_style
from .entries import Material
from .pieces import Chart, Part, Section, Shown, Table, Words, plain, short
from .terminal import number, ranged

MOST = 100  # clients in the table; the CSV has all
ROOM = 20_000  # rows of numbers of clients
CLASSES = 30  # that a confusion matrix is drawn of
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
    if table["kind"] == "probabilities":
        parts.append(_calibration(table))
    if 0 < len(table["class_names"]) <= CLASSES and any(m["confusion"] for m in table["models"].values()):
        parts.append(_confusion(table))
    return Section("metrics", "Metrics", parts)


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
    rows = table["models"]["chosen"]["clients"][:MOST]
    cells = [[r["name"], r["samples"], *(Shown(number(r[n]), r[n]) for n in table["metrics"])] for r in rows]
    count = len(table["models"]["chosen"]["clients"])
    which = f"The chosen model of each client ({'the first ' if count > MOST else ''}{min(count, MOST)})"
    return Table(["client", "test samples", *_titles(table)], cells, id="client-metrics-table", summary=which)


def _by_client(table: Mapping[str, Any]) -> Chart:
    """A box of all clients for each model; a metric at a time."""
    variants: dict[str, Any] = {}
    for name, about in table["metrics"].items():
        data = []
        for model, found in _models(table).items():
            each = [(r["name"], r[name]) for r in found["clients"] if r[name] is not None]
            if not each:
                continue
            trace: dict[str, Any] = {"type": "box", "name": model, "x": [v for _, v in each], "boxpoints": "all"}
            trace |= {"y": [model] * len(each), "orientation": "h"}
            trace |= {"jitter": 0.5, "pointpos": 0, "customdata": [plain(n) for n, _ in each], "line": {"width": 1.5}}
            trace |= {"marker": {"color": chart_style.MODEL_MARKS[model]["color"], "size": 5}, "hoveron": "points"}
            trace |= {"fillcolor": "--soft 0.08", "hovertemplate": "%{customdata}: %{x:.3f}<extra></extra>"}
            data.append(trace)
        if not data:  # no client has a value
            continue
        better = "higher" if about["higher"] else "lower"
        axis = {"title": {"text": f"{about['title']} on test data (the {better} the better)"}}
        variants[about["title"]] = {"data": data, "layout": {"xaxis": axis, "showlegend": False}}
    rows = [
        [model, r["name"], r["samples"], *(r[n] for n in table["metrics"])]
        for model, found in _models(table, BEST_FIRST).items()
        for r in found["clients"]
    ][:ROOM]
    return Chart(
        "client-metrics",
        "Every client's value, by model: a point is a client, a box holds the middle half of them.",
        variants,
        ["model", "client", "test samples", *_titles(table)],
        rows,
        {"metric": list(variants)},
        height=260,
    )


def _calibration(table: Mapping[str, Any]) -> Chart:
    """How often predictions of some confidence are right."""
    line = {"color": "--soft", "width": 1, "dash": "dot"}
    data: list[dict[str, Any]] = [{"x": [0, 1], "y": [0, 1], "mode": "lines", "line": line, "name": "as sure as right"}]
    rows = []
    for model, found in _models(table).items():
        bins = found["reliability"] or []
        most = max((b["samples"] for b in bins), default=1)
        mark = {**chart_style.MODEL_MARKS[model], "size": [6 + 14 * (b["samples"] / most) ** 0.5 for b in bins]}
        colour = chart_style.MODEL_MARKS[model]["color"]
        dash = {"color": colour, "dash": chart_style.MODEL_DASHES[model], "width": 2}
        trace: dict[str, Any] = {"x": [b["confidence"] for b in bins], "y": [b["right"] for b in bins], "name": model}
        trace |= {"mode": "lines+markers", "marker": mark, "line": dash, "customdata": [b["samples"] for b in bins]}
        data.append(trace | {"hovertemplate": "%{x:.2f} sure, %{y:.2f} right, %{customdata} samples"})
        rows += [[model, *(b[k] for k in ("from", "to", "confidence", "right", "samples"))] for b in bins]
    least = max(0.0, min((min(row[3], row[4]) for row in rows), default=0.0) - 0.05)
    across, up = (
        {"title": {"text": text}, "range": [least, 1.02]}
        for text in ("probability of the predicted class", "share that is right")
    )
    axes = {"xaxis": across, "yaxis": up}
    return Chart(
        "calibration",
        "Calibration of the pooled test samples: below the dotted line a model is surer than it should be. A mark's "
        "area is the number of samples.",
        {"": {"data": data, "layout": axes}},
        ["model", "from", "to", "probability", "share right", "samples"],
        rows,
    )


def _confusion(table: Mapping[str, Any]) -> Chart:
    """Which classes are taken for which, of the pooled samples."""
    names = table["class_names"]
    found = {m: v["confusion"] for m, v in _models(table, BEST_FIRST).items() if v["confusion"] is not None}
    variants = {model: _heat(np.array(counts), names) for model, counts in found.items()}
    rows = [
        [model, names[i], names[j], int(counts[i][j])]
        for model, counts in found.items()
        for i in range(len(names))
        for j in range(len(names))
    ]
    return Chart(
        "confusion",
        "Confusions of the pooled test samples: how many of each class (rows) are predicted to be of each (columns). "
        "The shade is the share of the row.",
        variants if len(variants) > 1 else {"": next(iter(variants.values()))},
        ["model", "true class", "predicted class", "samples"],
        rows,
        {"model": list(variants)} if len(variants) > 1 else {},
    )


def _heat(counts: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    share = counts / np.maximum(1, counts.sum(1, keepdims=True))
    places = list(range(len(names)))
    trace: dict[str, Any] = {"type": "heatmap", "x": places, "y": places, "z": share.tolist(), "colorscale": "Cividis"}
    full = [plain(name) for name in names]
    hover = [
        [f"{row} taken for {column}: {counts[i, j]}" for j, column in enumerate(full)] for i, row in enumerate(full)
    ]
    trace |= {"customdata": hover, "hovertemplate": "%{customdata}<extra></extra>", "zmin": 0, "zmax": 1}
    trace |= {"text": counts.tolist(), "texttemplate": "%{text}", "xgap": 1, "ygap": 1}
    trace["colorbar"] = {"thickness": 12, "title": {"text": "share of the row", "side": "right"}, "outlinewidth": 0}
    axis: dict[str, Any] = {"tickvals": places, "ticktext": [short(n, 12) for n in names], "showgrid": False}
    axis["zeroline"] = False
    across = {**axis, "title": {"text": "predicted class"}}
    down = {**axis, "autorange": "reversed", "title": {"text": "true class"}}
    return {"data": [trace], "layout": {"xaxis": across, "yaxis": down}, "height": 190 + 34 * max(3, len(names))}


def _compared(metrics: Mapping[str, Sequence[Mapping[str, Any]]]) -> Section | None:
    """A row for each method and way: its chosen models, the mean over seeds."""
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
    return Section("metrics", "Metrics", [Table(["method", "", *titles], rows, id="metrics-table"), words, *said])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if len(known) == len(values) and known else None
