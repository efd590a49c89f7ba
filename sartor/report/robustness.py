"""The robustness plot: accuracy of benign clients against the share of attackers, a panel for each attack and a line
for each method with its aggregator. As a chart for the page, and as PNG (with matplotlib, the extra `plots`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import chart_style
from .entries import Material
from .pieces import Chart, Section, plain


class Line(NamedTuple):
    """The accuracy of one method with one aggregator under one attack."""

    name: str  # "fedavg+median"
    colour: int  # the method's place, and so its colour
    dash: int  # the aggregator's
    points: list[tuple[float, float]]  # share of attackers, mean accuracy of the chosen models
    spread: list[float]  # at each point, the standard deviation over seeds


def panels(rows: Sequence[dict[str, Any]]) -> dict[str, list[Line]]:
    """The lines of each attack; the run without an attack is every line's point at 0. Empty: there is no attack."""
    good = [r for r in rows if r["chosen"] is not None]
    methods = list(dict.fromkeys(r["method"] for r in good))
    rules = list(dict.fromkeys(r["aggregator"] for r in good))
    found: dict[str, list[Line]] = {}
    for attack in dict.fromkeys(r["attack"] for r in rows if r["attack"] != "none"):
        lines = []
        for method, rule in dict.fromkeys((r["method"], r["aggregator"]) for r in good):
            mine = [r for r in good if (r["method"], r["aggregator"]) == (method, rule)]
            under = sorted((r for r in mine if r["attack"] in (attack, "none")), key=lambda r: float(r["attackers"]))
            if under:
                points = [(r["attackers"], r["chosen"]["accuracy_mean"]) for r in under]
                spread = [float(r["chosen"]["accuracy_seed_std"]) for r in under]
                place = methods.index(method), rules.index(rule)
                lines.append(Line(mine[0]["entrant"], *place, points, spread))
        found[attack] = lines
    return found


def bounds(found: dict[str, list[Line]], floor: float) -> tuple[float, float]:
    """The axis that all panels share: down to the worst line's end, up to 1."""
    values = [max(v, floor) for lines in found.values() for line in lines for _, v in line.points]
    low = min(values, default=0.0)
    return (0.1 * int(10 * low) if low >= 0 else low), max(1.0, *values, low + 0.1)


def _repeated(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The cells of a repeated experiment with attacks as rows of a comparison."""
    rows = []
    for c in cells:
        if c.get("attack") is not None and c["ours"] is not None:
            rule = str(c.get("aggregator") or "mean")
            name = ", ".join(str(c[k]) for k in ("method", "model", "dataset", "partition"))
            scores = {"accuracy_mean": c["ours"], "accuracy_seed_std": c["std"] or 0.0}
            row = {"method": name, "entrant": name if rule == "mean" else f"{name}+{rule}", "chosen": scores}
            rows.append(row | {"attack": c["attack"], "attackers": float(c["attackers"]), "aggregator": rule})
    return rows


def section(material: Material) -> Section | None:
    """The chart; None where nobody attacks."""
    found = panels(material.comparison.rows()) if material.comparison is not None else {}
    for table in material.tables:
        found |= panels(_repeated(table["cells"]))
    if not any(found.values()):
        return None
    variants: dict[str, dict[str, Any]] = {}
    for attack, lines in found.items():
        data = []
        for line in lines:
            share, value = zip(*line.points, strict=True)
            colour = f"--c{line.colour % chart_style.COLOURS}"
            dash = {"color": colour, "dash": chart_style.DASHES[line.dash % len(chart_style.DASHES)], "width": 2}
            mark = {"color": colour, "symbol": chart_style.SHAPES[line.dash % len(chart_style.SHAPES)], "size": 8}
            trace: dict[str, Any] = {
                "x": share,
                "y": value,
                "name": plain(line.name),
                "mode": "lines+markers",
                "line": dash,
            }
            if any(line.spread):
                trace["error_y"] = {"type": "data", "array": line.spread, "width": 3, "thickness": 1}
            data.append(trace | {"marker": mark})
        axes: dict[str, Any] = {
            "xaxis": {"title": {"text": "share of attackers"}, "tickformat": ".0%", "rangemode": "tozero"}
        }
        axes["yaxis"] = chart_style.scores(f"mean test {material.score}")
        variants[attack] = {"data": data, "layout": axes}
    rows = [
        [attack, line.name, share, value, std]
        for attack, lines in found.items()
        for line in lines
        for (share, value), std in zip(line.points, line.spread, strict=True)
    ]
    chart = Chart(
        "robustness",
        f"Mean test {material.score} of benign clients' chosen models against the share of attackers. Colours are "
        "methods, dashes and shapes are aggregators; whiskers: standard deviation over seeds.",
        variants if len(variants) > 1 else {"": next(iter(variants.values()))},
        ["attack", "method", "share of attackers", "mean", "std over seeds"],
        rows,
        {"attack": list(variants)} if len(variants) > 1 else {},
    )
    return Section("robustness", "Accuracy of benign clients against the share of attackers", [chart])


# --- PNG --------------------------------------------------------------------------------------------------------------


def write_png(path: Path, found: dict[str, list[Line]], floor: float) -> bool:
    """The same as a PNG; False where matplotlib is not installed."""
    low, high = bounds(found, floor)
    lines = {line.name: line for each in found.values() for line in each}
    wide, deep = chart_style.panel_grid(len(found))
    key = 0.24 * -(-len(lines) // (2 * wide)) + 0.2  # inches for the legend, two columns under each panel
    size = (max(4.6 * wide, 6.4), 3.2 * deep + key)
    figure = chart_style.new_figure(figsize=size, dpi=150, layout=None)
    if figure is None:
        return False
    edges = {"left": 0.75 / size[0], "right": 1 - 0.2 / size[0], "top": 1 - 0.4 / size[1]}
    figure.subplots_adjust(bottom=(key + 0.55) / size[1], hspace=0.5, wspace=0.12, **edges)
    grid = figure.subplots(deep, wide, squeeze=False, sharey=True)
    styles = ["-", *((0, tuple(map(float, d.split()))) for d in chart_style.PNG_DASHES[1:])]
    marks = chart_style.PNG_MARKS
    handles: dict[str, Any] = {}
    for place, axes in enumerate(grid.flat):
        if place >= len(found):
            axes.set_visible(False)
            continue
        attack, each = list(found.items())[place]
        for line in each:
            x, y = zip(*line.points, strict=True)
            look = {"color": chart_style.PNG_COLOURS[line.colour % chart_style.COLOURS], "markersize": 5}
            look |= {"linestyle": styles[line.dash % len(styles)], "marker": marks[line.dash % len(marks)]}
            drawn = axes.plot(x, [min(max(v, low), high) for v in y], **look)
            handles[line.name] = drawn[0]
        chart_style.frame(axes, attack, 11, axis="y", color="#d8d8d8", linewidth=0.8)
        axes.set_ylim(low, high)
        axes.set_xticks(sorted({0.0} | {x for line in each for x, _ in line.points}))
        axes.xaxis.set_major_formatter(lambda v, _: f"{100 * v:.3g}%")
        axes.set_xlabel("attackers")
    for row in grid:
        row[0].set_ylabel("test accuracy, benign clients")
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=2 * wide, fontsize=9, frameon=False)
    chart_style.save_png(figure, path)
    return True
