"""report.html: one self-contained page of runs, comparisons and repeated experiments. It opens offline and asks nobody.

The page allows itself its own two scripts, by their digests, and nothing else: no network, no other script.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.util
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from ..storage import write_text
from . import (
    citations,
    clients,
    collaboration,
    curves,
    fairness,
    overview,
    pairs,
    prediction_metrics,
    repeat,
    robustness,
    skew,
)
from .entries import Material
from .material import read
from .pieces import Section, Words, written

SCRIPTS = ("page_tables.js", "page_charts.js", "page_clients.js", "page_live.js")  # one script, in this order
MISSING = "The charts are left out as Plotly is not installed (pip install plotly); the numbers are here."


def write(path: Path, folders: Sequence[Path]) -> None:
    """Write the page of some folders together."""
    write_text(path, of(read(folders)))


def of(material: Material) -> str:
    """The page."""
    about = [Words(text) for text in skew.described(material)]
    return html_of(material.title, sections(material), [*about, *overview.lead(material)])


def sections(material: Material) -> list[Section]:
    """What there is to show, in the order in which one asks for it."""
    found = [
        *overview.sections(material),
        robustness.section(material),
        clients.section(material),
        prediction_metrics.section(material),
        curves.section(material),
        fairness.section(material),
        pairs.section(material),
        overview.significance(material),
        collaboration.section(material),
        skew.section(material),
        curves.diagnostics(material),
        repeat.section(material),
        citations.section(material),
    ]
    return [s for s in found if s is not None and s.parts]


def html_of(title: str, shown: Sequence[Section], lead: Sequence[Words], live: str = "") -> str:
    """A page of these sections. A live one (its mark says which parts it has) may ask its own server for news, and
    nobody else."""
    library, own = plotly(), "\n".join(map(_text, SCRIPTS))
    charts = library is not None
    first = [*lead] if charts else [*lead, Words(MISSING, "warn")]
    words = "".join(f'<p class="{w.kind}">{html.escape(w.text)}</p>' for w in first)
    links = "".join(f'<a href="#{s.id}">{s.id.replace("-", " ").capitalize()}</a>' for s in shown)
    scripts = [*([library] if library is not None else []), own]
    rules = [
        "default-src 'none'",
        f"script-src {' '.join(map(_digest, scripts))}",
        "style-src 'unsafe-inline'",  # Plotly sets styles; no text of a user's gets there
        "img-src data: blob:",
        *(["connect-src 'self'"] if live else []),
        "base-uri 'none'",
        "form-action 'none'",
    ]
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(rules)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{html.escape(title)}</title><style>{_text('page.css')}</style></head>"
    )
    noscript = "<noscript><p>Charts and sorting need JavaScript; the numbers stand below each chart.</p></noscript>"
    body = f'<header><h1>{html.escape(title)}</h1><div id="lead">{words}</div>{noscript}<nav>{links}</nav></header>'
    body += f"<main>{''.join(written(s, charts) for s in shown)}</main>"
    asks = "asks only the program on this machine that serves it" if live else "asks nobody for anything"
    body += f"<footer>Made by Sartor. This page holds everything that it shows and {asks}.</footer>"
    code = "".join(f"<script>{text}</script>" for text in scripts)
    mark = f' data-live="{live}"' if live else ""
    return f"{head}<body{mark}>{body}{code}</body></html>\n"


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(_sha256(script)).decode()}'"


@cache
def _sha256(script: str) -> bytes:
    return hashlib.sha256(script.encode()).digest()


@cache
def plotly() -> str | None:
    """Plotly's script, from its Python package (which is not imported); None where that is not installed."""
    found = importlib.util.find_spec("plotly")
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(found.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8").replace("\r\n", "\n").replace("\r", "\n")  # as HTML reads it
    return text if "</script" not in text.lower() and "<!--" not in text else _harmless(text)


def _harmless(script: str) -> str:
    """The same script, without what could end its element: in strings, < may be written as \\x3c."""
    return script.replace("</script", "\\x3c/script").replace("</SCRIPT", "\\x3c/SCRIPT").replace("<!--", "\\x3c!--")


@cache
def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
