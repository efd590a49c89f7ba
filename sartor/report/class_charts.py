"""Charts of models that predict classes: ROC, calibration and confusions, pooled and of each client that one picks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..judge.metrics import BEST_FIRST, SHOWN
from . import chart_style
from .client_curves import Found, by_client, curve, diagonal, models_with, share_axis
from .pieces import Chart, plain, short
from .terminal import ranged

CLASSES = 30  # that a confusion matrix is drawn of
EACH = "mean over the classes that occur, each against the rest"
ROC_AXES = {"xaxis": share_axis("false-positive rate (1 − specificity)"), "yaxis": share_axis("sensitivity")}
_SURE = 1.959964  # of a normal distribution 95% lie within so many standard deviations


def roc(table: Found) -> Chart | None:
    """The share of positives that is found at each false-positive rate."""
    models, rates = models_with(table, "roc"), (table.get("places") or {}).get("roc", [])
    if not models:
        return None
    lines, bands, rows = [], [], []
    for model, found in models.items():
        low, high = curve(found, "roc_low"), curve(found, "roc_high")
        lines.append(_roc_line(model, rates, curve(found, "roc"), ranged(found["pooled"]["auroc"])))
        if model == "chosen" and low and high:
            bands.append(_band(rates, low, high, chart_style.MODEL_MARKS[model]["color"]))
        ends = zip(low or [None] * len(rates), high or [None] * len(rates), strict=True)
        rows += [
            [model, *point, *end] for point, end in zip(zip(rates, curve(found, "roc"), strict=True), ends, strict=True)
        ]

    def patch(model: str, row: Found) -> dict[str, Any] | None:
        own = curve(row, "roc")
        return None if own is None else {"y": [0, *own], "name": f"{model}: AUROC {row['auroc']:.3f}"}

    which = f"for the class {table['positive']}" if table["positive"] is not None else EACH
    said = f"ROC: {which}. The further above the dotted line, the better."
    return Chart(
        "roc",
        said + (" The band is a pointwise 95% bootstrap interval of the chosen models' curve." if bands else ""),
        {"": {"data": [diagonal("by chance"), *lines, *bands], "layout": ROC_AXES}},
        ["model", "false-positive rate", "sensitivity", "low", "high"],
        rows,
        height=440,
        half=True,
        clients=by_client(models, patch, ("ROC curve", "auroc"), 1, len(bands)),
    )


def _band(x: list[float], low: list[float], high: list[float], colour: str) -> dict[str, Any]:
    hidden = {"showlegend": False, "hoverinfo": "skip", "mode": "lines", "line": {"width": 0}}
    return {"x": x + x[::-1], "y": high + low[::-1], "fill": "toself", "fillcolor": f"{colour} 0.15", **hidden}


def _roc_line(model: str, rates: list[float], found: list[float], area: str) -> dict[str, Any]:
    line = {"color": chart_style.MODEL_MARKS[model]["color"], "dash": chart_style.MODEL_DASHES[model], "width": 2}
    return roc_trace(rates, found) | {"line": line, "name": f"{model}: AUROC {area}"}


def roc_trace(rates: list[float], found: list[float]) -> dict[str, Any]:
    """A curve that rises from 0 at a rate of 0."""
    return {"x": [0, *rates], "y": [0, *found], "mode": "lines", "hovertemplate": "%{y:.3f} found at %{x:.3f}"}


def calibration(table: Found) -> Chart | None:
    """How often something of some probability comes true; as runs had it before curves: the predicted class's."""
    if table["kind"] != "probabilities":
        return None
    models, two = models_with(table, "calibration"), table["positive"] is not None
    groups = {model: curve(found, "calibration") for model, found in models.items()}
    if not models:
        keys, two = ("confidence", "right", "samples"), False
        known = {m: table["models"][m]["reliability"] for m in SHOWN if m in table["models"]}
        groups = {m: [[b[k] for k in keys] for b in bins] for m, bins in known.items() if bins}
    if not groups:
        return None
    data = [diagonal("as sure as right"), *(_groups(model, bins) for model, bins in groups.items())]

    def patch(model: str, row: Found) -> dict[str, Any] | None:
        bins = curve(row, "calibration")
        return _points(model, bins) if bins else None

    clients = by_client(models, patch, ("calibration", "log-loss"), 1) if models else None
    titles = (
        (f"predicted probability of {plain(table['positive'])}", f"share that is {plain(table['positive'])}")
        if two
        else ("probability of the predicted class", "share that is right")
    )
    return Chart(
        "calibration",
        "Calibration, in groups of like probability: below the dotted line a model says more than comes true. A mark's "
        "area is the number of samples; whiskers are 95% (Wilson) intervals of the chosen model's shares.",
        {"": {"data": data, "layout": {"xaxis": share_axis(titles[0]), "yaxis": share_axis(titles[1])}}},
        ["model", "probability", "share", "samples"],
        [[model, *group] for model, bins in groups.items() for group in bins],
        height=440,
        half=True,
        clients=clients,
    )


def _points(model: str, bins: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Where the groups of a calibration lie, how large their marks are and, of the chosen model, how sure that is."""
    x, y, n = (list(column) for column in zip(*bins, strict=True))
    most = max(n)
    mark = {**chart_style.MODEL_MARKS[model], "size": [round(6 + 14 * (size / most) ** 0.5, 1) for size in n]}
    found: dict[str, Any] = {"x": x, "y": y, "customdata": n, "marker": mark}
    if model == "chosen":
        ends = [wilson(share, size) for share, size in zip(y, n, strict=True)]
        up, down = ([round(abs(end[i] - share), 4) for end, share in zip(ends, y, strict=True)] for i in (1, 0))
        whiskers = {"type": "data", "symmetric": False, "array": up, "arrayminus": down}
        found["error_y"] = {**whiskers, "thickness": 1, "width": 3, "color": mark["color"]}
    return found


def _groups(model: str, bins: Sequence[Sequence[float]]) -> dict[str, Any]:
    mark = chart_style.MODEL_MARKS[model]
    line = {"color": mark["color"], "dash": chart_style.MODEL_DASHES[model], "width": 1.5}
    hover = "%{x:.2f} said, %{y:.2f} true, %{customdata} samples"
    return {"mode": "lines+markers", "name": model, "line": line, "hovertemplate": hover, **_points(model, bins)}


def wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's score interval of a share of n."""
    square = _SURE**2 / n
    centre, half = share + square / 2, _SURE * math.sqrt(share * (1 - share) / n + square / (4 * n))
    return (centre - half) / (1 + square), (centre + half) / (1 + square)


def confusion(table: Found) -> Chart | None:
    """Which classes are taken for which."""
    names = table["class_names"]
    models = {m: table["models"][m] for m in BEST_FIRST if m in table["models"] and table["models"][m]["confusion"]}
    if not 0 < len(names) <= CLASSES or not models:
        return None
    lone = len(models) == 1
    variants = {"" if lone else m: _heat(np.array(found["confusion"]), names) for m, found in models.items()}
    clients = None
    if all("confusion" in row and "curves" in row for found in models.values() for row in found["clients"]):
        clients = {"" if lone else m: [_own_heat(row) for row in found["clients"]] for m, found in models.items()}
    rows = [
        [model, names[i], names[j], int(found["confusion"][i][j])]
        for model, found in models.items()
        for i in range(len(names))
        for j in range(len(names))
    ]
    return Chart(
        "confusion",
        "Confusions: how many test samples of each class (rows) are predicted to be of each (columns). The shade is "
        "the share of the row.",
        variants,
        ["model", "true class", "predicted class", "samples"],
        rows,
        {} if lone else {"model": list(models)},
        clients=clients,
    )


def _shares(counts: np.ndarray) -> list[list[float]]:
    found: list[list[float]] = (counts / np.maximum(1, counts.sum(1, keepdims=True))).round(3).tolist()
    return found


def _own_heat(row: Found) -> dict[str, Any]:
    if row["confusion"] is None:
        return {"data": [None], "note": f"{row['name']} has no confusions: no test samples, or no finite predictions."}
    return {"data": [{"z": _shares(np.array(row["confusion"])), "text": row["confusion"]}], "note": ""}


def _heat(counts: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    places, full = list(range(len(names))), [plain(name) for name in names]
    trace: dict[str, Any] = {"type": "heatmap", "x": places, "y": places, "z": _shares(counts)}
    trace |= {"colorscale": "Cividis", "zmin": 0, "zmax": 1, "text": counts.tolist(), "texttemplate": "%{text}"}
    trace |= {"customdata": [[f"{row} taken for {column}" for column in full] for row in full]}
    trace |= {"hovertemplate": "%{customdata}: %{text}<extra></extra>", "xgap": 1, "ygap": 1}
    trace["colorbar"] = {"thickness": 12, "title": {"text": "share of the row", "side": "right"}, "outlinewidth": 0}
    axis: dict[str, Any] = {"tickvals": places, "ticktext": [short(n, 12) for n in names], "showgrid": False}
    axis["zeroline"] = False
    across = {**axis, "title": {"text": "predicted class"}}
    down = {**axis, "autorange": "reversed", "title": {"text": "true class"}}
    return {"data": [trace], "layout": {"xaxis": across, "yaxis": down}, "height": 190 + 34 * max(3, len(names))}
