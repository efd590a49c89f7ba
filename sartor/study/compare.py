"""Comparing methods on the same clients: every method in every scenario with every seed, resumable cell by cell."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data import Clients, Dataset
from ..errors import Diverged, OverBudget, SartorError, Silent, need, unknown
from ..judge.metric_table import metric_table
from ..judge.metrics import MODELS, ORACLE, gains, judge
from ..run.assemble import Tasks, assemble
from ..run.bytes import parse_bytes
from ..run.complete import complete, dealt, fingerprint, resolve, split
from ..run.folder_schema import CLIENTS, COUNTS, SUMMARY
from ..run.lockstep import at_once, play_together
from ..run.metrics_file import class_names
from ..run.named_parts import aggregator, attack, compressor
from ..run.newcomers import hold_out
from ..run.play import CHECKPOINT, play_recipe
from ..run.recipe import Recipe
from ..run.result import Result, client_rows
from ..spelling import split_compressor
from ..storage import read_json, read_note, write_json
from .ahead import Ahead, cores_for
from .equal_work import equal_steps, with_steps
from .references import MARK, REFERENCES, reference
from .scenarios import PLAIN, Scenario

PLAN = "plan.json"  # what a comparison is to run, in its order: for whoever looks at its folder
WORK = ("own_work", "gradients_per_client")
SPENT = ("accuracy_per_megabyte", "rounds_to_target", "bytes_to_target")


@dataclass
class Cell:
    """One method in one scenario with one seed: its summary and what each client got."""

    method: str
    seed: int
    scenario: Scenario
    summary: dict[str, Any]
    accuracy: np.ndarray | None = None  # [m] test accuracy of the chosen models; NaN: hostile, or no test data
    names: list[str] = field(default_factory=list)  # [m] what the clients are called
    loss: np.ndarray | None = None  # [m] as accuracy

    @property
    def entrant(self) -> str:
        """The method with its defence: "fedavg", "fedavg+median"."""
        rule = self.scenario.aggregator
        return self.method if rule == "mean" else f"{self.method}+{rule}"

    def beside(self, others: Sequence[Cell]) -> np.ndarray | None:
        """[m] what the same clients got with the same seed in one of the others; None where none is of them."""
        here = (c for c in others if c.accuracy is not None and (c.seed, c.names) == (self.seed, self.names))
        found = next(here, None)
        return None if found is None or self.accuracy is None else found.accuracy


@dataclass
class Comparison:
    """All cells so far, those still to come, and each method's recipe."""

    recipes: dict[str, Recipe]
    scenarios: list[Scenario]
    plan: list[str] = field(default_factory=list)  # the method of every cell, in order
    cells: list[Cell] = field(default_factory=list)
    took: dict[str, list[float]] = field(default_factory=dict)  # seconds of each cell that was played in this call
    at_once: int = 1  # processes that play
    together: dict[str, int] = field(default_factory=dict)  # by method how many of its cells go in lockstep
    playing: dict[int, int] = field(default_factory=dict)  # of cells that go in lockstep: by seed the rounds so far
    waiting: list[str] = field(default_factory=list)  # methods of cells that were played, before their turn

    def summaries(self) -> list[dict[str, Any]]:
        """What compare.json holds."""
        return [c.summary for c in self.cells]

    def left(self) -> float | None:
        """The seconds that the cells to come will take, if they take as long as their method's have; None: no idea."""
        means = {method: sum(times) / len(times) for method, times in self.took.items()}
        if not means:
            return None
        usual = sum(map(sum, self.took.values())) / sum(map(len, self.took.values()))
        rest, done = (sum(means.get(m, usual) for m in some) for some in (self.plan[len(self.cells) :], self.waiting))
        return max(0.0, rest - done) / self.at_once

    def rows(self) -> list[dict[str, Any]]:
        """A row per method and scenario, averaged over seeds; in the order they were asked for."""
        groups: dict[tuple[Scenario, str], list[Cell]] = {}
        for c in self.cells:
            groups.setdefault((c.scenario, c.method), []).append(c)
        return [self._row(cells) for cells in groups.values()]

    def by_client(self, scenario: Scenario = PLAIN) -> list[dict[str, Any]]:
        """A row per client: the test accuracy of its chosen model by method, averaged over seeds, in one scenario.

        Where clients are drawn anew for each seed, only the first seed's can be told apart by name.
        """
        done = [c for c in self.cells if c.accuracy is not None and c.names and c.scenario == scenario]
        natural = all(r.partition.startswith("natural") for r in self.recipes.values())
        found: dict[str, dict[str, list[float]]] = {}
        for c in [c for c in done if natural or c.seed == done[0].seed]:
            assert c.accuracy is not None
            for name, value in zip(c.names, c.accuracy.tolist(), strict=True):
                found.setdefault(name, {}).setdefault(c.method, []).append(value)
        return [
            {"client": name} | {m: None if np.isnan(v).all() else float(np.nanmean(v)) for m, v in own.items()}
            for name, own in found.items()
        ]

    def _row(self, cells: Sequence[Cell]) -> dict[str, Any]:
        good = [c for c in cells if "error" not in c.summary]
        failed = [c for c in cells if "error" in c.summary]
        row: dict[str, Any] = {"method": cells[0].method, "entrant": cells[0].entrant, **cells[0].scenario._asdict()}
        row |= {"scenario": cells[0].scenario, "seeds": len(good), "refused": None}
        row["errors"] = [f"seed {c.seed}: {c.summary['error']}" for c in failed if "refused" not in c.summary]
        row["refused"] = next((c.summary["error"] for c in failed if "refused" in c.summary), None)
        for model in (*MODELS, ORACLE):
            found = [c.summary[model] for c in good if c.summary.get(model) is not None]
            row[model] = {k: _mean([f.get(k) for f in found]) for k in found[0]} if found else None
            if found:
                row[model]["accuracy_seed_std"] = float(np.std([f["accuracy_mean"] for f in found]))
        for k in ("bytes_up", "bytes_down", "seconds", *SPENT):
            row[k] = _mean([c.summary[k] for c in good]) if good else None
        work = [c.summary.get("gradients_per_client") for c in good]  # runs of before have none
        row["gradients"] = {k: _mean([w[k] for w in work if w]) for k in work[0] or {}} if work and all(work) else None
        row |= {k: next((c.summary.get(k) for c in cells), None) for k in ("local_steps", "own_work", "personal_model")}
        row["reference"] = cells[0].summary.get("reference")
        row["metric"] = next((c.summary["metric"] for c in cells if "metric" in c.summary), None)
        row |= {k: cells[0].summary[k] for k in ("compress", "compress_down", "budget", "target_accuracy")}
        row["unseen"] = _over_seeds([c.summary["unseen"] for c in good if c.summary.get("unseen")])
        row["privacy"] = good[0].summary.get("privacy") if good else None
        row["gain"], row["lose"], row["of"] = self._against_local(good)
        row["warnings"] = list(dict.fromkeys(w for c in good for w in c.summary["warnings"]))
        return row

    def _against_local(self, cells: Sequence[Cell]) -> tuple[int, int, int] | tuple[None, None, None]:
        """Clients better off, worse off, and all that can be compared, over the seeds where local training ended."""
        alone: dict[tuple[str, float], list[Cell]] = {}
        for c in self.cells:
            if c.method == "local":
                alone.setdefault(c.scenario.attacked, []).append(c)
        others = [(c, c.beside(alone.get(c.scenario.attacked, []))) for c in cells if c.method != "local"]
        pairs = [(c.accuracy, own) for c, own in others if c.accuracy is not None and own is not None]
        if not pairs:
            return None, None, None
        ours, theirs = (np.concatenate(side) for side in zip(*pairs, strict=True))
        return *gains(ours, theirs), int((~np.isnan(ours + theirs)).sum())


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in table.items() if v is not None}


def _over_seeds(found: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """What unseen clients get, averaged."""
    if not found:
        return None
    out: dict[str, Any] = {k: found[0][k] for k in ("clients", "steps")}
    for model in MODELS:
        each = [f[model] for f in found if f[model] is not None]
        out[model] = {k: _mean([e.get(k) for e in each]) for k in each[0]} if each else None
    return out


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean over seeds; None where one of them has no such number."""
    return None if any(v is None for v in values) else float(np.mean([v for v in values if v is not None]))


class Step(NamedTuple):
    """A moment of a comparison: the cell at work and its result so far; None: the cell is complete."""

    table: Comparison
    method: str
    seed: int
    scenario: Scenario
    result: Result | None


def compare(
    base: Recipe,
    methods: Sequence[str],
    seeds: Sequence[int],
    dataset: Dataset,
    folder: Path | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    scenarios: Sequence[Scenario] = (PLAIN,),
    own_steps: bool = False,
    references: Sequence[str] = (),
    lockstep: bool = True,
) -> Iterator[Step]:
    """Run every method in every scenario with every seed, all on the same clients; yields after every round, and when
    a cell is complete. A method may be written with a compressor of its own: "fedavg+top-k(k=0.05)".

    A cell that diverges, whose first round exceeds the budget, or that is refused because of its scenario (Krum with
    too few clients, an aggregator on a method that takes no mean), is kept with its reason and the others go on. With a
    folder, finished cells are not run again. All methods evaluate the same number of gradients (equal_work.py); with
    `own_steps` each takes as many as it does by default. `references` are what people would use instead
    (references.py), beside the methods where nobody attacks; they are fitted anew in each call. `lockstep`: a method's
    runs with all seeds go together where they gain by it (run/lockstep.py); other cores play further cells.
    """
    for name in references:
        if name not in REFERENCES:
            raise unknown("reference", name, REFERENCES)
    need(not references or PLAIN in scenarios, "references are of clean data: compare without an attack as well.")
    for what, values in (("method", methods), ("seed", seeds), ("reference", references)):
        need(len(set(values)) == len(values), f"a {what} is listed twice: {', '.join(map(str, values))}.")
    base = base.replace(partition=dealt(base, dataset))
    plain = {m: _recipe(base, m, PLAIN, settings) for m in methods}
    for recipe in plain.values():
        resolve(recipe)
    first = split(base.replace(seed=seeds[0]), dataset)
    if base.local_steps is None and not own_steps:
        base = base.replace(local_steps=equal_steps(plain.values(), first))
        plain = {m: _recipe(base, m, PLAIN, settings) for m in methods}
    for scenario in scenarios:
        aggregator(scenario.aggregator)
        attack(scenario.attack)
    cells = [(scenario, method) for scenario in scenarios for method in methods]
    planned = False  # not before it is sure that what is in the folder is of this comparison
    table = Comparison(plain, list(scenarios), [m for _ in seeds for m in (*(m for _, m in cells), *references)])
    for method, recipe in plain.items():  # whatever can be refused is refused before the first round
        table.together[method] = min(at_once(assemble(recipe, first).run.engine), len(seeds)) if lockstep else 1
    others = [cell for cell in cells if cell[0] != PLAIN]
    refused = dict.fromkeys(cells) | {
        (scenario, m): _refusal(_recipe(base, m, scenario, settings), first) for scenario, m in others
    }
    need(None in refused.values(), f"nothing is left to run: {refused[cells[0]]}")
    each = {seed: first if seed == seeds[0] else split(base.replace(seed=seed), dataset) for seed in seeds}
    ahead: Ahead | None = None
    jobs = {
        (seed, *cell): (_recipe(base, cell[1], cell[0], settings).replace(seed=seed), each[seed])
        for seed in seeds
        for cell in cells
        if refused[cell] is None
    }
    groups = _groups(jobs, table.together)
    numbers = {job: number for number, group in enumerate(groups) for job in group}
    here = set[int]()  # groups that are played in this process
    heard: dict[Job, Result | SartorError] = {}
    tasks: Tasks = {}
    try:
        for seed, clients in each.items():
            for scenario, method in cells:
                place = None if folder is None else folder / cell_name(method, seed, scenario)
                if (reason := refused[scenario, method]) is not None:
                    recipe = _recipe(base, method, scenario, settings).replace(seed=seed)
                    summary = _failed(recipe, plain[method], clients, reason) | {"refused": True}
                    table.cells.append(Cell(method, seed, scenario, summary))
                    yield Step(table, method, seed, scenario, None)
                    continue
                job = seed, scenario, method
                number = numbers[job]
                group: Jobs = {}
                if number in here or ahead is None or ahead.take(number):
                    group = {} if number in here else {own: jobs[own] for own in groups[number]}
                    here.add(number)
                else:
                    ahead.wait(number)
                recipe = jobs[job][0]
                for step in chain(
                    _play_group(table, group, folder, heard, tasks),
                    _play_cell(table, job, recipe, plain[method], clients, place, heard, tasks),
                ):
                    planned = planned or _keep_plan(folder, base, methods, seeds, settings, scenarios, references)
                    assert step.result is not None
                    ahead = ahead or _played_ahead(jobs, groups, number, folder, step.result, tasks)
                    table.at_once = 1 if ahead is None else 1 + len(ahead.processes)
                    yield step
                planned = planned or _keep_plan(folder, base, methods, seeds, settings, scenarios, references)
                yield Step(table, method, seed, scenario, None)
            for name in references:
                table.cells.append(_reference_cell(name, plain[methods[0]].replace(seed=seed), clients, folder))
                yield Step(table, name, seed, PLAIN, None)
    finally:
        if ahead is not None:
            ahead.close()


Job = tuple[int, Scenario, str]  # a cell's seed, scenario and method
Jobs = Mapping[Job, tuple[Recipe, Clients]]


def _groups(jobs: Jobs, together: Mapping[str, int]) -> list[list[Job]]:
    """Cells that go in lockstep: a method's without attacks, so many of its seeds at a time; others go alone."""
    groups: list[list[Job]] = []
    open_: dict[str, list[Job]] = {}
    for job in jobs:
        _, scenario, method = job
        mine = open_.get(method, [])
        if scenario != PLAIN or not mine or len(mine) >= together[method]:
            mine = []
            groups.append(mine)
            open_ |= {method: mine} if scenario == PLAIN else {}
        mine.append(job)
    return groups


def _played_ahead(
    jobs: Jobs, groups: Sequence[Sequence[Job]], now: int, folder: Path | None, result: Result, tasks: Tasks
) -> Ahead | None:
    """Other cores for the groups behind this one; None: they are not needed."""
    recipe = next(iter(jobs.values()))[0]
    spare = min(cores_for(result), len(groups) - now - 1)
    if folder is None or spare < 1 or recipe.workers is not None:
        return None
    made = Ahead([partial(_unfinished, {job: jobs[job] for job in group}, folder, tasks) for group in groups], spare)
    for done in range(now + 1):
        made.take(done)
    return made


def _unfinished(group: Jobs, folder: Path, tasks: Tasks) -> Iterator[object]:
    """Play the cells of a group, but not those that an earlier call has finished."""
    places = {job: folder / cell_name(job[2], job[0], job[1]) for job in group}
    plays = [
        play_recipe(*group[job], place, tasks=tasks)
        for job, place in places.items()
        if not (place / "summary.json").exists()
    ]
    yield from plays[0] if len(plays) == 1 else play_together(plays)


def _keep_plan(
    folder: Path | None,
    base: Recipe,
    methods: Sequence[str],
    seeds: Sequence[int],
    settings: Mapping[str, Mapping[str, Any]] | None,
    scenarios: Sequence[Scenario],
    references: Sequence[str],
) -> bool:
    """Write plan.json: what was asked for, and a row for each cell."""
    if folder is None:
        return True
    each = [*((scenario, method) for scenario in scenarios for method in methods), *((PLAIN, r) for r in references)]
    cells = [(seed, scenario, method) for seed in seeds for scenario, method in each]
    rows = [
        {"folder": cell_name(method, seed, scenario), "method": method, "seed": seed, **scenario._asdict()}
        for seed, scenario, method in cells
    ]
    own = {name: dict(values) for name, values in (settings or {}).items() if values}
    asked: dict[str, Any] = {"methods": list(methods), "seeds": list(seeds), "settings": own}
    asked |= {"references": list(references)} if references else {}
    write_json(folder / PLAN, asked | {"recipe": _without_none(base.values()), "cells": rows})
    return True


def cell_name(method: str, seed: int, scenario: Scenario) -> str:
    """The folder of a cell."""
    words = [method, str(seed)]
    if scenario != PLAIN:
        words += [scenario.attack, f"{scenario.attackers:g}", scenario.aggregator]
    return "-".join(words).replace(" ", "")


def _recipe(base: Recipe, entrant: str, scenario: Scenario, settings: Mapping[str, Mapping[str, Any]] | None) -> Recipe:
    method, compress = split_compressor(entrant)
    if compress is not None:
        compressor(compress)  # refuses what is no compressor
    own = dict((settings or {}).get(method, {}))
    known = {"method": method, "settings": own, "compress": base.compress if compress is None else compress}
    return with_steps(base.replace(**{**known, **scenario._asdict()}), base.local_steps)


def _refusal(recipe: Recipe, clients: Clients) -> str | None:
    """Why this cell cannot be run; None: it can."""
    try:
        assemble(recipe, clients)
    except SartorError as e:
        return str(e)
    return None


def _play_group(
    table: Comparison, group: Jobs, folder: Path | None, heard: dict[Job, Result | SartorError], tasks: Tasks
) -> Iterator[Step]:
    """Play a group's cells in lockstep; what came of them is kept in `heard` until each has its turn, but what is in
    folders stays there. One cell alone is played when it has its turn."""
    places = {job: None if folder is None else folder / cell_name(job[2], job[0], job[1]) for job in group}
    left = [job for job, place in places.items() if place is None or _finished(job, *group[job], place) is None]
    if len(left) < 2:
        return
    began, method = time.perf_counter(), left[0][2]
    for i, said in play_together([play_recipe(*group[job], places[job], tasks=tasks) for job in left]):
        job = left[i]
        if folder is None or isinstance(said, SartorError):
            heard[job] = said
        if isinstance(said, Result):
            table.playing[job[0]] = said.run.round
            yield Step(table, method, job[0], job[1], said)
    table.took.setdefault(method, []).extend([(time.perf_counter() - began) / len(left)] * len(left))
    table.waiting += [method] * len(left)
    table.playing.clear()


def _play_cell(
    table: Comparison,
    job: Job,
    recipe: Recipe,
    plain: Recipe,
    clients: Clients,
    place: Path | None,
    heard: dict[Job, Result | SartorError],
    tasks: Tasks,
) -> Iterator[Step]:
    """Play one cell, or take it from its folder or from what was heard of it where it is finished, and add it to the
    table."""
    seed, scenario, method = job
    said = heard.pop(job, None)
    cell = _finished(job, recipe, clients, place) if place is not None and said is None else None
    began, result = time.perf_counter(), said if isinstance(said, Result) else None
    played = False
    try:
        if isinstance(said, SartorError):
            raise said
        for result in play_recipe(recipe, clients, place, tasks=tasks) if cell is None and said is None else ():
            played = True
            yield Step(table, method, seed, scenario, result)
        if cell is None:
            assert result is not None
            accuracy, loss = (result.scores[f"chosen/test/{k}"] for k in ("accuracy", "loss"))
            cell = Cell(method, seed, scenario, result.summary, accuracy, result.data.names, loss)
    except (Diverged, Silent, OverBudget) as e:
        cell = Cell(method, seed, scenario, _failed(recipe, plain, clients, str(e)))
    if played:
        table.took.setdefault(method, []).append(time.perf_counter() - began)
    elif method in table.waiting:
        table.waiting.remove(method)
    table.cells.append(cell)


def _reference_cell(name: str, plain: Recipe, clients: Clients, folder: Path | None) -> Cell:
    """A reference on the clients that take part, as if it were a method that sends nothing; kept in a folder."""
    seed, (seen, _) = plain.seed, hold_out(clients, plain.unseen, plain.seed)
    metric = assemble(plain, clients).settings["metric"]
    found = reference(name, seen, seed, metric)
    model = "global" if name.startswith("pooled") else "personal"
    scores = {f"{m}/test/{what}": v for what, v in found.scores.items() for m in (model, "chosen")}
    summary = _failed(plain, plain, seen, "") | {"method": name, "model": "scikit-learn", "reference": MARK}
    summary |= {**dict.fromkeys((*COUNTS, "bytes_up", "bytes_down", "hostile", "reported_round", "rounds"), 0)}
    summary |= {"local_steps": None, "compress": "none", "compress_down": "none", "stopped": "rounds"}
    summary |= {**judge(scores, seen.counts("test")), "seconds": round(found.seconds, 3)}
    summary |= {} if metric is None else {"metric": metric}
    del summary["error"]
    if folder is not None:
        place = folder / cell_name(name, seed, PLAIN)
        write_json(place / "clients.json", client_rows(seen, scores, np.zeros(len(seen), dtype=bool), chosen=model))
        table = metric_table({"chosen": found.predicted}, seen.names, class_names(seen), seed)
        write_json(place / "metrics.json", table, indent=None)
        write_json(place / "summary.json", summary)
    return Cell(name, seed, PLAIN, summary, found.scores["accuracy"], seen.names)


def _failed(recipe: Recipe, plain: Recipe, clients: Clients, error: str) -> dict[str, Any]:
    """The summary of a run that did not end, or did not begin."""
    full = complete(plain, clients)
    known = {k: getattr(full, k) for k in ("method", "data", "partition", "model", "clients", "cohort")}
    same = (
        "local_steps",
        "rounds",
        "report",
        "seed",
        "drop",
        "stragglers",
        "compress",
        "compress_down",
        "target_accuracy",
    )
    known |= {k: getattr(recipe, k) for k in (*same, *Scenario._fields)}
    known["budget"] = None if recipe.budget is None else parse_bytes(recipe.budget)
    empty = ("reported_round", "seconds", "bytes_up", "bytes_down", "parameters", "hostile", "stopped")
    blocks = (*COUNTS, *MODELS, "personal_model", "choice", "unseen", "privacy")
    return {**known, **dict.fromkeys((*empty, *SPENT, *WORK, *blocks)), "warnings": [], "error": error}


def _finished(job: Job, recipe: Recipe, clients: Clients, place: Path) -> Cell | None:
    """A cell that an earlier call has completed with the same settings and data."""
    if not (place / "summary.json").exists() or not (place / "recipe.toml").exists():
        return None
    same = Recipe.load(place / "recipe.toml") == complete(recipe, clients)
    need(
        same and read_note(place / CHECKPOINT).get("settings") == fingerprint(complete(recipe, clients), clients),
        f"{place} holds a run with other settings or other data; choose another --out folder.",
    )
    summary = read_json(place / "summary.json", SUMMARY)
    if summary["rounds"] != recipe.rounds and summary["stopped"] == "rounds":  # a longer run that has not ended yet
        return None
    rows = [r for r in read_json(place / "clients.json", CLIENTS) if not r.get("unseen")]
    each = [[r[f"chosen_test_{k}"] for r in rows] for k in ("accuracy", "loss")]
    accuracy, loss = np.array([[np.nan if v is None else v for v in own] for own in each])
    seed, scenario, method = job
    return Cell(method, seed, scenario, summary, accuracy, [r["name"] for r in rows], loss)
