"""report.html: one self-contained page of a run or a comparison, with drawings as inline SVG. It opens offline."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..compare import Comparison
from ..data import describe
from ..recipe import Recipe
from ..result import Result
from ..storage import write_text
from .terminal import cell, explain, megabytes, one_line

COLOURS = {"global": "#0072b2", "personal": "#d55e00", "chosen": "#009e73"}  # Okabe and Ito: told apart by everybody

STYLE = """
:root{color-scheme:light dark;--ink:#1b1b1b;--paper:#fff;--faint:#d8d8d8;--soft:#666}
@media(prefers-color-scheme:dark){:root{--ink:#eaeaea;--paper:#161616;--faint:#3c3c3c;--soft:#a5a5a5}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}p.soft{color:var(--soft)}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid var(--faint);white-space:nowrap}th:first-child,td:first-child{text-align:left}
svg{max-width:100%;height:auto}svg text{fill:var(--ink);font-size:12px}svg .grid{stroke:var(--faint)}
pre{overflow-x:auto;border:1px solid var(--faint);padding:.7rem;font-size:.85rem}.warn{border-left:4px solid #e69f00;padding-left:.7rem}
"""


def write(path: Path, html: str) -> None:
    """Write the page."""
    write_text(path, html)


def of_run(result: Result, recipe: Recipe) -> str:
    """The page of one run."""
    models = [m for m in COLOURS if result.summary[m] is not None]
    body = f"<h1>{escape(recipe.method)} on {escape(recipe.data)}</h1><p>{escape(describe(result.data.about))}.</p>"
    body += f"<p>{escape(one_line(result.summary))}.</p>" + _warnings(result.summary["warnings"])
    if models:
        lines = {m: [(h["round"], h[m]["accuracy_mean"]) for h in result.history if h[m]] for m in models}
        body += "<h2>Accuracy against rounds</h2>" + _curves(lines, "round") + "<p class=soft>Mean test accuracy over clients.</p>"
        body += "<h2>Each client</h2>" + _dumbbells(result.clients, models)
        body += "<p class=soft>Test accuracy of each client's models; the chosen one is the better on its validation data.</p>"
    head = ["client", "train", "validation", "test", *(f"{m} accuracy" for m in models), "takes"]
    rows = [[r["name"], r["train"], r["validation"], r["test"], *(_number(r.get(f"{m}_test_accuracy")) for m in models), r["chosen"]]
            for r in result.clients]
    body += _table(head, rows) + "<h2>Diagnostics</h2>" + _diagnostics(result.history)
    return _page(f"{recipe.method} on {recipe.data}", body + _settings(recipe))


def of_comparison(table: Comparison, recipe: Recipe) -> str:
    """The page of a comparison."""
    rows = table.rows()
    head = ["method", "global", "personal", "chosen", "better than local", "worse", "of", "MB up", "MB down", "seconds"]
    cells = [[r["method"], *(cell(r[m]) for m in COLOURS), *("-" if r[k] is None else r[k] for k in ("gain", "lose", "of")),
              megabytes(r["bytes_up"]), megabytes(r["bytes_down"]), "-" if r["seconds"] is None else f"{r['seconds']:.1f}"]
             for r in rows]
    seeds = len({c.seed for c in table.cells})
    body = f"<h1>{len(rows)} methods on {escape(recipe.data)}, {escape(recipe.partition)}</h1>"
    body += "<p>Test accuracy over clients: mean ± standard deviation, worst 10%.</p>" + _table(head, cells)
    body += "".join(f"<p class=soft>{escape(line)}</p>" for line in explain(rows, seeds).splitlines())
    points = [(r["method"], {m: r[m]["accuracy_mean"] for m in COLOURS if r[m]}) for r in rows if r["chosen"]]
    body += "<h2>Global, personal and chosen</h2>" + _dots(points)
    return _page(f"Comparison on {recipe.data}", body + _settings(recipe))


def _page(title: str, body: str) -> str:
    return (f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width,initial-scale=1'>"
            f"<title>{escape(title)}</title><style>{STYLE}</style><body>{body}</body></html>\n")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in row) + "</tr>" for row in rows)
    return f"<div class=wide><table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>"


def _warnings(warnings: Sequence[str]) -> str:
    return "".join(f"<p class=warn>{escape(w)}</p>" for w in warnings)


def _settings(recipe: Recipe) -> str:
    return f"<h2>Settings</h2><pre>{escape(recipe.toml())}</pre>"


def _diagnostics(history: Sequence[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(k for h in history for k in h["diagnostics"]))
    if not names:
        return "<p class=soft>Not computed (--no-diagnostics).</p>"
    return _table(["round", *names], [[h["round"], *(f"{h['diagnostics'].get(n, float('nan')):.4g}" for n in names)] for h in history])


def _legend(names: Sequence[str], x: float, y: float) -> str:
    return "".join(f"<circle cx={x + 90 * i} cy={y} r=5 fill='{COLOURS[n]}'/><text x={x + 9 + 90 * i} y={y + 4}>{n}</text>"
                   for i, n in enumerate(names))


def _axis(low: float, high: float, place: Any) -> list[tuple[float, float]]:
    return [(v, place(v)) for v in (low + (high - low) * i / 4 for i in range(5))]


def _curves(lines: dict[str, list[tuple[int, float]]], label: str) -> str:
    width, height, left, top = 640, 300, 46, 30
    values = [v for line in lines.values() for _, v in line]
    last = max(r for line in lines.values() for r, _ in line)
    low, high = min(0.0, *values), max(1.0, *values)

    def x(r: float) -> float:
        return left + (width - left - 10) * r / last

    def y(v: float) -> float:
        return top + (height - top - 30) * (high - v) / (high - low)

    svg = "".join(f"<line class=grid x1={left} x2={width - 10} y1={p:.1f} y2={p:.1f} /><text x=4 y={p + 4:.1f}>{v:.2f}</text>"
                  for v, p in _axis(low, high, y))
    svg += "".join(f"<text x={p - 8:.1f} y={height - 10}>{v:.0f}</text>" for v, p in _axis(0, last, x)[1:])
    for name, line in lines.items():
        points = " ".join(f"{x(r):.1f},{y(v):.1f}" for r, v in line)
        svg += f"<polyline points='{points}' fill=none stroke='{COLOURS[name]}' stroke-width=2 />"
        svg += "".join(f"<circle cx={x(r):.1f} cy={y(v):.1f} r=2.5 fill='{COLOURS[name]}'/>" for r, v in line)
    svg += _legend(list(lines), left, 12) + f"<text x={width - 60} y={height - 10}>{label}s</text>"
    return f"<svg viewBox='0 0 {width} {height}' width={width} role=img aria-label='accuracy against {label}s'>{svg}</svg>"


def _dumbbells(clients: Sequence[dict[str, Any]], models: Sequence[str]) -> str:
    kept = [(c["name"], {m: c[f"{m}_test_accuracy"] for m in models if c.get(f"{m}_test_accuracy") is not None}) for c in clients[:100]]
    return _dots([(name, values) for name, values in kept if values])


def _dots(points: Sequence[tuple[str, dict[str, float]]]) -> str:
    """A row for each name with a dot for each of its models on one axis."""
    if not points:
        return ""
    width, left, top, step = 640, 120, 40, 22
    height = top + step * len(points) + 10
    values = [v for _, row in points for v in row.values()]
    low, high = min(0.0, *values), max(1.0, *values)

    def x(v: float) -> float:
        return left + (width - left - 20) * (v - low) / (high - low)

    svg = _legend(list(dict.fromkeys(m for _, row in points for m in row)), left, 12)
    svg += "".join(f"<line class=grid x1={p:.1f} x2={p:.1f} y1={top - 8} y2={height} /><text x={p - 12:.1f} y={top - 12}>{v:.2f}</text>"
                   for v, p in _axis(low, high, x))
    for i, (name, row) in enumerate(points):
        y = top + step * i + 8
        svg += f"<text x=2 y={y + 4}>{escape(name[:16])}</text>"
        svg += f"<line class=grid x1={x(min(row.values())):.1f} x2={x(max(row.values())):.1f} y1={y} y2={y} stroke-width=3 />"
        for m, v in row.items():  # the chosen model is one of the others, so it is drawn as a ring around it
            look = f"fill=none stroke='{COLOURS[m]}' stroke-width=2 r=7" if m == "chosen" else f"fill='{COLOURS[m]}' r=4.5"
            svg += f"<circle cx={x(v):.1f} cy={y} {look}><title>{escape(name)}: {m} {v:.3f}</title></circle>"
    return f"<svg viewBox='0 0 {width} {height}' width={width} role=img aria-label='accuracy of each model'>{svg}</svg>"
