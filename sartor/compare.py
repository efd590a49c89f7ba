"""Comparing methods on the same clients: every method with every seed, resumable, and who gains or loses against local training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .data import Clients, Dataset
from .errors import SartorError, need
from .fit import follow
from .judge.metrics import MODELS, gains
from .recipe import Recipe
from .result import Result, write_history
from .rounds import Line
from .storage import read_json


def play_recipe(recipe: Recipe, clients: Clients, folder: Path | None) -> Iterator[tuple[Result, Line | None]]:
    """Play one recipe on its clients, going on from a checkpoint in `folder` if there is one; everything is kept there."""
    result = recipe.start(clients)
    if folder is not None:
        recipe.save(folder)
    for line in follow(
        result, recipe.rounds, folder, recipe.fingerprint(), evaluate_every=recipe.evaluate_every,
        diagnose=recipe.diagnostics, checkpoint_every=recipe.checkpoint_every,
    ):
        if folder is not None and line is not None:
            write_history(folder, result.history)
        yield result, line
    if folder is not None:
        result.save(folder)


@dataclass
class Cell:
    """One method with one seed: its summary and what each client got."""

    method: str
    seed: int
    summary: dict[str, Any]
    accuracy: np.ndarray | None = None  # [m] test accuracy of the chosen models
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Comparison:
    """All cells so far."""

    cells: list[Cell] = field(default_factory=list)

    def summaries(self) -> list[dict[str, Any]]:
        """What compare.json holds."""
        return [c.summary for c in self.cells]

    def rows(self) -> list[dict[str, Any]]:
        """A row per method, averaged over seeds; methods in the order they were asked for."""
        alone = {c.seed: c.accuracy for c in self.cells if c.method == "local" and c.accuracy is not None}
        out = []
        for method in dict.fromkeys(c.method for c in self.cells):
            cells = [c for c in self.cells if c.method == method]
            good = [c for c in cells if "error" not in c.summary]
            row: dict[str, Any] = {"method": method, "seeds": len(good),
                                   "errors": [f"seed {c.seed}: {c.summary['error']}" for c in cells if "error" in c.summary]}
            for model in MODELS:
                found = [c.summary[model] for c in good if c.summary[model] is not None]
                row[model] = {k: float(np.mean([f[k] for f in found])) for k in found[0]} if found else None
                if found:
                    row[model]["accuracy_seed_std"] = float(np.std([f["accuracy_mean"] for f in found]))
            for k in ("bytes_up", "bytes_down", "seconds"):
                row[k] = float(np.mean([c.summary[k] for c in good])) if good else None
            pairs = [gains(c.accuracy, alone[c.seed]) for c in good if method != "local" and c.accuracy is not None and c.seed in alone]
            row["gain"], row["lose"] = (sum(p[0] for p in pairs), sum(p[1] for p in pairs)) if pairs else (None, None)
            row["of"] = sum(len(c.accuracy) for c in good if c.accuracy is not None) if pairs else None
            row["warnings"] = list(dict.fromkeys(w for c in good for w in c.summary["warnings"]))
            out.append(row)
        return out


def compare(
    base: Recipe, methods: Sequence[str], seeds: Sequence[int], dataset: Dataset, folder: Path | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[tuple[Comparison, str, int, Line | None]]:
    """Run every method with every seed on the same clients; yields after every round (comparison, method, seed, line).

    A cell whose run fails is kept with its reason and the others go on. With a folder, finished cells are not run again.
    """
    need(len(set(methods)) == len(methods), f"a method is listed twice: {', '.join(methods)}.")
    table = Comparison()
    recipes = {(m, s): base.model_copy(update={"method": m, "seed": s, "settings": dict((settings or {}).get(m, {}))})
               for s in seeds for m in methods}
    for recipe in recipes.values():
        recipe.resolved()  # whatever can be refused is refused before the first run
    for seed in seeds:
        clients = base.model_copy(update={"seed": seed}).split(dataset)
        for method in methods:
            recipe = recipes[method, seed]
            place = None if folder is None else folder / f"{method}-{seed}"
            cell = _finished(recipe, place) if place is not None else None
            if cell is not None:
                table.cells.append(cell)
                yield table, method, seed, None
                continue
            result = None
            try:
                for result, line in play_recipe(recipe, clients, place):
                    yield table, method, seed, line
                assert result is not None
                cell = Cell(method, seed, result.summary, result.scores["chosen/test/accuracy"], result.history)
            except SartorError as e:
                empty = dict.fromkeys(MODELS)
                cell = Cell(method, seed, {
                    "method": method, "data": base.data, "partition": base.partition, "clients": len(clients),
                    "cohort": base.cohort or len(clients), "rounds": base.rounds, "seed": seed, "seconds": None, "bytes_up": None,
                    "bytes_down": None, **empty, "warnings": [], "error": str(e)})
            table.cells.append(cell)
    yield table, "", 0, None


def _finished(recipe: Recipe, place: Path) -> Cell | None:
    """A cell that an earlier call has completed with the same settings."""
    if not (place / "summary.json").exists() or not (place / "recipe.toml").exists():
        return None
    if Recipe.load(place / "recipe.toml") != recipe.resolved():
        raise SartorError(f"{place} holds a run with other settings; choose another --out folder.")
    rows = read_json(place / "clients.json")
    accuracy = np.array([np.nan if r["chosen_test_accuracy"] is None else r["chosen_test_accuracy"] for r in rows])
    return Cell(recipe.method, recipe.seed, read_json(place / "summary.json"), accuracy)
