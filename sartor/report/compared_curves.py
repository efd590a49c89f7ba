"""The chosen models of several methods beside each other: their pooled ROC curves and calibration, a line a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import chart_style
from .class_charts import EACH, ROC_AXES, roc_trace
from .client_curves import Found, curve, diagonal, share_axis
from .pieces import Chart, plain


def charts(metrics: Mapping[str, Sequence[Found]]) -> list[Chart]:
    """Those that the runs' metrics.json have the numbers of, by method and seed."""
    return [chart for chart in (_roc(metrics), _calibration(metrics)) if chart is not None]


def _roc(metrics: Mapping[str, Sequence[Found]]) -> Chart | None:
    """Means over seeds: curves lie at the same rates."""
    data, rows = [diagonal("by chance")], []
    for place, (method, each) in enumerate(metrics.items()):
        chosen = [table["models"]["chosen"] for table in each if "chosen" in table["models"]]
        curves = [found for one in chosen if (found := curve(one, "roc"))]
        if not curves or len(curves) < len(each):
            continue
        rates, mean = each[0]["places"]["roc"], np.mean(curves, axis=0).round(4).tolist()
        area = float(np.mean([one["pooled"]["auroc"]["value"] for one in chosen]))
        data.append(roc_trace(rates, mean) | {"line": chart_style.line(place), "name": f"{plain(method)}: {area:.3f}"})
        rows += [[method, *point] for point in zip(rates, mean, strict=True)]
    if not rows:
        return None
    positive = _positive(metrics)
    said = "ROC of the chosen models on all clients' test samples, pooled, means over seeds, "
    said += f"{EACH if positive is None else f'for the class {positive}'}. The legend has AUROC."
    head = ["method", "false-positive rate", "sensitivity"]
    return Chart("roc", said, {"": {"data": data, "layout": ROC_AXES}}, head, rows, height=440, half=True)


def _calibration(metrics: Mapping[str, Sequence[Found]]) -> Chart | None:
    """Of the first seed: groups of other seeds lie elsewhere."""
    data, rows = [diagonal("as sure as right")], []
    for place, (method, each) in enumerate(metrics.items()):
        groups = curve(each[0]["models"].get("chosen", {}), "calibration")
        if not groups:
            continue
        x, y, n = (list(column) for column in zip(*groups, strict=True))
        trace: dict[str, Any] = {"x": x, "y": y, "customdata": n, "mode": "lines+markers", "name": plain(method)}
        trace |= {"line": chart_style.line(place), "marker": chart_style.marker(place)}
        data.append(trace | {"hovertemplate": "%{x:.2f} said, %{y:.2f} true, %{customdata} samples"})
        rows += [[method, *group] for group in groups]
    if not rows:
        return None
    positive = _positive(metrics)
    of = "the predicted class" if positive is None else plain(positive)
    axes = {"xaxis": share_axis(f"probability of {of}"), "yaxis": share_axis("share that comes true")}
    said = "Calibration of the chosen models on all clients' test samples, pooled, of the first seed, in groups of "
    said += "like probability: below the dotted line a model says more than comes true."
    head = ["method", "probability", "share", "samples"]
    return Chart("calibration", said, {"": {"data": data, "layout": axes}}, head, rows, height=440, half=True)


def _positive(metrics: Mapping[str, Sequence[Found]]) -> str | None:
    """The class that is found or not, where all have the same two."""
    named = {table["positive"] for each in metrics.values() for table in each}
    return named.pop() if len(named) == 1 else None
