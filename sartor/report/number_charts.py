"""Charts of models that predict numbers: fit and residuals, pooled and of each client that one picks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import chart_style
from .client_curves import Found, by_client, curve, diagonal, models_with
from .pieces import Chart


def fit(table: Found) -> Chart | None:
    """What is true against what was predicted, in groups of like prediction."""
    models = models_with(table, "fit")
    if not models:
        return None
    ends = [v for found in models.values() for group in curve(found, "fit") for v in group[:2]]
    data = [diagonal("as predicted", (min(ends), max(ends)))]
    for model, found in models.items():
        mark = chart_style.MODEL_MARKS[model]
        dash = {"color": mark["color"], "dash": chart_style.MODEL_DASHES[model], "width": 1.5}
        trace = {"mode": "lines+markers", "name": model, "line": dash, **_fit_points(model, curve(found, "fit"))}
        trace["hovertemplate"] = "%{x:.4g} predicted, %{y:.4g} true in the mean, %{customdata} samples"
        data.append(trace | {"marker": {**mark, "size": min(mark["size"], 10)}})

    def patch(model: str, row: Found) -> dict[str, Any] | None:
        return _fit_points(model, curve(row, "fit")) if curve(row, "fit") else None

    axes = {"xaxis": {"title": {"text": "predicted"}}, "yaxis": {"title": {"text": "true"}}}
    return Chart(
        "fit",
        "What is true against what was predicted: means of groups of like prediction. Whiskers: the standard deviation "
        "of what is true around the chosen model's predictions.",
        {"": {"data": data, "layout": axes}},
        ["model", "predicted", "true", "spread", "samples"],
        [[model, *group] for model, found in models.items() for group in curve(found, "fit")],
        half=True,
        clients=by_client(models, patch, ("fit", "rmse"), 1),
    )


def _fit_points(model: str, groups: Sequence[Sequence[float]]) -> dict[str, Any]:
    x, y, spread, n = (list(column) for column in zip(*groups, strict=True))
    found: dict[str, Any] = {"x": x, "y": y, "customdata": n}
    if model == "chosen":
        found["error_y"] = {"type": "data", "array": spread, "thickness": 1, "width": 3}
    return found


def residuals(table: Found) -> Chart | None:
    """How far off predictions are: the share of samples by residual, in the target's units."""
    models, edges = models_with(table, "residuals"), (table.get("places") or {}).get("residuals", [])
    if not models or len(edges) < 2:
        return None
    step = edges[1] - edges[0]
    x = [edges[0] - step / 2, *(edge + step / 2 for edge in edges)]  # those at the ends are all that lies beyond
    data, rows = [], []
    for model, found in models.items():
        mark, counts = chart_style.MODEL_MARKS[model], curve(found, "residuals")
        dash = {"color": mark["color"], "dash": chart_style.MODEL_DASHES[model], "width": 2, "shape": "hvh"}
        trace = {"x": x, "y": _shares(counts), "mode": "lines", "line": dash, "name": model}
        data.append(trace | {"hovertemplate": "around %{x:.4g}: %{y:.3f} of the samples"})
        rows += [[model, at, count] for at, count in zip(x, counts, strict=True)]

    def patch(model: str, row: Found) -> dict[str, Any] | None:
        counts = curve(row, "residuals")
        return {"y": _shares(counts)} if counts else None

    up = {"title": {"text": "share of samples"}, "rangemode": "tozero"}
    return Chart(
        "residuals",
        "Residuals, true − predicted, in the target's units: the share of samples around each value; the outermost "
        "have all that lies beyond.",
        {"": {"data": data, "layout": {"xaxis": {"title": {"text": "true − predicted"}}, "yaxis": up}}},
        ["model", "true − predicted, around", "samples"],
        rows,
        half=True,
        clients=by_client(models, patch, ("residuals", "rmse")),
    )


def _shares(counts: Sequence[int]) -> list[float]:
    return [round(count / max(1, sum(counts)), 4) for count in counts]
