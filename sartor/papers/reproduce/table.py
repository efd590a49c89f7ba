"""An experiment run from beginning to end: what is to be played, the best of each grid, the table, what it leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import SartorError
from .cells import PaperCell, about, papers
from .claims import measures
from .experiment import Experiment, Table
from .mapping import Size, TableColumn
from .runs import FinishedRuns, Job, Moment, Player, job_of
from .values import NOT_RUN, Value, over_seeds, score, stored_value, together, verdict
from .verdicts import LEVEL
from .work import work_of


@dataclass
class ColumnRuns:
    """A column with its runs: how far they are, and which variant is the best."""

    column: TableColumn
    refused: str | None = None
    winner: Table | None = None  # the settings that were chosen, {} without a grid
    ends: list[str] = field(default_factory=list)  # of its settings: at an end of the grid, and better than further in
    jobs: list[Job] = field(default_factory=list)  # of the winner, one for each seed
    before: dict[str, Value] = field(default_factory=dict)  # numbers of its cells that a stored table has
    _made: dict[tuple[str, int], Job] = field(default_factory=dict)

    def take_over(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the numbers of a stored table, by cell, where they are of the same settings and of seeds asked for."""
        which = "_authors" if self.column.authors else ""
        if any(row.get(f"of{which}") != self.column.fingerprint for row in rows.values()):
            return
        found = {name: stored_value(row, which) for name, row in rows.items()}
        seeds = {s for value in found.values() for s in value.each}  # of a cell that lacks a number, others know them
        if any(value.seeds != len(seeds) for value in found.values()) or not seeds <= {str(s) for s in self.seeds}:
            return
        self.before = found
        one = next(iter(rows.values()))
        self.winner, self.ends = one.get(f"tuned{which}") or self.column.variants[0], one.get("edge") or []

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that are asked for."""
        return self.column.size.seeds

    @property
    def known(self) -> set[int]:
        """The seeds that need not be played, as their numbers were stored."""
        return {int(s) for value in self.before.values() for s in value.each}

    def first(self) -> list[Job]:
        """What is played before anything is chosen."""
        try:
            if self.winner is not None and self.known:
                return self._unknown(self.winner)
            return [j for v in self.column.variants for j in self._jobs(v, self.column.searched)]
        except SartorError as e:
            self.refused = str(e)
            return []

    def choose(self, store: FinishedRuns) -> list[Job]:
        """Choose the best variant; what is still to be played of it."""
        if self.refused is None and not self.known:
            self.winner = self._best(store)
        if self.winner is None:
            return []
        self.jobs = self._jobs(self.winner, self.seeds)
        return self._unknown(self.winner)

    def _unknown(self, variant: Table) -> list[Job]:
        return self._jobs(variant, [s for s in self.seeds if s not in self.known])

    def _best(self, store: FinishedRuns) -> Table | None:
        c = self.column
        if len(c.variants) == 1:
            return c.variants[0]
        if self.missing(store):
            return None  # a part of a grid would be another choice
        scores = []
        for variant in c.variants:
            runs = [store.get(j.key) for j in self._jobs(variant, c.searched)]
            good = [r for r in runs if r is not None and "error" not in r]
            scores.append(score(good, c.by, c.reading, c.tuned_on) if len(good) == len(runs) else None)
        known = [(s, -i) for i, s in enumerate(scores) if s is not None]
        if not known:
            tried = [store.get(j.key) or {} for v in c.variants for j in self._jobs(v, c.searched)]
            reasons = [r["error"] for r in tried if "error" in r]
            self.refused = reasons[0] if reasons else "no value of the grid could be scored: is there validation data?"
            return None
        best = c.variants[-max(known)[1]]
        near = {key: scores[c.variants.index(inner)] for key, inner in c.at_an_end(best).items()}
        self.ends = [key for key, value in near.items() if value is None or value < max(known)[0] - LEVEL]
        return best

    def missing(self, store: FinishedRuns) -> set[str]:
        """The runs that are still to be played, as far as they are known."""
        wanted = [*self.first(), *(j for j in self.jobs if j.recipe.seed not in self.known)]
        return {j.key for j in wanted if store.get(j.key) is None}

    def ready(self, store: FinishedRuns) -> set[str]:
        """The runs behind its numbers."""
        return {j.key for j in self.jobs if j.recipe.seed in self.known or store.get(j.key) is not None}

    def _jobs(self, variant: Mapping[str, Any], seeds: Sequence[int]) -> list[Job]:
        name = repr(variant)
        for seed in seeds:
            if (name, seed) not in self._made:
                self._made[name, seed] = job_of(self.column.recipe(variant, seed))
        return [self._made[name, seed] for seed in seeds]

    @property
    def tuned(self) -> Table | None:
        """The settings that were chosen from a grid."""
        return self.winner if self.winner and len(self.column.variants) > 1 else None

    @property
    def untuned(self) -> Table | None:
        """Settings of a grid that was not searched: its middle values."""
        return self.winner if self.winner and len(self.column.variants) == 1 else None

    def outcome(self, store: FinishedRuns, cell: PaperCell) -> tuple[Value | None, str]:
        """The number of one of its cells over the seeds that ended well, and the verdict."""
        if self.refused is not None:
            return None, f"failed: {self.refused}"
        before = self.before.get(cell.name)
        kept = [store.get(j.key) for j in self.jobs if j.recipe.seed not in self.known]
        there = [r for r in kept if r is not None]
        good = [r for r in there if "error" not in r]
        if not good and before is None:
            return None, f"failed: {there[0]['error']}" if there else NOT_RUN
        value = over_seeds(good, cell, self.column.reading, measures(self.column.experiment)) if good else None
        if good and value is None:
            return None, f"failed: {cell.keys['method']} has no {cell.model} model"
        both = together(before, value) if before and value else before or value
        return both, verdict(cell, both)


@dataclass
class Reproduction:
    """An experiment at a size, in a folder."""

    experiment: Experiment
    size: Size
    folder: Path
    beside: bool = False  # whether the folders around it are those of other experiments
    stored: Mapping[str, Any] | None = None  # a table whose numbers are taken over
    # By a cell's combination of keys, and whether it is the authors' column.
    entries: dict[tuple[str, bool], ColumnRuns] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = FinishedRuns(
            self.folder / "runs", sorted(self.folder.parent.glob("*/runs")) if self.beside else ()
        )
        self.cells = self.size.cells(self.experiment)
        for cell in self.cells:
            if cell.missing is not None or (cell.combination, False) in self.entries:
                continue
            written = TableColumn(self.experiment, cell, False, self.size)
            self.entries[cell.combination, False] = ColumnRuns(written)
            part = self.size.part(self.experiment)
            if self.experiment.authors is not None and (part is None or part.authors):
                theirs = TableColumn(self.experiment, cell, True, self.size)
                if not theirs.same_as(written):
                    self.entries[cell.combination, True] = ColumnRuns(theirs)
        if self.stored is not None:
            self._take_over(self.stored)

    def _take_over(self, stored: Mapping[str, Any]) -> None:
        rows = {(row["where"], row["row"]): row for row in stored["cells"]}
        for (combination, _), entry in self.entries.items():
            own = [c for c in self.cells if c.combination == combination]
            entry.take_over({c.name: rows.get((c.where, c.row), {}) for c in own})

    def play(self) -> Iterator[Moment]:
        """Play all that is missing: first every variant of the grids, then the best ones with the other seeds."""
        player = Player(self.store)
        yield from player.play([j for e in self.entries.values() for j in e.first()])
        yield from player.play([j for e in self.entries.values() for j in e.choose(self.store)])

    def table(self) -> dict[str, Any]:
        """What table.json holds."""
        for entry in self.entries.values():
            entry.first()
            entry.choose(self.store)
        rows = [self._row(cell) for cell in self.cells]
        e, files = self.experiment, about(self.experiment)
        kept = [self.store.get(j.key) for entry in self.entries.values() for j in entry.jobs]
        return {
            "name": e.name,
            "title": e.title,
            "paper": papers(e),
            "where": "; ".join(dict.fromkeys(f["where"] for f in files)),
            "unit": files[0]["unit"] if files and rows and any(c.paper is not None for c in self.cells) else "fraction",
            "command": command(e, self.size),
            "quick": self.size.quick,
            "reduced": part.what if (part := self.size.part(e)) else None,
            "rounds": self.size.instead.get("rounds"),
            "network": self.size.instead.get("model"),
            "seeds": len(self.size.seeds),
            "runs": len({key for entry in self.entries.values() for key in entry.ready(self.store)}),
            "missing": len({key for entry in self.entries.values() for key in entry.missing(self.store)}),
            "data": {**(self.stored["data"] if self.stored else {}), **_data(kept)},
            "counts": _counts(rows, "verdict"),
            "counts_authors": _counts([r for r in rows if r["verdict_authors"] is not None], "verdict_authors"),
            "why_authors": None if e.authors is None else e.authors.why,
            "cells": rows,
        }

    def _row(self, cell: PaperCell) -> dict[str, Any]:
        plain = {k: cell.keys.get(k) for k in ("dataset", "partition", "method")} | {"model": cell.model}
        others = {k: v for k, v in cell.keys.items() if k not in plain}
        more = {"label": cell.label, "budget": cell.budget, "target": cell.target}
        others |= {k: v for k, v in more.items() if v is not None}
        written, said = self._outcome(cell, False)
        theirs, said_theirs = self._outcome(cell, True)
        row: dict[str, Any] = plain | others
        row |= {"unit": cell.unit, "paper": cell.paper, "printed": cell.printed, "paper_std": cell.paper_std}
        row |= {"ours": _round(written and written.mean), "ours_authors": _round(theirs and theirs.mean)}
        row |= {"std": _round(written and written.std), "std_authors": _round(theirs and theirs.std)}
        row |= {"seeds": written.seeds if written else theirs.seeds if theirs else 0}
        row |= {"seeds_authors": theirs.seeds if theirs else None}
        row |= {"verdict": said, "verdict_authors": said_theirs if (cell.combination, True) in self.entries else None}
        row |= {"paper_spread": cell.spread, "paper_variance": cell.variance}
        for name, value in (("", written), ("_authors", theirs)):
            entry = self.entries.get((cell.combination, bool(name)))
            row |= {f"spread{name}": _round(value and value.spread), f"loss{name}": _round(value and value.loss)}
            row |= {f"loss_var{name}": _round(value and value.loss_var), f"round{name}": value.round if value else None}
            row |= {f"tuned{name}": entry.tuned if entry else None, f"untuned{name}": entry.untuned if entry else None}
            row |= {f"each{name}": {k: _round(v) for k, v in value.each.items()} if value else None}
            each = {k: {s: _round(v) for s, v in of.items()} for k, of in value.more.items()} if value else {}
            row |= {f"more{name}": each or None}
            row |= {f"of{name}": entry.column.fingerprint if entry and value else None}
        row |= {"work": self._work(cell) if written else None}
        own = self.entries.get((cell.combination, False))
        row |= {"edge": own.ends or None if own and own.tuned else None}
        row |= {"row": cell.row, "where": cell.where, "doubtful": cell.doubtful, "differs": cell.differs}
        return row

    def _work(self, cell: PaperCell) -> list[float] | None:
        """What its method is given, as written."""
        column = self.entries[cell.combination, False].column
        try:
            return [*work_of([column.recipe(variant, 0) for variant in column.variants])]
        except SartorError:  # a method or model that the small federation does not suit
            return None

    def _outcome(self, cell: PaperCell, authors: bool) -> tuple[Value | None, str]:
        entry = self.entries.get((cell.combination, authors))
        if entry is None:
            return None, NOT_RUN if cell.missing is None else f"{NOT_RUN}: {cell.missing}"
        return entry.outcome(self.store, cell)


def command(experiment: Experiment, size: Size) -> str:
    """The command that makes the table."""
    part = size.part(experiment)
    standard = experiment.quick.seeds if size.quick else part.seeds if part else experiment.seeds
    words = ["sartor", "reproduce", experiment.name]
    words += ["--quick"] if size.quick else ["--reduced"] if size.reduced else []
    words += [f"--seeds {len(size.seeds)}"] if len(size.seeds) != len(standard) else []
    words += [f"--{key} {value}" for key, value in size.instead.items()]
    asked = {k: v for k, v in size.only.items() if not size.quick or experiment.quick.only.get(k) != v}
    for key, value in asked.items():
        text = f"{key}={','.join(map(str, value if isinstance(value, list) else [value]))}"
        words.append(f"--only '{text}'" if "(" in text else f"--only {text}")
    return " ".join(words)


def _counts(rows: Sequence[Mapping[str, Any]], key: str) -> dict[str, int]:
    return dict(sorted(Counter(str(r[key]).split(":")[0] for r in rows).items()))


def _data(kept: Sequence[Mapping[str, Any] | None]) -> dict[str, int]:
    """The data sets that were used: how many samples each has here."""
    return {r["data"]["name"]: r["data"]["samples"] for r in kept if r is not None and "data" in r}


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}") if abs(value) < 1000 else round(value)
