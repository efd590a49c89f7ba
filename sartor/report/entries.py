"""The plain data of a report: runs, the entries that they make up, and everything that a page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ..judge.prediction_metrics import score_name
from ..study.compare import Comparison
from ..study.scenarios import Scenario, attacked

Line = dict[str, Any]


@dataclass
class RunFolder:
    """One run's files; what is not there yet is empty or None."""

    folder: Path
    recipe: dict[str, Any] = field(default_factory=dict)
    history: list[Line] = field(default_factory=list)
    clients: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    collaboration: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None

    @property
    def seed(self) -> int:
        return int(self.recipe.get("seed", (self.summary or {}).get("seed", 0)))

    @property
    def rounds(self) -> int | None:
        """How many it is to play."""
        found = self.recipe.get("rounds", (self.summary or {}).get("rounds"))
        return None if found is None else int(found)


class Found(NamedTuple):
    """A run that was found, or what is known of one that did not end."""

    method: str
    scenario: Scenario
    seed: int
    run: RunFolder | None
    summary: dict[str, Any] | None


@dataclass
class ReportEntry:
    """A line of the charts: one method in one scenario, with a run for each seed."""

    method: str  # as it is called in this report: "fedavg+int8", or with its folder where two would be called alike
    scenario: Scenario
    runs: list[RunFolder]

    @property
    def name(self) -> str:
        return ", ".join([self.method, *self.scenario.words()])

    @cached_property
    def by_round(self) -> list[dict[int, Line]]:
        """Each run's history, by round."""
        return [{line["round"]: line for line in run.history} for run in self.runs]

    @property
    def brief(self) -> str:
        """Its name among those that are attacked alike."""
        return ", ".join([self.method, *self.scenario._replace(attack="none").words()])


@dataclass
class Material:
    """Everything that a page shows."""

    title: str
    entries: list[ReportEntry] = field(default_factory=list)
    comparison: Comparison | None = None  # none for a single run
    found: dict[str, Any] | None = None  # significance.json
    tables: list[dict[str, Any]] = field(default_factory=list)  # of repeated experiments, as table.json has them
    plans: list[dict[str, Any]] = field(default_factory=list)  # of comparisons, as plan.json has them
    failures: list[str] = field(default_factory=list)
    metrics: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # metrics.json by entry, also of references

    @property
    def runs(self) -> list[RunFolder]:
        return [run for entry in self.entries for run in entry.runs]

    @property
    def score(self) -> str:
        """What `accuracy` is called: R² where targets are numbers, the metric where runs go by one that has a name."""
        named = {(run.summary or {}).get("metric") or run.recipe.get("metric", "auto") for run in self.runs}
        if len(named) == 1 and (metric := named.pop()) != "auto":
            return score_name(metric)
        kinds = {run.data.get("classes", 0) is None for run in self.runs if run.data is not None}
        return "R²" if kinds == {True} else "accuracy" if True not in kinds else "accuracy (R² for regression)"


def by_attack(entries: Sequence[ReportEntry]) -> dict[str, list[ReportEntry]]:
    """The entries under each attack: in a grid one looks at one at a time."""
    found: dict[str, list[ReportEntry]] = {}
    for entry in entries:
        found.setdefault(attacked(entry.scenario), []).append(entry)
    return found


def switched(variants: Mapping[str, Any], first: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Variants and switches, without the switches that have one value only."""
    kept = [i for i, values in enumerate(first.values()) if len(values) > 1]
    short = {"|".join(key.split("|")[i] for i in kept): variant for key, variant in variants.items()}
    return short, {k: list(v) for k, v in first.items() if len(v) > 1}
