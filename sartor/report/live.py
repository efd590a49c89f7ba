"""A live page of a folder while a run or a comparison goes on in it: what the page holds, and what has changed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ..errors import SartorError
from ..storage import read_json
from ..study.compare import PLAN
from ..study.scenarios import Scenario
from . import curves, diagnostics, overview
from .entries import Material, RunFolder
from .material import read, read_run
from .page import html_of
from .pieces import Chart, Section, Shown, Table, Words, text_of
from .terminal import cell_name, left


def page(folder: Path) -> str:
    """The page as it is now; its script asks for `state` and brings it up to date."""
    title, lead, sections = _now(folder)
    return html_of(title, sections, lead, live=True)


def state(folder: Path) -> dict[str, Any]:
    """What has changed on the page: sentences, charts and tables; `parts` says which there are."""
    title, lead, sections = _now(folder)
    parts = [part for section in sections for part in section.parts]
    charts = {p.name: p.island() for p in parts if isinstance(p, Chart)}
    tables = {p.id: [[_cell(c) for c in row] for row in p.rows] for p in parts if isinstance(p, Table)}
    names = json.dumps([sorted(charts), sorted(tables)])
    mark = hashlib.sha256(names.encode()).hexdigest()[:16]
    return {"title": title, "parts": mark, "lead": [[w.text, w.kind] for w in lead], "charts": charts, "tables": tables}


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
    found = [Section("progress", "How far it is", [table]), curves.section(material), diagnostics.section(material)]
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
    for i, cell in enumerate(read_json(folder / PLAN)["cells"]):
        place = folder / cell["folder"]
        scenario = Scenario(cell["attack"], cell["attackers"], cell["aggregator"])
        run = read_run(place) if (place / "recipe.toml").is_file() else None
        found.append(_row(cell_name(cell["method"], scenario, cell["seed"]), run, ended.get(i)))
    return found


def _failures(folder: Path) -> dict[int, str]:
    """By place in the plan: the cells of which a finished comparison says that they failed."""
    if not (folder / "compare.json").is_file():
        return {}
    return {i: s["error"] for i, s in enumerate(read_json(folder / "compare.json")) if "error" in s}


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
