"""FedAMP's collaboration: how much of every client's model goes into every other's, clients ordered by cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from .entries import Material
from .pieces import Chart, Section, Words, plain, short

MOST = 120  # clients up to which it is drawn


def section(material: Material) -> Section | None:
    """A heat map for each run that has such weights, of the first seed."""
    found = {e.name: e.runs[0].collaboration for e in material.entries if e.runs[0].collaboration is not None}
    small = {name: c for name, c in found.items() if c is not None and 2 <= len(c["names"]) <= MOST}
    if not found:
        return None
    title = "Who learns from whom"
    if not small:
        said = f"Weights between clients are in collaboration.json; they are drawn for 2 to {MOST} clients."
        return Section("collaboration", title, [Words(said, "soft")])
    variants: dict[str, dict[str, Any]] = {}
    rows: list[list[Any]] = []
    for name, about in small.items():
        weights = np.array(about["weights"], dtype=float)
        order = by_cluster(weights)
        names = [about["names"][i] for i in order]
        shown = weights[np.ix_(order, order)].astype(object)
        np.fill_diagonal(shown, None)  # its own, which would outshine the others
        variants[name] = _heat(shown.tolist(), names)
        rows += [[name, about["names"][i], about["names"][j], float(weights[i, j])] for i in order for j in order]
    chart = Chart(
        "collaboration",
        "How much of each client's model (columns) goes into what each client (rows) is sent. Clients that are alike "
        "stand together; what a client keeps of its own is left blank.",
        variants if len(variants) > 1 else {"": next(iter(variants.values()))},
        ["method", "client", "takes from", "weight"],
        rows,
        {"method": list(variants)} if len(variants) > 1 else {},
    )
    return Section("collaboration", title, [chart])


def by_cluster(weights: np.ndarray) -> list[int]:
    """The clients in an order in which those that weigh each other most are neighbours (average linkage)."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    m = len(weights)
    both = (weights + weights.T) / 2
    np.fill_diagonal(both, 0.0)
    apart = both.max() - both
    pairs = apart[np.triu_indices(m, 1)]
    if m < 3 or np.ptp(pairs) == 0:
        return list(range(m))
    return [int(i) for i in leaves_list(linkage(pairs, "average", optimal_ordering=True))]


def _heat(weights: list[list[Any]], names: list[str]) -> dict[str, Any]:
    ticks = [short(n, 12) for n in names]
    places = list(range(len(names)))
    full = [plain(n) for n in names]
    hover = [[f"{row} takes from {column}" for column in full] for row in full]
    trace: dict[str, Any] = {
        "type": "heatmap",
        "x": places,
        "y": places,
        "z": weights,
        "colorscale": "Cividis",
        "customdata": hover,
    }
    trace |= {"hovertemplate": "%{customdata}: %{z:.4f}<extra></extra>", "hoverongaps": False, "xgap": 1, "ygap": 1}
    trace["colorbar"] = {"thickness": 12, "title": {"text": "weight", "side": "right"}, "outlinewidth": 0}
    axis: dict[str, Any] = {"tickvals": places, "ticktext": ticks, "showgrid": False, "zeroline": False}
    slant = -45 if max(map(len, names)) > 3 else 0
    across = {**axis, "tickangle": slant, "title": {"text": "model of client"}}
    down = {**axis, "autorange": "reversed", "title": {"text": "goes to client"}}
    return {"data": [trace], "layout": {"xaxis": across, "yaxis": down}, "height": 430}
