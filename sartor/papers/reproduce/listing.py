"""What there is to repeat: `sartor reproduce --list`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .cells import about, papers
from .experiment import load, names
from .mapping import Size
from .table import Reproduction
from .workload import seconds


def titles() -> list[tuple[str, str, str]]:
    """Name, paper and title of each experiment."""
    found = [load(name)[0] for name in names()]
    return [(e.name, papers(e), e.title) for e in found]


def listing() -> list[dict[str, Any]]:
    """A row for each experiment: name, paper, what, runs and minutes on two idle cores, full and quick."""
    rows = []
    for name in names():
        e = load(name)[0]
        files = about(e)
        row: dict[str, Any] = {
            "name": name,
            "paper": papers(e),
            "where": "; ".join(dict.fromkeys(f["where"] for f in files)),
            "line": e.title,
        }
        for size, quick in (("", False), ("quick_", True)):
            made = Reproduction(e, Size.of(e, quick), Path())
            runs, minutes = _workload(made)
            row |= {f"{size}cells": len(made.cells), f"{size}runs": runs, f"{size}minutes": minutes}
        rows.append(row)
    return rows


def _workload(made: Reproduction) -> tuple[int, float]:
    """How many runs there are, those that coincide once, and how long they will take."""
    known: dict[str, float] = {}
    for entry in made.entries.values():
        column = entry.column
        wanted = [(v, s) for v in column.variants for s in column.searched]
        wanted += [(column.variants[0], s) for s in column.size.seeds if s not in column.searched]
        for variant, seed in wanted:
            recipe = column.recipe(variant, seed)
            known.setdefault(json.dumps(recipe.values(), sort_keys=True), seconds(recipe))
    return len(known), round(sum(known.values()) / 60, 1)
