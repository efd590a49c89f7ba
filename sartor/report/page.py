"""report.html: one self-contained page of a run or a comparison, with drawings as inline SVG. It opens offline."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import tomli_w

from ..compare import Comparison
from ..data import describe
from ..grid import Scenario, attacked
from ..recipe import Recipe
from ..result import Result
from ..storage import write_text
from . import robustness
from .foot import judged
from .terminal import against, cell, explain, megabytes, number, one_line, row_name, takes, worth

COLOURS = {"global": "#0072b2", "personal": "#d55e00", "chosen": "#009e73"}  # Okabe and Ito: told apart by everybody
WIDTH = 520  # of a drawing: still readable when a phone shrinks it
MOST = 100  # clients that are drawn; all of them are in the table
FLOOR = -1.0  # R² has no lower end; what lies below is drawn here

STYLE = """
:root{color-scheme:light dark;--ink:#1b1b1b;--paper:#fff;--faint:#d8d8d8;--soft:#666}
@media(prefers-color-scheme:dark){:root{--ink:#eaeaea;--paper:#161616;--faint:#3c3c3c;--soft:#a5a5a5}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:60rem;margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}.soft{color:var(--soft)}summary{cursor:pointer}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid var(--faint);white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:0;position:sticky;left:0;background:var(--paper);
white-space:normal;min-width:6rem;max-width:38vw}
svg{max-width:100%;height:auto}svg text{fill:var(--ink);font-size:13px}svg .grid{stroke:var(--faint)}
svg .mid{text-anchor:middle}svg .end{text-anchor:end}
pre{overflow-x:auto;border:1px solid var(--faint);padding:.7rem;font-size:.85rem}
.warn{border-left:4px solid #e69f00;padding-left:.7rem}
"""


def write(path: Path, html: str) -> None:
    """Write the page."""
    write_text(path, html)


def of_run(result: Result, recipe: Recipe) -> str:
    """The page of one run."""
    models = [m for m in COLOURS if result.summary[m] is not None]
    score = "R²" if result.data.classes is None else "accuracy"
    body = f"<h1>{escape(recipe.method)} on {escape(recipe.data)}</h1><p>{escape(describe(result.data.about))}</p>"
    body += f"<p>{escape(one_line(result.summary))}.</p>" + _warnings(result.summary["warnings"])
    if models:
        lines = {m: [(h["round"], h[m]["accuracy_mean"]) for h in result.history if h[m]] for m in models}
        body += f"<h2>Mean test {score} over clients against rounds</h2>" + _curves(lines, score)
        body += f"<h2>Test {score} of each client</h2>" + _clients(result.clients, models)
        body += "<p class=soft>A ring marks the chosen model, the better on the client's validation data.</p>"
    parts = ("train", "validation", "test")
    rows = [
        [r["name"], *(r[p] for p in parts), *(number(r.get(f"{m}_test_accuracy")) for m in models), takes(r)]
        for r in result.clients
    ]
    body += _table(["client", *parts, *models, "takes"], rows) + _fairness([(m, result.summary[m]) for m in models])
    body += "<h2>Diagnostics</h2>" + _diagnostics(result.history)
    return _page(f"{recipe.method} on {recipe.data}", body + _settings(recipe.toml()))


def of_comparison(table: Comparison, found: dict[str, Any]) -> str:
    """The page of a comparison and its verdict."""
    rows, seeds = table.rows(), list(dict.fromkeys(c.seed for c in table.cells))
    recipe = next(iter(table.recipes.values()))
    body = f"<h1>{len(table.recipes)} methods on {escape(recipe.data)}, {escape(recipe.partition)}</h1>"
    if lines := robustness.panels(rows):
        body += "<h2>Accuracy of benign clients against the share of attackers</h2>" + robustness.svg(lines, FLOOR)
        body += "<p class=soft>Mean test accuracy of the clients' chosen models.</p>"
    body += "<h2>All methods</h2><p>Test accuracy (R² for regression) over benign clients: mean ± standard deviation, "
    body += "worst 10%.</p>" + _methods(rows)
    body += "".join(f"<p class=soft>{escape(line)}</p>" for line in explain(rows, len(seeds)).splitlines())
    points = [(r["method"], {m: r[m]["accuracy_mean"] for m in COLOURS if r[m]}) for r in rows if r["chosen"]]
    if points and len(table.scenarios) == 1:
        body += "<h2>Mean of the global, personal and chosen models</h2>" + _dots(points)
    body += _each_client(table) + _fairness([(row_name(r), r["chosen"]) for r in rows]) + _significance(found)
    return _page(f"Comparison on {recipe.data}", body + _settings(_common(table, seeds)))


def _each_client(table: Comparison) -> str:
    """Each client's chosen model under each method."""
    rows = table.by_client()
    if not rows:
        return ""
    methods = list(dict.fromkeys(k for r in rows for k in r if k != "client"))
    cells = [[r["client"], *(number(r.get(m)) for m in methods)] for r in rows[:MOST]]
    rest = f"<p class=soft>The first {MOST} of {len(rows)}; all are in clients.json.</p>" if len(rows) > MOST else ""
    return "<h2>Each client's chosen model</h2>" + _table(["client", *methods], cells) + rest


def _methods(rows: Sequence[dict[str, Any]]) -> str:
    """All numbers of each method; the best is marked, in a grid the best under each attack."""
    rows = [r for r in rows if not r["refused"]]  # the reasons stand below
    best: dict[tuple[str, float], float] = {}
    for r in rows:
        if r["chosen"]:
            where = r["scenario"].attacked
            best[where] = max(r["chosen"]["accuracy_mean"], best.get(where, -math.inf))
    models = [*COLOURS, *(["oracle"] if any(r["oracle"] for r in rows) else [])]
    cells, more = [], worth(rows)
    for i, r in enumerate(rows):
        star = "*" if r["chosen"] and r["chosen"]["accuracy_mean"] == best[r["scenario"].attacked] else ""
        seconds = "-" if r["seconds"] is None else f"{r['seconds']:.1f}"
        spent = [megabytes(r["bytes_up"]), megabytes(r["bytes_down"]), *(column[i] for column in more.values())]
        cost = [against(r), *spent, seconds]
        cells.append([row_name(r) + star, *(cell(r[m]) if r["seeds"] else "failed" for m in models), *cost])
    heads = [m if m != "oracle" else "oracle (on test data)" for m in models]
    paid = [name.replace("\n", " ") for name in more]
    return _table(["method", *heads, "vs local", "MB up", "MB down", *paid, "seconds"], cells)


def _fairness(rows: Sequence[tuple[str, dict[str, Any] | None]]) -> str:
    """How evenly accuracy is spread over clients, a row for each name."""
    names = ("pooled", "std", "var", "min", "worst10", "best10", "jain", "gini", "entropy")
    cells = [[name, *(number(found[f"accuracy_{k}"]) for k in names)] for name, found in rows if found]
    if not cells:
        return ""
    heads = ["pooled mean", "std", "variance", "worst", "worst 10%", "best 10%", "Jain", "Gini", "entropy"]
    said = "Over benign clients. Pooled: over all test samples. All clients alike: Jain 1, Gini 0, entropy log n."
    return f"<h2>How evenly accuracy is spread</h2>{_table(['', *heads], cells)}<p class=soft>{said}</p>"


def _significance(found: dict[str, Any], most: int = 60) -> str:
    """The foot, and a table of the tests."""
    if not found["pairs"]:
        return ""
    body = "<h2>Is it more than chance?</h2>"
    body += "".join(f"<p class=soft>{escape(line)}</p>" for line in judged(found).splitlines())
    heads = ["methods", "under", "pairs", "zeros", "mean difference", "effect r", "p", "p (Holm)"]
    cells = [
        [
            f"{p['a']} − {p['b']}",
            attacked(Scenario(p["attack"], p["attackers"])),
            p["n"],
            p["zeros"],
            f"{p['mean']:+.4f}",
            f"{p['effect']:+.2f}",
            f"{p['p']:.2g}",
            f"{p['p_holm']:.2g}",
        ]
        for p in found["pairs"][:most]
    ]
    more = f"<p class=soft>The first {most} of {len(found['pairs'])} tests; all are in significance.json.</p>"
    return body + _table(heads, cells) + (more if len(found["pairs"]) > most else "")


def _common(table: Comparison, seeds: Sequence[int]) -> str:
    """The settings that all cells share, and those of each method."""
    first = next(iter(table.recipes.values()))
    recipe = first.model_dump(exclude={"method", "seed", "settings", "solver", *Scenario._fields}, exclude_none=True)
    recipe |= {k: list(dict.fromkeys(getattr(s, k) for s in table.scenarios)) for k in Scenario._fields}
    own = {method: each.resolved().settings for method, each in table.recipes.items()}
    return tomli_w.dumps({"methods": list(own), "seeds": list(seeds), **recipe, **own})


def _page(title: str, body: str) -> str:
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style><body>{body}</body></html>\n"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in row) + "</tr>" for row in rows)
    return f"<div class=wide><table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>"


def _warnings(warnings: Sequence[str]) -> str:
    return "".join(f"<p class=warn>{escape(w)}</p>" for w in warnings)


def _settings(text: str) -> str:
    inside = f"<summary>Everything needed to repeat this</summary><pre>{escape(text)}</pre>"
    return f"<h2>Settings</h2><details>{inside}</details>"


def _diagnostics(history: Sequence[dict[str, Any]], most: int = 6) -> str:
    """A row per quantity; of many rounds a few, evenly spread, with the last."""
    names = list(dict.fromkeys(k for h in history for k in h["diagnostics"]))
    if not names:
        return "<p class=soft>None: the method has no such numbers, or they were switched off.</p>"
    step = -(-len(history) // most)
    shown = list(reversed(history[::-1][::step]))
    rows = [[n.replace("_", " "), *(f"{h['diagnostics'].get(n, float('nan')):.4g}" for h in shown)] for n in names]
    return _table(["", *(f"round {h['round']}" for h in shown)], rows)


def _legend(names: Sequence[str], left: float) -> str:
    marks = []
    for i, name in enumerate(names):
        x = left + 6 + 90 * i
        marks.append(f"<circle cx={x} cy=12 {_look(name)} /><text x={x + 12} y=16>{name}</text>")
    return "".join(marks)


def _look(model: str) -> str:
    """A dot, or for the chosen model, which is one of the others, a ring around it."""
    colour = COLOURS[model]
    return f"r=6.5 fill=none stroke='{colour}' stroke-width=2" if model == "chosen" else f"r=4.5 fill='{colour}'"


def _range(values: Sequence[float]) -> tuple[float, float]:
    return max(FLOOR, min(0.0, *values)), max(1.0, *values)


def _place(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """From a value to its place in the drawing, kept inside."""
    return lambda v: start + (end - start) * (min(max(v, low), high) - low) / (high - low)


def _steps(low: float, high: float) -> list[float]:
    return [low + (high - low) * i / 4 for i in range(5)]


def _rounds(last: int) -> list[int]:
    """At most six whole numbers up to the last round."""
    step = next(s for s in (k * 10**e for e in range(12) for k in (1, 2, 5)) if last <= 5 * s)
    return list(range(0, last + 1, step))


def _curves(lines: dict[str, list[tuple[int, float]]], label: str) -> str:
    height, left, top = 280, 44, 34
    last = max(r for line in lines.values() for r, _ in line)
    low, high = _range([v for line in lines.values() for _, v in line])
    x, y = _place(0, last, left, WIDTH - 12), _place(low, high, height - 44, top)
    svg = _legend(list(lines), left)
    for v in _steps(low, high):
        svg += f"<line class=grid x1={left} x2={WIDTH - 12} y1={y(v):.1f} y2={y(v):.1f} />"
        svg += f"<text class=end x={left - 6} y={y(v) + 4:.1f}>{v:.2f}</text>"
    svg += "".join(f"<text class=mid x={x(r):.1f} y={height - 24}>{r}</text>" for r in _rounds(last))
    svg += f"<text class=mid x={(left + WIDTH) / 2} y={height - 6}>rounds</text>"
    for name, line in lines.items():
        points = " ".join(f"{x(r):.1f},{y(v):.1f}" for r, v in line)
        svg += f"<polyline points='{points}' fill=none stroke='{COLOURS[name]}' stroke-width=2 />"
        svg += "".join(f"<circle cx={x(r):.1f} cy={y(v):.1f} r=2.5 fill='{COLOURS[name]}' />" for r, v in line)
    return _svg(height, f"{label} against rounds", svg)


def _clients(clients: Sequence[dict[str, Any]], models: Sequence[str]) -> str:
    points = []
    for c in clients[:MOST]:
        found = {m: c[f"{m}_test_accuracy"] for m in models if c.get(f"{m}_test_accuracy") is not None}
        points += [(c["name"], found)] if found else []
    rest = f"<p class=soft>The first {MOST} of {len(clients)} clients.</p>" if len(clients) > MOST else ""
    return _dots(points) + rest


def _dots(points: Sequence[tuple[str, dict[str, float]]]) -> str:
    """A row for each name with a mark for each of its models on one axis."""
    left, top, step = 128, 52, 22
    height = top + step * len(points) + 4
    low, high = _range([v for _, row in points for v in row.values()])
    x = _place(low, high, left, WIDTH - 22)
    svg = _legend(list(dict.fromkeys(m for _, row in points for m in row)), left)
    for v in _steps(low, high):
        svg += f"<line class=grid x1={x(v):.1f} x2={x(v):.1f} y1={top - 8} y2={height} />"
        svg += f"<text class=mid x={x(v):.1f} y={top - 12}>{v:.2f}</text>"
    for i, (name, row) in enumerate(points):
        y, ends = top + step * i + 8, (x(min(row.values())), x(max(row.values())))
        short = name if len(name) <= 15 else name[:14] + "…"
        svg += f"<text x=0 y={y + 4}>{escape(short)}</text>"
        svg += f"<line class=grid x1={ends[0]:.1f} x2={ends[1]:.1f} y1={y} y2={y} stroke-width=3 />"
        for m, v in row.items():
            svg += f"<circle cx={x(v):.1f} cy={y} {_look(m)}><title>{escape(name)}: {m} {v:.3f}</title></circle>"
    return _svg(height, "score of each model", svg)


def _svg(height: int, label: str, inside: str) -> str:
    return f"<svg viewBox='0 0 {WIDTH} {height}' width={WIDTH} role=img aria-label='{label}'>{inside}</svg>"
