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

MOST = 300  # rows of a table behind a chart; its CSV has all


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

    def island(self) -> dict[str, Any]:
        """What the page's script needs."""
        switches = [{"label": k, "values": list(v)} for k, v in self.switches.items()]
        table = {"head": list(self.head), "rows": [list(r) for r in self.rows]}
        return {"switches": switches, "variants": self.variants, "height": self.height, "table": table}


Part = Words | CodeBlock | Table | Chart


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
    inside = "".join(_part(part, charts) for part in section.parts)
    title = plain(section.title)
    return f'<section id="{section.id}"><h2>{title}</h2>{inside}</section>'


def _part(part: Part, charts: bool) -> str:
    if isinstance(part, Words):
        kind = f' class="{part.kind}"' if part.kind else ""
        return f"<p{kind}>{plain(part.text)}</p>"
    if isinstance(part, CodeBlock):
        return _folded(f"<pre>{plain(part.text)}</pre>", part.summary)
    if isinstance(part, Table):
        return _folded(_table(part.head, part.rows, part.id), part.summary)
    return _chart(part, charts)


def _folded(inside: str, summary: str, more: str = "") -> str:
    return f"<details{more}><summary>{plain(summary)}</summary>{inside}</details>" if summary else inside


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]], id: str = "") -> str:
    top = "".join(f'<th scope="col"><button type="button">{plain(h)}</button></th>' for h in head)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    mark = f' id="{id}"' if id else ""
    return (
        f'<div class="wide" tabindex="0"><table class="sortable"{mark}><thead><tr>{top}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


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
    numbers = _folded(_table(chart.head, rows) + rest, "The numbers", "" if charts else " open")
    label = html.escape(chart.caption, quote=True)
    return (
        f'<figure class="chart" id="chart-{chart.name}" data-name="{chart.name}"><div class="switches"></div>'
        f'<p class="note"></p><div class="plot" role="img" aria-label="{label}"></div>'
        f'<figcaption>{plain(chart.caption)} <button type="button" class="csv">CSV</button></figcaption>'
        f'{numbers}<script type="application/json">{safe_json(chart.island())}</script></figure>'
    )
