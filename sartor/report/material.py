"""What a report is made of, read from the folders that `run`, `compare` and `reproduce` leave, also unfinished ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import need
from ..run.folder_schema import (
    CLIENTS,
    COLLABORATION,
    COMPARED,
    DATA,
    EXPERIMENT,
    HISTORY,
    METRICS,
    RECORD,
    SIGNIFICANCE,
    SUMMARY,
)
from ..run.folder_schema import PLAN as PLANNED
from ..run.recipe import SETTINGS, Recipe, flat
from ..storage import read_json, read_lines, read_toml, shaped
from ..study.compare import PLAN, Cell, Comparison
from ..study.scenarios import PLAIN, Scenario
from .entries import Found, Line, Material, ReportEntry, RunFolder
from .repeat import leaves
from .terminal import cell_name

# What may differ between runs that are the same but for chance.
_CHANCE = ("seed", *(name for name, about in SETTINGS.items() if about.idle and about.group != "evaluation"))


def read(folders: Sequence[Path]) -> Material:
    """The material of some folders together."""
    need(len(folders) > 0, "a report needs at least one folder of a run, a comparison or a repeated experiment.")
    cells: list[Found] = []
    material = Material("")
    for folder in folders:
        need(folder.is_dir(), f"{folder} is not a folder; a report is made of folders that run or compare left.")
        if (folder / "table.json").is_file() or (folder / "runs").is_dir():
            _take_experiment(folder, material)
        elif (folder / "recipe.toml").is_file() or (folder / "summary.json").is_file():
            run = read_run(folder)
            cells.append(_single(run))
        else:
            cells += _compared(folder, material)
    entries = _entries(cells)
    _by_folder(entries)
    material.entries = [*entries, *material.entries]
    material.metrics = _metrics(cells, entries)
    lone = len(cells) == 1 and not material.plans and not material.tables
    if cells and not lone:
        material.comparison = _comparison(cells, material)
    if len(folders) == 1 and (folders[0] / "significance.json").is_file():
        material.found = read_json(folders[0] / "significance.json", SIGNIFICANCE)
    material.title = _title(material, len(cells))
    return material


def read_run(folder: Path) -> RunFolder:
    """One run's files, as far as they are there."""
    run = RunFolder(folder)
    if (folder / "recipe.toml").is_file():  # else it was saved from Python
        run.recipe = _recipe(flat(read_toml(folder / "recipe.toml")), folder / "recipe.toml")
    if (folder / "history.jsonl").is_file():
        run.history = shaped(read_lines(folder / "history.jsonl"), HISTORY, str(folder / "history.jsonl"))
    run.clients = _found(folder / "clients.json", CLIENTS) or []
    run.summary = _found(folder / "summary.json", SUMMARY)
    run.data = _found(folder / "data.json", DATA)
    run.collaboration = _found(folder / "collaboration.json", COLLABORATION)
    run.metrics = _found(folder / "metrics.json", METRICS)
    return run


def read_cell(place: Path) -> RunFolder | None:
    """A cell of a comparison, if it has begun; a reference has no recipe, and is there when it has ended."""
    return read_run(place) if any((place / name).is_file() for name in ("recipe.toml", "summary.json")) else None


def _recipe(values: dict[str, Any], where: Path) -> dict[str, Any]:
    """A recipe's values, each of its own type; settings that are not known any more are left out."""
    known = {k: v for k, v in values.items() if k in SETTINGS}
    Recipe.of(known, str(where))
    return known


def _found(path: Path, shape: Any) -> Any:
    return read_json(path, shape) if path.is_file() else None


def _method(run: RunFolder) -> str:
    method = str(run.recipe.get("method") or (run.summary or {}).get("method", "?"))
    compress = run.recipe.get("compress", "none")
    return method if compress == "none" else f"{method}+{compress}"


def _scenario(run: RunFolder) -> Scenario:
    about = run.summary or run.recipe
    attack = str(about.get("attack", "none")).split("(")[0] if run.summary is None else str(about["attack"])
    return Scenario(attack, float(about.get("attackers") or 0.0), str(about.get("aggregator") or "mean"))


def _single(run: RunFolder) -> Found:
    return Found(_method(run), _scenario(run), run.seed, run, run.summary)


def _compared(folder: Path, material: Material) -> list[Found]:
    """The cells of a comparison, in the order in which they were asked for."""
    plan = _found(folder / PLAN, PLANNED)
    ended = _found(folder / "compare.json", COMPARED) or []
    if plan is None:  # a folder of runs
        runs = [read_run(p.parent) for p in sorted(folder.glob("*/recipe.toml"))]
        need(bool(runs), f"{folder} holds no run: neither recipe.toml nor plan.json nor runs in folders of their own.")
        return [_single(run) for run in runs]
    _recipe(plan["recipe"], folder / PLAN)
    material.plans.append(plan)
    cells = []
    for i, row in enumerate(plan["cells"]):
        place = folder / row["folder"]
        run = read_cell(place)
        summary = run.summary if run is not None else None
        if summary is None and len(ended) == len(plan["cells"]):
            summary = ended[i]  # it failed, or was refused
        scenario = Scenario(row["attack"], row["attackers"], row["aggregator"])
        cells.append(Found(row["method"], scenario, row["seed"], run, summary))
    return cells


def _entries(cells: Sequence[Found]) -> list[ReportEntry]:
    """Runs that differ by chance alone are one entry."""
    found: dict[tuple[str, Scenario, str], ReportEntry] = {}
    for method, scenario, _, run, _ in cells:
        if run is not None and run.history:
            same = json.dumps({k: v for k, v in run.recipe.items() if k not in _CHANCE}, sort_keys=True, default=str)
            found.setdefault((method, scenario, same), ReportEntry(method, scenario, [])).runs.append(run)
    return list(found.values())


def _by_folder(entries: Sequence[ReportEntry]) -> None:
    """Entries that would be called alike are told apart by their folders."""
    called = Counter((e.method, e.scenario) for e in entries)
    for entry in entries:
        if called[entry.method, entry.scenario] > 1:
            entry.method = f"{entry.method} ({entry.runs[0].folder.name})"


def _by_settings(entries: Sequence[ReportEntry]) -> None:
    """Entries that would be called alike are told apart by their methods' settings, or by whatever differs."""
    groups: dict[tuple[str, Scenario], list[ReportEntry]] = {}
    for entry in entries:
        groups.setdefault((entry.method, entry.scenario), []).append(entry)
    for alike in groups.values():
        recipes = [dict(leaves({k: v for k, v in e.runs[0].recipe.items() if k not in _CHANCE})) for e in alike]
        keys = [k for k in dict.fromkeys(k for r in recipes for k in r) if len({r.get(k) for r in recipes}) > 1]
        settings = [k for k in keys if k.startswith("settings.")]
        for entry, recipe in zip(alike, recipes, strict=True):
            said = (f"{k.removeprefix('settings.')}={recipe[k]}" for k in settings or keys if k in recipe)
            entry.method = ", ".join([entry.method, *said])


def _metrics(cells: Sequence[Found], entries: Sequence[ReportEntry]) -> dict[str, list[dict[str, Any]]]:
    """The metrics of every seed, by what the report calls them."""
    names = {id(run): entry.name for entry in entries for run in entry.runs}
    found: dict[str, list[dict[str, Any]]] = {}
    for method, scenario, _, run, summary in cells:
        if run is not None and run.metrics is not None:
            mark = (summary or {}).get("reference")
            name = names.get(id(run), ", ".join([method, *scenario.words()]) + (f" ({mark})" if mark else ""))
            found.setdefault(name, []).append(run.metrics)
    return found


def _comparison(cells: Sequence[Found], material: Material) -> Comparison:
    """The cells that have ended, as `sartor compare` has them."""
    names = {id(run): entry.method for entry in material.entries for run in entry.runs}
    made = []
    for method, scenario, seed, run, summary in cells:
        if summary is None:
            material.failures.append(f"{cell_name(method, scenario, seed)} has not ended")
            continue
        rows = [] if run is None or "error" in summary else [r for r in run.clients if not r.get("unseen")]
        scores = [r.get("chosen_test_accuracy") for r in rows]
        accuracy = np.array([np.nan if v is None else v for v in scores]) if rows else None
        made.append(Cell(names.get(id(run), method), seed, scenario, summary, accuracy, [r["name"] for r in rows]))
    clients: dict[int, list[str]] = {}
    if any(clients.setdefault(c.seed, c.names) != c.names for c in made if c.names):
        material.failures.append("runs of different clients are beside each other, and not tested against each other")
    recipes: dict[str, Recipe] = {}
    for entry in material.entries:
        known = {k: v for k, v in entry.runs[0].recipe.items() if k in SETTINGS}
        recipes.setdefault(entry.method, Recipe(**known))
    scenarios = list(dict.fromkeys(c.scenario for c in made)) or [PLAIN]
    return Comparison(recipes, scenarios, [c.method for c in made], made)


# --- repeated experiments ---------------------------------------------------------------------------------------------


def _take_experiment(folder: Path, material: Material) -> None:
    """The table of a repeated experiment, and its runs, of which only the means are kept."""
    if (folder / "table.json").is_file():
        material.tables.append(read_json(folder / "table.json", EXPERIMENT))
    records = [(p, read_json(p)) for p in sorted((folder / "runs").glob("*.json"))]
    cells = []
    for path, record in records:
        if isinstance(record, dict) and "error" not in record and "models" in record:
            run = _recorded(path, shaped(record, RECORD, str(path)))
            cells.append(_single(run))
    need(bool(material.tables or cells), f"{folder} holds no finished run of an experiment.")
    entries = _entries(cells)
    for entry in entries:
        about = entry.runs[0].recipe
        entry.method = f"{entry.method}, {about['data']}, {about['partition']}"
    _by_settings(entries)
    material.entries += entries


def _recorded(path: Path, record: dict[str, Any]) -> RunFolder:
    """A record of an experiment's run as a run, with a history of means alone."""
    lines = []
    for i, (round, spent) in enumerate(zip(record["rounds"], record["bytes"], strict=True)):
        line: Line = {"round": round, "bytes_up": spent, "bytes_down": 0, "diagnostics": {}, "warnings": []}
        for model, columns in record["models"].items():
            line[model] = {"accuracy_mean": columns["accuracy"][i], "loss_mean": columns["loss"][i]}
            line[model] |= {"accuracy_std": columns["std"][i], "loss_var": columns["loss_var"][i]}
        lines.append(line)
    if lines:
        lines[-1]["warnings"] = record.get("warnings", [])
    run = RunFolder(path, _recipe(record["recipe"], path), lines)
    if "weights" in record:
        names = [str(i) for i in range(len(record["weights"]))]
        run.collaboration = {"names": names, "weights": record["weights"]}
    return run


def _title(material: Material, cells: int) -> str:
    if material.tables and not cells:
        return str(material.tables[0]["title"])
    sets = list(dict.fromkeys(str(r.recipe.get("data", (r.summary or {}).get("data", "own"))) for r in material.runs))
    where = ", ".join(Path(s).name if "/" in s else s for s in sets[:3]) or "nothing yet"
    methods = list(dict.fromkeys(e.method for e in material.entries))
    if not methods and material.plans:  # nothing was scored
        methods, where = material.plans[0]["methods"], str(material.plans[0]["recipe"]["data"])
    if len(methods) == 1:
        return f"{methods[0]} on {where}"
    return f"{len(methods)} methods on {where}"
