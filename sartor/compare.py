"""Comparing methods on the same clients: every method with every seed, resumable; who gains or loses against local."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .data import Clients, Dataset
from .errors import Diverged, Silent, need
from .judge.metrics import MODELS, gains
from .recipe import Recipe
from .result import Result, write_history
from .rounds import COUNTS, play
from .storage import read_json, read_note

CHECKPOINT, ROWS = Path("state", "checkpoint.safetensors"), Path("state", "rows")


def play_recipe(recipe: Recipe, clients: Clients, folder: Path | None) -> Iterator[Result]:
    """Play one recipe on its clients, going on from a checkpoint in `folder` if there is one; everything is kept there.

    Yields the result as it stands, before the first round and after each one.
    """
    if folder is not None and not (folder / CHECKPOINT).exists():
        shutil.rmtree(folder / ROWS, ignore_errors=True)  # of a run that was killed before its first checkpoint
    result = recipe.start(clients, folder)
    checkpoint, mark = None, ""
    if folder is not None:
        checkpoint, mark = folder / CHECKPOINT, recipe.fingerprint(clients)
        if checkpoint.exists():
            result.run.restore(checkpoint, mark)
            played = result.run.round
            need(played <= recipe.rounds, f"{folder} has played {played} rounds; it cannot go back to {recipe.rounds}.")
        recipe.complete(clients).save(folder)  # not before it is sure that the folder's checkpoint is this run's
    yield result
    for line in play(
        result.run,
        recipe.rounds,
        evaluate_every=recipe.evaluate_every,
        diagnose=recipe.diagnostics,
        checkpoint=checkpoint,
        checkpoint_every=recipe.checkpoint_every,
        settings=mark,
    ):
        if folder is not None and line is not None:
            write_history(folder, result.history)
        yield result
    if folder is not None:
        result.save(folder)


@dataclass
class Cell:
    """One method with one seed: its summary and what each client got."""

    method: str
    seed: int
    summary: dict[str, Any]
    accuracy: np.ndarray | None = None  # [m] test accuracy of the chosen models


@dataclass
class Comparison:
    """All cells so far, and each method's recipe."""

    recipes: dict[str, Recipe]
    cells: list[Cell] = field(default_factory=list)

    def summaries(self) -> list[dict[str, Any]]:
        """What compare.json holds."""
        return [c.summary for c in self.cells]

    def rows(self) -> list[dict[str, Any]]:
        """A row per method, averaged over seeds; methods in the order they were asked for."""
        return [self._row(method) for method in dict.fromkeys(c.method for c in self.cells)]

    def _row(self, method: str) -> dict[str, Any]:
        cells = [c for c in self.cells if c.method == method]
        good = [c for c in cells if "error" not in c.summary]
        errors = [f"seed {c.seed}: {c.summary['error']}" for c in cells if "error" in c.summary]
        row: dict[str, Any] = {"method": method, "seeds": len(good), "errors": errors}
        for model in MODELS:
            found = [c.summary[model] for c in good if c.summary[model] is not None]
            row[model] = {k: float(np.mean([f[k] for f in found])) for k in found[0]} if found else None
            if found:
                row[model]["accuracy_seed_std"] = float(np.std([f["accuracy_mean"] for f in found]))
        for k in ("bytes_up", "bytes_down", "seconds"):
            row[k] = float(np.mean([c.summary[k] for c in good])) if good else None
        row["gain"], row["lose"], row["of"] = self._against_local(good)
        row["warnings"] = list(dict.fromkeys(w for c in good for w in c.summary["warnings"]))
        return row

    def _against_local(self, cells: Sequence[Cell]) -> tuple[int, int, int] | tuple[None, None, None]:
        """Clients better off, worse off, and all that can be compared, over the seeds where local training ended."""
        alone = {c.seed: c.accuracy for c in self.cells if c.method == "local" and c.accuracy is not None}
        others = [c for c in cells if c.method != "local" and c.seed in alone]
        pairs = [(c.accuracy, alone[c.seed]) for c in others if c.accuracy is not None]
        if not pairs:
            return None, None, None
        ours, theirs = (np.concatenate(side) for side in zip(*pairs, strict=True))
        return *gains(ours, theirs), int((~np.isnan(ours + theirs)).sum())


Step = tuple[Comparison, str, int, Result | None]  # method and seed of the cell, its result so far; None: complete


def compare(
    base: Recipe,
    methods: Sequence[str],
    seeds: Sequence[int],
    dataset: Dataset,
    folder: Path | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[Step]:
    """Run every method with every seed on the same clients; yields after every round, and when a cell is complete.

    A cell that diverges is kept with its reason and the others go on. With a folder, finished cells are not run again.
    """
    for what, values in (("method", methods), ("seed", seeds)):
        need(len(set(values)) == len(values), f"a {what} is listed twice: {', '.join(map(str, values))}.")
    recipes = {m: base.model_copy(update={"method": m, "settings": dict((settings or {}).get(m, {}))}) for m in methods}
    for recipe in recipes.values():
        recipe.resolved()
    table = Comparison(recipes)
    for seed in seeds:
        clients = base.model_copy(update={"seed": seed}).split(dataset)
        if seed == seeds[0]:
            for recipe in recipes.values():
                recipe.start(clients)  # whatever can be refused is refused before the first round
        for method in methods:
            place = None if folder is None else folder / f"{method}-{seed}"
            for result in _play_cell(table, recipes[method].model_copy(update={"seed": seed}), clients, place):
                yield table, method, seed, result
            yield table, method, seed, None


def _play_cell(table: Comparison, recipe: Recipe, clients: Clients, place: Path | None) -> Iterator[Result]:
    """Play one cell, or take it from its folder where it is finished, and add it to the table."""
    cell = _finished(recipe, clients, place) if place is not None else None
    result = None
    try:
        for result in play_recipe(recipe, clients, place) if cell is None else ():
            yield result
    except (Diverged, Silent) as e:
        cell = Cell(recipe.method, recipe.seed, _failed(recipe.complete(clients), str(e)))
    if cell is None:
        assert result is not None
        cell = Cell(recipe.method, recipe.seed, result.summary, result.scores["chosen/test/accuracy"])
    table.cells.append(cell)


def _failed(recipe: Recipe, error: str) -> dict[str, Any]:
    """The summary of a run that did not end."""
    kept = ["method", "data", "partition", "model", "clients", "cohort", "rounds", "seed"]
    kept += ["attack", "attackers", "drop", "stragglers"]
    empty = dict.fromkeys(("seconds", "bytes_up", "bytes_down", "parameters", "hostile", *COUNTS, *MODELS))
    known = {k: getattr(recipe, k) for k in kept} | {"aggregator": recipe.settings.get("aggregate")}
    return {**known, **empty, "warnings": [], "error": error}


def _finished(recipe: Recipe, clients: Clients, place: Path) -> Cell | None:
    """A cell that an earlier call has completed with the same settings and data."""
    if not (place / "summary.json").exists() or not (place / "recipe.toml").exists():
        return None
    same = Recipe.load(place / "recipe.toml") == recipe.complete(clients)
    need(
        same and read_note(place / CHECKPOINT).get("settings") == recipe.fingerprint(clients),
        f"{place} holds a run with other settings or other data; choose another --out folder.",
    )
    summary = read_json(place / "summary.json")
    if summary["rounds"] != recipe.rounds:  # a longer run that has not ended yet
        return None
    rows = read_json(place / "clients.json")
    accuracy = np.array([np.nan if r["chosen_test_accuracy"] is None else r["chosen_test_accuracy"] for r in rows])
    return Cell(recipe.method, recipe.seed, summary, accuracy)
