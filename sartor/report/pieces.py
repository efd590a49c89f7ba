"""What a page consists of: sections of sentences, tables and charts, and how each is written as HTML.

Nothing that comes from data is HTML: text is escaped, and what scripts read lies in JSON islands, escaped as well.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MOST = 100  # rows of a table behind a chart; its CSV has all
FIRST = 50  # rows of a table of clients that are in the page as it is; its script has all of them


class Shown(NamedTuple):
    """A cell that is sorted by another value than its text."""

    text: str
    value: float | None


@dataclass(frozen=True)
class Words:
    """A paragraph; `kind` is "", "soft", "warn" or "lead"."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class CodeBlock:
    """Text as it is: a command, settings, citations. With a `summary` it is folded away below that."""

    text: str
    summary: str = ""


@dataclass(frozen=True)
class Table:
    """A table that can be sorted by any column."""

    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    id: str = ""
    summary: str = ""  # folded away below this, where there is one
    find: str = ""  # what its first column names ("client"): one can look for it, and there may be ten thousand
    pick: bool = False  # a click on the name picks the client whose curves are shown


@dataclass(frozen=True)
class Chart:
    """A chart in plain Plotly JSON. A colour may be a variable of the page's style with an opacity: "--c0 0.2".

    With `switches` (a label and its values) there is a variant for each choice, under its values with | between them.
    """

    name: str
    caption: str
    variants: Mapping[str, Mapping[str, Any]]  # each with "data", "layout" and perhaps "note" and "height"
    head: Sequence[str]  # of its numbers
    rows: Sequence[Sequence[Any]]
    switches: Mapping[str, Sequence[str]] = field(default_factory=dict)
    height: int = 380
    half: bool = False  # of the page's width, where there is room for two
    # By variant, for each client of the page's picker: what changes in each trace (None: it has none), and a note.
    clients: Mapping[str, Sequence[Mapping[str, Any]]] | None = None

    def island(self) -> dict[str, Any]:
        """What the page's script needs."""
        switches = [{"label": k, "values": list(v)} for k, v in self.switches.items()]
        table = {"head": list(self.head), "rows": [list(r) for r in self.rows]}
        own = {} if self.clients is None else {"clients": self.clients}
        return {"switches": switches, "variants": self.variants, "height": self.height, "table": table, **own}


@dataclass(frozen=True)
class Picker:
    """Where a client is picked, whose metrics and curves then stand in place of the pooled ones."""

    head: Sequence[str]  # of its card
    about: Mapping[str, Any]  # what the page's script needs


@dataclass(frozen=True)
class TwoSides:
    """Two entries, client by client: which two can be chosen."""

    chart: Chart
    table: Table
    about: Mapping[str, Any]


Part = Words | CodeBlock | Table | Chart | Picker | TwoSides


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    id: str
    title: str
    parts: Sequence[Part]


def plain(text: object) -> str:
    """Text between tags, or in a chart, where Plotly takes tags and entities for markup: shown as it is."""
    return html.escape(str(text), quote=False)


def short(text: object, most: int = 20) -> str:
    """The same for an axis, cut where it is long."""
    words = " ".join(str(text).split())
    return plain(words if len(words) <= most else words[: most - 1] + "…")


def safe_json(value: Any) -> str:
    """JSON that may stand in a script element: nothing in it ends the element or begins a tag."""
    text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _finite(value: Any) -> Any:
    """NaN and Inf, which JSON has not, are gaps; numbers have six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list | tuple) else value


# --- HTML -------------------------------------------------------------------------------------------------------------


def written(section: Section, charts: bool = True) -> str:
    """A section as HTML; without `charts` the numbers behind them are shown in their place."""
    inside = "".join(_part(part, section.title, charts) for part in section.parts)
    title = plain(section.title)
    mark = f"{section.id}-title"
    return f'<section id="{section.id}" aria-labelledby="{mark}"><h2 id="{mark}">{title}</h2>{inside}</section>'


def _part(part: Part, label: str, charts: bool) -> str:
    if isinstance(part, Words):
        kind = f' class="{part.kind}"' if part.kind else ""
        return f"<p{kind}>{plain(part.text)}</p>"
    if isinstance(part, CodeBlock):
        return _folded(f'<pre tabindex="0">{plain(part.text)}</pre>', part.summary)
    if isinstance(part, Table):
        return _folded(_table(part, part.summary or label), part.summary)
    if isinstance(part, Picker):
        return _picker(part)
    if isinstance(part, TwoSides):
        return _pair(part, label, charts)
    return _chart(part, charts)


def _folded(inside: str, summary: str, more: str = "") -> str:
    return f"<details{more}><summary>{plain(summary)}</summary>{inside}</details>" if summary else inside


def _table(table: Table, label: str) -> str:
    top = "".join(f'<th scope="col"><button type="button">{plain(h)}</button></th>' for h in table.head)
    rows = table.rows[:FIRST] if table.find else table.rows
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    mark = f' id="{table.id}"' if table.id else ""
    mark += ' data-pick="1"' if table.pick else ""
    some = len(table.rows) - len(rows)
    rest = f"<noscript><p>{some} more rows are shown with JavaScript.</p></noscript>" if some else ""
    return (
        f'<div class="wide{" tall" if table.find else ""}" tabindex="0" role="group" aria-label="{_quoted(label)}">'
        f'<table class="sortable"{mark}><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>'
        f"{_rows(table) if table.find else ''}{rest}"
    )


def _rows(table: Table) -> str:
    """All rows for the page's script: names and numbers, with the digits that each column is shown with."""
    columns = [_column([row[i] for row in table.rows]) for i in range(len(table.head))]
    rows = [list(row) for row in zip(*(values for _, values in columns), strict=True)]
    about = {"find": table.find, "digits": [digits for digits, _ in columns], "rows": rows}
    return _island(about, table.id)


def _column(cells: Sequence[Any]) -> tuple[int | None, list[Any]]:
    """The digits of a column of numbers, None for texts, and its values."""
    values = [cell.value if isinstance(cell, Shown) else cell for cell in cells]
    if all(v is None or (isinstance(v, int) and not isinstance(v, bool)) for v in values):
        return 0, values
    if all(isinstance(c, Shown) and (c.value is None or c.text == f"{c.value:.3f}") for c in cells):
        return 3, values
    return None, [cell.text if isinstance(cell, Shown) else text_of(cell) for cell in cells]


def _island(value: Any, name: str) -> str:
    return f'<script type="application/json" data-table="{name}">{safe_json(value)}</script>'


def _quoted(text: str) -> str:
    return html.escape(" ".join(text.split()), quote=True)


def _cell(value: Any) -> str:
    if isinstance(value, Shown):
        mark = "" if value.value is None else f' data-value="{value.value:.9g}"'
        return f"<td{mark}>{plain(value.text)}</td>"
    return f"<td>{plain(text_of(value))}</td>"


def text_of(value: Any) -> str:
    """A value as one reads it."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _chart(chart: Chart, charts: bool) -> str:
    rows = chart.rows[:MOST]
    rest = "" if len(chart.rows) <= MOST else f"<p>The first {MOST} of {len(chart.rows)} rows; the CSV has all.</p>"
    table = _table(Table(chart.head, rows), f"The numbers of the chart {chart.name}")
    numbers = _folded(table + rest, "The numbers", "" if charts else " open")
    kind = "chart half" if chart.half else "chart"
    return (
        f'<figure class="{kind}" id="chart-{chart.name}" data-name="{chart.name}"><div class="switches"></div>'
        f'<p class="note" role="status"></p><div class="plot" role="img" aria-label="{_quoted(chart.caption)}"></div>'
        f'<figcaption>{plain(chart.caption)} <button type="button" class="csv">CSV</button></figcaption>'
        f'{numbers}<script type="application/json">{safe_json(chart.island())}</script></figure>'
    )


def _picker(picker: Picker) -> str:
    top = "".join(f'<th scope="col">{plain(h)}</th>' for h in picker.head)
    return (
        '<div class="picker"><label>Show the curves of '
        '<select><option value="-1">all clients, pooled</option></select></label>'
        '<p class="note" role="status"></p><div class="wide card" tabindex="0" role="group" aria-label="Metrics of the '
        f'client" hidden><table><thead><tr>{top}</tr></thead><tbody></tbody></table></div>'
        f"{_island(picker.about, 'picker')}</div>"
    )


def _pair(pair: TwoSides, label: str, charts: bool) -> str:
    return (
        '<div class="pair"><p class="switches"><label>Compare <select></select></label> <label>with <select></select>'
        f'</label></p><p class="note" role="status"></p>{_island(pair.about, "pair")}{_chart(pair.chart, charts)}'
        f"{_table(pair.table, label)}</div>"
    )
