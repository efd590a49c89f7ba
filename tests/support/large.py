"""A run or comparison of many clients, made of one with few: every client of its files over and over, under new names.

What a report has to show is as large as after a real run, and is there in a second.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sartor.judge.metric_table import ROOM
from sartor.judge.prediction_curves import NUMBERS_OF_ONE

TEN = "flame,pfedme,ditto,mr-mtl,fedamp,fedavg,fedavg-ft,fedprox,apfl,local"


def enlarge(folder: Path, clients: int) -> None:
    """Give every run in a folder this many clients, in the files that a report is made of."""
    for path in sorted(folder.rglob("clients.json")):
        run = path.parent
        if not (run / "recipe.toml").is_file():
            continue
        _rewrite(path, lambda rows: _many(rows, clients))
        _rewrite(run / "data.json", lambda about: _data(about, clients))
        _rewrite(run / "metrics.json", lambda found: _metrics(found, clients))
        _rewrite(run / "summary.json", lambda found: found | {"clients": clients, "cohort": clients})
        if (run / "collaboration.json").is_file():
            (run / "collaboration.json").unlink()


def _rewrite(path: Path, change: Any) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def _many(rows: list[dict[str, Any]], clients: int) -> list[dict[str, Any]]:
    """Scores differ a little, so that sorting has something to do."""
    found = []
    for i in range(clients):
        row = rows[i % len(rows)] | {"name": _name(i)}
        shift = (i * 7919 % 1000) / 1e4
        row |= {k: max(0.0, v - shift) for k, v in row.items() if k.endswith("accuracy") and isinstance(v, float)}
        found.append(row | ({"client": i} if "client" in row else {}))
    return found


def _data(about: dict[str, Any], clients: int) -> dict[str, Any]:
    each = {k: [about[k][i % len(about[k])] for i in range(clients)] for k in ("samples", "labels") if about.get(k)}
    return about | each | {"names": [_name(i) for i in range(clients)]}


def _metrics(found: dict[str, Any], clients: int) -> dict[str, Any]:
    for table in found["models"].values():
        table["clients"] = _many(table["clients"], clients)
        if clients * NUMBERS_OF_ONE > ROOM:  # as a run of so many leaves it
            for row in table["clients"]:
                for name in ("curves", "missing", "intervals"):
                    row.pop(name, None)
    return found | {"clients": clients}


def _name(i: int) -> str:
    return f"site-{i:05d}"
