"""The robustness plot: accuracy of benign clients against the share of attackers, a panel for each attack and a line
for each method with its aggregator. As inline SVG for the page, and as PNG (with matplotlib, the extra `plots`)."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from ..storage import replacing

# Okabe and Ito's, told apart by everybody, without the yellow, which is too faint for a line on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#888888")
DASHES = ("", "6 3", "2 2", "8 3 2 3", "1 3")  # one for each aggregator
MARKS = ("o", "s", "^", "D", "v")  # a dot, and shapes by their corners:
_CORNERS: dict[str, list[tuple[float, float]]] = {
    "s": [(-3, -3), (3, -3), (3, 3), (-3, 3)],
    "^": [(0, -4), (4, 3), (-4, 3)],
    "D": [(0, -4.5), (4.5, 0), (0, 4.5), (-4.5, 0)],
    "v": [(0, 4), (4, -3), (-4, -3)],
}


class Line(NamedTuple):
    """The accuracy of one method with one aggregator under one attack."""

    name: str  # "fedavg+median"
    colour: int  # the method's place, and so its colour
    dash: int  # the aggregator's
    points: list[tuple[float, float]]  # share of attackers, mean accuracy of the chosen models


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
            points = [(r["attackers"], r["chosen"]["accuracy_mean"]) for r in mine if r["attack"] in (attack, "none")]
            if points:
                place = methods.index(method), rules.index(rule)
                lines.append(Line(mine[0]["entrant"], *place, sorted(points)))
        found[attack] = lines
    return found


def bounds(found: dict[str, list[Line]], floor: float) -> tuple[float, float]:
    """The axis that all panels share: down to the worst line's end, up to 1."""
    values = [max(v, floor) for lines in found.values() for line in lines for _, v in line.points]
    low = min(values, default=0.0)
    return (0.1 * int(10 * low) if low >= 0 else low), max(1.0, *values, low + 0.1)


# --- SVG --------------------------------------------------------------------------------------------------------------

WIDTH, LEFT, PANEL, ROW = 520, 44, 280, 20  # of the drawing, its axis, a panel and a row of the legend


def svg(found: dict[str, list[Line]], floor: float) -> str:
    """All panels, one below the other, with a legend on top."""
    low, high = bounds(found, floor)
    lines = {line.name: line for each in found.values() for line in each}
    columns = 2 if max((len(name) for name in lines), default=0) <= 26 else 1
    top = ROW * -(-len(lines) // columns) + 14
    places = [(i % columns * WIDTH / columns, 10 + ROW * (i // columns)) for i in range(len(lines))]
    out = [_key(line, *place) for line, place in zip(lines.values(), places, strict=True)]
    out += [_panel(attack, each, top + PANEL * i, low, high) for i, (attack, each) in enumerate(found.items())]
    height = top + PANEL * len(found)
    label = "accuracy of benign clients against the share of attackers"
    return f"<svg viewBox='0 0 {WIDTH} {height}' width={WIDTH} role=img aria-label='{label}'>{''.join(out)}</svg>"


def _stroke(line: Line) -> str:
    colour, dash = COLOURS[line.colour % len(COLOURS)], DASHES[line.dash % len(DASHES)]
    return f"stroke='{colour}' stroke-width=2 fill=none" + (f" stroke-dasharray='{dash}'" if dash else "")


def _mark(line: Line, x: float, y: float, title: str = "") -> str:
    """A dot, or for another aggregator another shape, so that equal lines can be told apart without their dashes."""
    look, inside = f"fill='{COLOURS[line.colour % len(COLOURS)]}'", f"<title>{escape(title)}</title>" if title else ""
    shape = MARKS[line.dash % len(MARKS)]
    if shape == "o":
        return f"<circle cx={x:.1f} cy={y:.1f} r=3.5 {look}>{inside}</circle>"
    corners = _CORNERS[shape]
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f"<polygon points='{points}' {look}>{inside}</polygon>"


def _key(line: Line, x: float, y: float) -> str:
    path = f"<line x1={x + 2:.0f} x2={x + 34:.0f} y1={y} y2={y} {_stroke(line)} />"
    return path + _mark(line, x + 18, y) + f"<text x={x + 40:.0f} y={y + 4}>{escape(line.name)}</text>"


def _panel(attack: str, lines: Sequence[Line], top: float, low: float, high: float) -> str:
    bottom, right = top + PANEL - 46, WIDTH - 14
    start = top + 26
    shares = sorted({x for line in lines for x, _ in line.points} | {0.0})
    most = max(shares[-1], 0.01)

    def at(x: float, y: float) -> tuple[float, float]:
        inside = min(max(y, low), high)
        return LEFT + (right - LEFT) * x / most, bottom - (bottom - start) * (inside - low) / (high - low)

    out = f"<text x={LEFT} y={top + 14} font-weight=bold>{escape(attack)}</text>"
    for i in range(5):
        v = low + (high - low) * i / 4
        y = at(0, v)[1]
        out += f"<line class=grid x1={LEFT} x2={right} y1={y:.1f} y2={y:.1f} />"
        out += f"<text class=end x={LEFT - 6} y={y + 4:.1f}>{v:.2f}</text>"
    for share in shares:
        out += f"<text class=mid x={at(share, low)[0]:.1f} y={bottom + 18}>{100 * share:.3g}%</text>"
    out += f"<text class=mid x={(LEFT + right) / 2} y={bottom + 34}>attackers</text>"
    for line in lines:
        points = [at(x, y) for x, y in line.points]
        out += f"<polyline points='{' '.join(f'{x:.1f},{y:.1f}' for x, y in points)}' {_stroke(line)} />"
        for (x, y), (share, value) in zip(points, line.points, strict=True):
            out += _mark(line, x, y, f"{line.name}, {attack} {100 * share:.3g}%: {value:.3f}")
    return out


# --- PNG --------------------------------------------------------------------------------------------------------------


def write_png(path: Path, found: dict[str, list[Line]], floor: float) -> bool:
    """The same as a PNG; False where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter
    except ImportError:
        return False
    low, high = bounds(found, floor)
    lines = {line.name: line for each in found.values() for line in each}
    wide = min(3, len(found))
    deep = -(-len(found) // wide)
    key = 0.24 * -(-len(lines) // (2 * wide)) + 0.2  # inches for the legend, two columns under each panel
    size = (max(4.6 * wide, 6.4), 3.2 * deep + key)
    figure = Figure(figsize=size, dpi=150, layout=None)
    FigureCanvasAgg(figure)
    edges = {"left": 0.75 / size[0], "right": 1 - 0.2 / size[0], "top": 1 - 0.4 / size[1]}
    figure.subplots_adjust(bottom=(key + 0.55) / size[1], hspace=0.5, wspace=0.12, **edges)
    grid = figure.subplots(deep, wide, squeeze=False, sharey=True)
    styles = ["-", *((0, tuple(map(float, d.split()))) for d in DASHES[1:])]
    handles: dict[str, Any] = {}
    for place, axes in enumerate(grid.flat):
        if place >= len(found):
            axes.set_visible(False)
            continue
        attack, each = list(found.items())[place]
        for line in each:
            x, y = zip(*line.points, strict=True)
            look = {"color": COLOURS[line.colour % len(COLOURS)], "linestyle": styles[line.dash % len(DASHES)]}
            marker = MARKS[line.dash % len(MARKS)]
            drawn = axes.plot(x, [min(max(v, low), high) for v in y], marker=marker, markersize=5, **look)
            handles[line.name] = drawn[0]
        axes.set_title(attack, fontsize=11, loc="left")
        axes.set_ylim(low, high)
        axes.set_xticks(sorted({0.0} | {x for line in each for x, _ in line.points}))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.3g}%"))
        axes.set_xlabel("attackers")
        axes.grid(axis="y", color="#d8d8d8", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    for row in grid:
        row[0].set_ylabel("test accuracy, benign clients")
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=2 * wide, fontsize=9, frameon=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")
    return True
