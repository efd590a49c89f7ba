"""The skew that was made: how many samples of each class each client has, and its measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..data import describe
from .entries import Material
from .pieces import Chart, Section, Table, plain, short

MOST = 60  # clients that are drawn
ROOM = 20_000  # rows of numbers; data.json has all
MEASURES = {
    "clients": "clients",
    "samples": "samples",
    "size_min": "fewest samples of a client",
    "size_median": "median",
    "size_max": "most",
    "size_gini": "Gini coefficient of sizes (0: all alike)",
    "labels_per_client": "labels per client, mean",
    "label_entropy_mean": "label entropy, mean (0: one label, 1: all equally often)",
    "emd_mean": "distance to the common label shares, mean (0 to 2)",
    "emd_max": "the same, of the most special client",
}


def section(material: Material) -> Section | None:
    """Bubbles, label by client, or sizes where there are no labels; each way in which data were dealt out once."""
    named = _named(material)
    if not named:
        return None
    variants = {name: _bubbles(a) if "labels" in a else _sizes(a) for name, a in named.items()}
    rows = [row for a in named.values() for row in _rows(a)][:ROOM]
    chart = Chart(
        "skew",
        "Who has what: a bubble's area is the number of samples of a label (rows) at a client (columns), of the first "
        "seed."
        if any("labels" in a for a in named.values())
        else "Samples of each client, of the first seed.",
        variants if len(variants) > 1 else {"": next(iter(variants.values()))},
        ["data", "client", "label", "samples"],
        rows,
        {"data": list(variants)} if len(variants) > 1 else {},
        height=400,
    )
    table = [[words, *(a["measures"].get(k) for a in named.values())] for k, words in MEASURES.items()]
    table = [row for row in table if any(v is not None for v in row[1:])]
    heads = ["measure", *(named if len(named) > 1 else ["value"])]
    return Section("skew", "The skew of the data", [chart, Table(heads, table, summary="Its measures")])


def described(material: Material) -> list[str]:
    """Each way in which data were dealt out, in a sentence."""
    return [describe(about) for about in _named(material).values()]


def _named(material: Material) -> dict[str, dict[str, Any]]:
    """What is known of the data, of the first seed, by what they are and how they were dealt out."""
    known = [run.data for run in material.runs if run.data is not None and run.data.get("measures") is not None]
    found: dict[str, dict[str, Any]] = {}
    for about in known:
        found.setdefault(f"{about['source']}, {about['partition']['text']}", about)
    return found


def _labels(about: Mapping[str, Any]) -> list[str]:
    classes = int(about["classes"])
    return [str(n) for n in about.get("class_names") or range(classes)]


def _rows(about: Mapping[str, Any]) -> list[list[Any]]:
    if "labels" not in about:
        return [[about["source"], n, "", k] for n, k in zip(about["names"], about["samples"], strict=True)]
    return [
        [about["source"], name, label, count]
        for name, counts in zip(about["names"], about["labels"], strict=True)
        for label, count in zip(_labels(about), counts, strict=True)
        if count
    ]


def _note(about: Mapping[str, Any]) -> str:
    return f"The first {MOST} of {len(about['names'])} clients." if len(about["names"]) > MOST else ""


def _bubbles(about: Mapping[str, Any]) -> dict[str, Any]:
    labels, names = _labels(about), about["names"][:MOST]
    there = [(i, c, n) for i, row in enumerate(about["labels"][:MOST]) for c, n in enumerate(row) if n]
    most = max(n for _, _, n in there)
    marker = {"color": "--c0 0.65", "size": [n for _, _, n in there], "sizemode": "area", "sizemin": 1.5}
    marker |= {"sizeref": 2 * most / (26 if len(names) <= 20 else 14) ** 2, "line": {"width": 0}}
    hover = [f"{plain(names[i])}, label {plain(labels[c])}: {n}" for i, c, n in there]
    x, y = [i for i, _, _ in there], [c for _, c, _ in there]
    shape = {"mode": "markers", "customdata": hover, "hovertemplate": "%{customdata}<extra></extra>"}
    data = [{"type": "scatter", "x": x, "y": y, "marker": marker, "showlegend": False, **shape}]
    rows = {"tickvals": list(range(len(labels))), "ticktext": [short(v, 14) for v in labels], "zeroline": False}
    rows |= {"title": {"text": "label"}, "range": [-0.8, len(labels) - 0.2]}
    height = min(900, max(260, 120 + 26 * len(labels)))
    return {"data": data, "layout": {"xaxis": _clients(names), "yaxis": rows}, "height": height, "note": _note(about)}


def _sizes(about: Mapping[str, Any]) -> dict[str, Any]:
    names, sizes = about["names"][:MOST], about["samples"][:MOST]
    bars = {"type": "bar", "x": list(range(len(names))), "y": sizes, "marker": {"color": "--c0"}, "showlegend": False}
    layout = {"xaxis": _clients(names), "yaxis": {"title": {"text": "samples"}}}
    return {"data": [bars], "layout": layout, "note": _note(about)}


def _clients(names: list[str]) -> dict[str, Any]:
    every = max(1, len(names) // 30)
    places = list(range(0, len(names), every))
    long = max(len(n) for n in names) > 3
    axis: dict[str, Any] = {"tickvals": places, "ticktext": [short(names[i], 14) for i in places]}
    return axis | {"title": {"text": "client"}, "tickangle": -45 if long else 0, "zeroline": False}
