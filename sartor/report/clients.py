"""Who gains and who loses by federating: each client alone, with the global, the personal and the chosen model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..judge.metrics import SHOWN
from . import chart_style
from .entries import Material, ReportEntry, RunFolder
from .pieces import Chart, Section, Shown, Table, Words, plain, short
from .terminal import number, takes

MODELS = ("local", *SHOWN)
MOST = 60  # clients that are drawn
ROOM = 20_000  # rows of numbers: up to so many there is one for every client


class ClientRow(NamedTuple):
    """A client's test scores by model, over the seeds in which it is the same client."""

    name: str
    scores: dict[str, float]

    @property
    def gain(self) -> float | None:
        """What its chosen model is better than training alone."""
        both = "local" in self.scores and "chosen" in self.scores
        return self.scores["chosen"] - self.scores["local"] if both else None


def section(material: Material) -> Section | None:
    """Dumbbells for each entry; of a single run also the table."""
    lone = len(material.entries) == 1
    alone = {(run.seed, e.scenario.attacked): run for e in material.entries if _is_local(e) for run in e.runs}
    shown = [e for e in material.entries if lone or not _is_local(e)]
    found = {e.name: _clients(e, alone) for e in shown}
    best = sorted((e for e in shown if found[e.name]), key=_mean, reverse=True)
    found = {e.name: found[e.name] for e in best}
    parts: list[Words | Table | Chart] = []
    if found:
        parts.append(_chart(found, material.score, bool(alone) and not lone))
        if not alone:
            more = "To see who gains by federating, put the method local beside: sartor compare --methods ..., local."
            parts.append(Words(more, "soft"))
    if lone and material.runs[0].clients:
        parts.append(_table(material.runs[0]))
    title = "Who gains, who loses by federating" if alone and not lone else "Each client"
    return Section("clients", title, parts) if parts else None


def _mean(entry: ReportEntry) -> float:
    """How good it is, by all seeds."""
    ends = [(run.summary or run.history[-1]).get("chosen") for run in entry.runs]
    return float(np.mean([end["accuracy_mean"] for end in ends if end is not None]))


def _is_local(entry: ReportEntry) -> bool:
    return entry.runs[0].recipe.get("method", (entry.runs[0].summary or {}).get("method")) == "local"


def _clients(entry: ReportEntry, alone: dict[Any, RunFolder]) -> list[ClientRow]:
    """Sorted by gain, the losers first; without local training by the chosen model's score."""
    natural = str(entry.runs[0].recipe.get("partition", "")).startswith("natural")
    scores: dict[str, dict[str, list[float]]] = {}
    for run in entry.runs if natural else entry.runs[:1]:  # drawn anew for each seed, clients only share their names
        own = alone.get((run.seed, entry.scenario.attacked))
        by_name = {r["name"]: r for r in own.clients} if own is not None else {}
        for row in run.clients:
            values = {m: row.get(f"{m}_test_accuracy") for m in SHOWN}
            values["local"] = by_name.get(row["name"], {}).get("personal_test_accuracy")
            for model, value in values.items():
                if value is not None:
                    scores.setdefault(row["name"], {}).setdefault(model, []).append(value)
    means = [ClientRow(name, {m: float(np.mean(v)) for m, v in own.items()}) for name, own in scores.items()]
    return sorted(means, key=lambda c: (c.gain if c.gain is not None else 0.0, c.scores.get("chosen", 0.0)))


def _chart(found: dict[str, list[ClientRow]], score: str, compared: bool) -> Chart:
    variants = {name: _dumbbells(clients, score) for name, clients in found.items()}
    few = sum(map(len, found.values())) <= ROOM  # else the numbers of those that are drawn
    kept = {name: clients if few else _drawn(clients)[0] for name, clients in found.items()}
    rows = [
        [name, c.name, *(c.scores.get(m) for m in MODELS), c.gain] for name, clients in kept.items() for c in clients
    ]
    caption = f"Test {score} of each client: " + (
        "alone, then with the global, the personal and the chosen model (one of these two or a mixture of them). "
        "The bar goes from training alone to the chosen model: blue where the client gains, orange where it loses."
        if compared
        else "with the global, the personal and the chosen model (one of these two or a mixture of them)."
    )
    head = ["method", "client", *MODELS, "gain"]
    switches = {"method": list(found)} if len(found) > 1 else {}
    if not switches:
        variants = {"": next(iter(variants.values()))}
    return Chart("clients", caption, variants, head, rows, switches)


def _dumbbells(clients: Sequence[ClientRow], score: str) -> dict[str, Any]:
    drawn, note = _drawn(clients)
    data = []
    for label, colour, sign in (("gains", "--c0", 1), ("loses", "--c1", -1)):
        mine = [(y, c) for y, c in enumerate(drawn) if c.gain is not None and c.gain * sign > 1e-12]
        x = [v for _, c in mine for v in (c.scores["local"], c.scores["chosen"], None)]
        ys = [v for y, _ in mine for v in (y, y, None)]
        if mine:
            bar = {"color": f"{colour} 0.45", "width": 7}
            data.append({"x": x, "y": ys, "mode": "lines", "line": bar, "name": f"{label} ({len(mine)})"})
    for model in MODELS:
        mine = [(y, c) for y, c in enumerate(drawn) if model in c.scores]
        if mine:
            marks = {
                "mode": "markers",
                "marker": chart_style.MODEL_MARKS[model],
                "name": "alone" if model == "local" else model,
            }
            names = [plain(c.name) for _, c in mine]
            hover = {"customdata": names, "hovertemplate": "%{customdata}: %{x:.3f}"}
            data.append({"x": [c.scores[model] for _, c in mine], "y": [y for y, _ in mine], **marks, **hover})
    axis: dict[str, Any] = {
        "tickvals": list(range(len(drawn))),
        "ticktext": [short(c.name) for c in drawn],
        "zeroline": False,
    }
    axis |= {"range": [-0.7, len(drawn) - 0.3], "title": {"text": "client"}}
    layout = {"xaxis": chart_style.scores(f"test {score}"), "yaxis": axis}
    return {"data": data, "layout": layout, "height": 110 + 21 * len(drawn), "note": note}


def _drawn(clients: Sequence[ClientRow]) -> tuple[Sequence[ClientRow], str]:
    """Those that are drawn, and a sentence on all."""
    gains = [c.gain for c in clients if c.gain is not None]
    note = ""
    if gains:
        up, down = sum(g > 1e-12 for g in gains), sum(g < -1e-12 for g in gains)
        same = len(gains) - up - down
        note = f"{up} of {len(gains)} clients are better off than alone, {down} worse"
        note += f", {same} the same" if same else ""
        note += f"; {np.mean(gains):+.3f} in the mean"
        note += f", {min(gains):+.3f} for the one that loses most." if down else "."
    if len(clients) <= MOST:
        return clients, note
    half = MOST // 2
    ends = "those that lose and those that gain most" if gains else "those with the lowest and the highest scores"
    return [*clients[:half], *clients[-half:]], f"{note} Drawn are {MOST} of {len(clients)}: {ends}.".strip()


def _table(run: RunFolder) -> Table:
    """A row per client of one run."""
    parts = ("train", "validation", "test")
    models = [m for m in SHOWN if f"{m}_test_accuracy" in run.clients[0]]
    rows = [
        [r["name"], *(r[p] for p in parts), *(_score(r.get(f"{m}_test_accuracy")) for m in models), takes(r)]
        for r in run.clients
    ]
    return Table(["client", *parts, *models, "takes"], rows, id="each-client", find="client")


def _score(value: float | None) -> Shown:
    return Shown(number(value), value)
