"""A live page of a folder while a run or a comparison goes on in it: what it holds, what has changed, and its server.

It is served on 127.0.0.1 alone, read-only: one page and its news; nothing else of the machine is shown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ..errors import SartorError
from ..run.folder_schema import COMPARED
from ..run.folder_schema import PLAN as PLANNED
from ..storage import read_json
from ..study.compare import PLAN
from ..study.scenarios import Scenario
from . import curves, overview
from .entries import Material, RunFolder
from .material import read, read_cell, read_run
from .page import html_of
from .pieces import Chart, Section, Shown, Table, Words, safe_json, text_of
from .terminal import cell_name, left

ADDRESS = "127.0.0.1"
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def page(folder: Path) -> str:
    """The page as it is now; its script asks for `state` and brings it up to date."""
    title, lead, sections = _now(folder)
    return html_of(title, sections, lead, live=_mark(sections))


def state(folder: Path) -> dict[str, Any]:
    """What has changed on the page: sentences, charts and tables; `parts` says which there are."""
    title, lead, sections = _now(folder)
    parts = [part for section in sections for part in section.parts]
    charts = {p.name: p.island() for p in parts if isinstance(p, Chart)}
    tables = {p.id: [[_cell(c) for c in row] for row in p.rows] for p in parts if isinstance(p, Table)}
    said = [[w.text, w.kind] for w in lead]
    return {"title": title, "parts": _mark(sections), "lead": said, "charts": charts, "tables": tables}


def _mark(sections: list[Section]) -> str:
    """The same for pages with the same parts: one that has others is loaded anew."""
    parts = [part for section in sections for part in section.parts]
    names = [p.name if isinstance(p, Chart) else p.id for p in parts if isinstance(p, Chart | Table)]
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:16]


def _cell(value: Any) -> list[str | None]:
    if isinstance(value, Shown):
        return [value.text, None if value.value is None else f"{value.value:.9g}"]
    return [text_of(value), None]


def _now(folder: Path) -> tuple[str, list[Words], list[Section]]:
    """Title, first sentences and sections. What is half there, or not yet, is left for the next look."""
    try:
        material = read([folder])
    except (SartorError, OSError, ValueError, KeyError):
        return f"{folder.resolve().name}: nothing to see yet", [Words("Waiting for the first round.", "lead")], []
    rows = _progress(folder, material)
    for entry in material.entries:  # a seed that has only begun would cut the line of those that are complete
        entry.runs = [run for run in entry.runs if run.summary is not None] or entry.runs
    ended = sum(row[1] in ("complete", "failed") for row in rows)
    lead = [Words(_said(rows, ended), "lead")]
    lead += [w for w in overview.lead(material) if w.kind == "warn" and "has not ended" not in w.text]
    table = Table(["run", "state", "round", "of", "chosen", "seconds", "left"], rows, id="progress-table")
    found = [Section("progress", "How far it is", [table]), curves.section(material), curves.diagnostics(material)]
    return material.title, lead, [s for s in found if s is not None]


def _said(rows: list[list[Any]], ended: int) -> str:
    if len(rows) == 1:
        return "Complete." if ended else f"Round {text_of(rows[0][2])} of {text_of(rows[0][3])}."
    return "Complete." if ended == len(rows) else f"{ended} of {len(rows)} runs are complete."


def _progress(folder: Path, material: Material) -> list[list[Any]]:
    """A row for each run that is planned or there."""
    if not (folder / PLAN).is_file():
        named = [(e.name if len(material.entries) > 1 else e.method, run) for e in material.entries for run in e.runs]
        return [_row(name, run, None) for name, run in named] or [_row(material.title, read_run(folder), None)]
    ended, found = _failures(folder), []
    for i, cell in enumerate(read_json(folder / PLAN, PLANNED)["cells"]):
        place = folder / cell["folder"]
        scenario = Scenario(cell["attack"], cell["attackers"], cell["aggregator"])
        run = read_cell(place)
        found.append(_row(cell_name(cell["method"], scenario, cell["seed"]), run, ended.get(i)))
    return found


def _failures(folder: Path) -> dict[int, str]:
    """By place in the plan: the cells of which a finished comparison says that they failed."""
    if not (folder / "compare.json").is_file():
        return {}
    return {i: s["error"] for i, s in enumerate(read_json(folder / "compare.json", COMPARED)) if "error" in s}


def _row(name: str, run: RunFolder | None, error: str | None) -> list[Any]:
    if run is None or (not run.history and run.summary is None):
        return [
            name,
            "failed" if error else "waiting" if run is None else "running",
            None,
            run and run.rounds,
            *[None] * 3,
        ]
    last = run.history[-1] if run.history else {}
    done = "complete" if run.summary is not None else "failed" if error else "running"
    at, total = last.get("round"), run.rounds
    chosen = (last.get("chosen") or {}).get("accuracy_mean")
    seconds = last.get("seconds")
    more = None
    if done == "running" and at and total and seconds:
        more = left((total - at) * seconds / at)
    score = Shown("-" if chosen is None else f"{chosen:.3f}", chosen)
    return [name, done, at, total, score, seconds, more or ""]


def serve(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """A server for the live page of `folder`, ready for `serve_forever`; port 0: one that is free."""
    pages: dict[str, tuple[str, Callable[[], str]]] = {
        "/": ("text/html; charset=utf-8", lambda: page(folder)),
        "/state.json": ("application/json", lambda: safe_json(state(folder))),
    }

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "sartor", ""
        timeout = 10

        def do_GET(self) -> None:
            names = {f"{ADDRESS}:{made.server_port}", f"localhost:{made.server_port}"}
            if self.headers.get("Host") not in names:  # another site's name for this address: none of its business
                self._answer(403, "text/plain", "this page is for this machine alone\n")
            elif self.path not in pages:
                self._answer(404, "text/plain", "there is one page: /\n")
            else:
                kind, make = pages[self.path]
                try:
                    self._answer(200, kind, make())
                except Exception:  # what lies in the folder is half written, or odd: the next look may do
                    self._answer(503, "text/plain", "try again\n")

        do_HEAD = do_GET

        def _answer(self, code: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for name, value in HEADERS.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    try:
        made = ThreadingHTTPServer((ADDRESS, port), Handler)
    except (OSError, OverflowError) as e:
        raise SartorError(f"cannot listen on port {port} of {ADDRESS}: {e}; choose another --port, or 0.") from e
    made.daemon_threads = True
    return made
