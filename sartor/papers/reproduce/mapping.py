"""From a cell to the run behind it: a Recipe for each seed, as the paper writes it or with the authors' switches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from ...errors import need, unknown
from ...run.complete import resolve
from ...run.named_parts import dotted
from ...run.recipe import SETTINGS, Recipe
from .cells import PaperCell, all_cells, base, matches, outline
from .experiment import Experiment, Reading, Reduced, Rule, Table, merged

# A cell's key → the field of a recipe, of the method's solver, of the method. Others have their own name.
FIELDS = {"dataset": "data", "network": "model", "compression": "compress"}
SOLVER = {"lr": "lr", "beta_hat": "lr", "epochs": "epochs", "K": "steps", "batch": "batch"}
RENAMED = {"alpha_hat": "alpha"}
CHOSEN = ("best", "dynamic")  # values of lam that say how it is found
FORMAT = 1  # of a stored run and of the defaults; a new one makes all runs anew


@dataclass(frozen=True)
class Size:
    """How much of an experiment is run."""

    seeds: tuple[int, ...]
    quick: bool = False
    only: Table = field(default_factory=dict)
    instead: Table = field(default_factory=dict)  # rounds, model: in place of those of the experiment
    reduced: bool = False

    @classmethod
    def of(
        cls,
        experiment: Experiment,
        quick: bool,
        seeds: int | None = None,
        only: Table | None = None,
        instead: Table | None = None,
        reduced: bool = False,
    ) -> Size:
        """As it is asked for on the command line."""
        need(not (quick and reduced), "--quick and --reduced are two sizes; leave one of them away.")
        need(not reduced or experiment.reduced is not None, f"{experiment.name} has no reduced size.")
        given = experiment.quick.seeds if quick else experiment.seeds
        given = experiment.reduced.seeds if reduced and experiment.reduced else given
        if seeds is not None:
            need(seeds >= 1, f"--seeds is how many seeds are run, at least 1; got {seeds}.")
            more = (s for s in range(seeds + len(given)) if s not in given)
            given = [*given, *more][:seeds]
        wanted = {**(experiment.quick.only if quick else {}), **(only or {})}
        cells = all_cells(experiment)
        for key, value in (only or {}).items():
            known = {k for c in cells for k in outline(c)}
            if key not in known:
                raise unknown("key in --only", key, known)
            for one in value if isinstance(value, list) else [value]:
                if not any(matches(outline(c), {key: one}) for c in cells):
                    raise unknown(f"{key} in --only", one, {str(outline(c)[key]) for c in cells if key in outline(c)})
        return cls(tuple(given), quick, wanted, instead or {}, reduced)

    @property
    def name(self) -> str:
        """full, reduced or quick."""
        return "quick" if self.quick else "reduced" if self.reduced else "full"

    def part(self, experiment: Experiment) -> Reduced | None:
        """The reduced size, where it is that."""
        return experiment.reduced if self.reduced else None

    def cells(self, experiment: Experiment) -> list[PaperCell]:
        """The cells in it."""
        kinds = (part.only if (part := self.part(experiment)) else []) or [{}]
        found = [c for c in all_cells(experiment) if matches(outline(c), self.only)]
        return [c for c in found if any(matches(outline(c), kind) for kind in kinds)]


@dataclass(frozen=True)
class TableColumn:
    """The runs behind a combination of keys, in one column of the table."""

    experiment: Experiment
    cell: PaperCell  # any one of the combination
    authors: bool
    size: Size

    @property
    def reading(self) -> Reading:
        there, part = self.experiment.authors, self.size.part(self.experiment)
        ours = part.read if part and part.read else self.experiment.read
        return there.read if self.authors and there is not None else ours

    @cached_property
    def grid(self) -> Table:
        """The values among which the best is chosen, by setting; those that the cell itself gives are not chosen."""
        e, method = self.experiment, self.cell.keys["method"]
        if (self.size.quick and not e.quick.tune) or self.tuned_on == "none":
            return {}
        found = {k: v for k, v in self._tune().items() if k != "by"}
        given = {RENAMED.get(k, k) for k, v in self.cell.keys.items() if v != "best"}
        for key, values in found.items():
            need(bool(values) and isinstance(values, list), f"{method}: {key} is to be tuned over a list of values.")
        return {k: v for k, v in found.items() if k not in given}

    def _tune(self) -> Table:
        e, method, part = self.experiment, self.cell.keys["method"], self.size.part(self.experiment)
        found = dict(part.tune[method] if part and method in part.tune else e.tune.get(method, {}))
        for rule in self._rules():
            found |= rule.tune
        return found | self.cell.tune

    @property
    def by(self) -> str:
        """The model whose score decides."""
        return str(self._tune().get("by", "chosen"))

    @cached_property
    def variants(self) -> list[Table]:
        """One choice of the grid's values each; without a grid, one without any."""
        if self.grid:
            return [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]
        if self.authors and self.tuned_on == "none":
            return [{}]
        given = dotted({**self.experiment.methods.get(self.cell.keys["method"], {}), **self.cell.settings})
        untuned = {k: v for k, v in self._tune().items() if k != "by" and k not in given}
        untuned = {k: v for k, v in untuned.items() if self.cell.keys.get(k, "best") == "best"}
        return [{k: v[len(v) // 2] for k, v in untuned.items()}]

    def at_an_end(self, variant: Mapping[str, Any]) -> dict[str, Table]:
        """Settings whose value is the first or last of their grid, each with the variant next to it in the grid."""
        found = {}
        for key, values in self.grid.items():
            if len(values) > 1 and variant.get(key) in (values[0], values[-1]):
                found[key] = {**variant, key: values[1] if variant[key] == values[0] else values[-2]}
        return found

    def _rules(self) -> Sequence[Rule]:
        e, part = self.experiment, self.size.part(self.experiment)
        rules = [*e.rules, *(e.authors.rules if self.authors and e.authors else []), *(part.rules if part else [])]
        return [r for r in rules if matches(outline(self.cell), r.when)]

    @cached_property
    def values(self) -> Table:
        """A recipe's values, before seed and tuned settings."""
        e, keys, there = self.experiment, self.cell.keys, self.experiment.authors if self.authors else None
        dataset, method = keys["dataset"], keys["method"]
        run, own = merged(e.run, _of(e.datasets, dataset)), dict(e.methods.get(method, {}))
        smaller: Table = {}
        if part := self.size.part(e):
            smaller = merged(part.run, _of(part.datasets, dataset))
            run, own = merged(run, smaller), merged(own, part.methods.get(method, {}))
        if there is not None:
            run = merged(merged(run, there.run), _of(there.datasets, dataset))
            own = merged(own, there.methods.get(method, {}))
        placed, settings = place(keys)
        if dataset in e.stand_ins or "data" in smaller:
            placed.pop("data")
        if there is not None:
            placed = {
                k: _as_authors(there.partitions if k == "partition" else there.attacks if k == "attack" else {}, v)
                for k, v in placed.items()
            }
        run, own = merged(run, placed), merged(own, settings)
        for rule in self._rules():
            run, own = merged(run, rule.run), merged(own, rule.settings)
        run, own = merged(run, self.cell.run), merged(own, self.cell.settings)
        if self.size.quick:
            run = merged(merged(run, e.quick.run), _of(e.quick.datasets, dataset))
        if "aggregator" in run:
            run["aggregator"] = with_expected(run["aggregator"], run.get("cohort"), run.get("attackers", 0.0))
        method = own.pop("method", method)  # the authors' version of it
        return {"diagnostics": False, **run, **self.size.instead, "method": method, "settings": own}

    def recipe(self, variant: Mapping[str, Any], seed: int) -> Recipe:
        """One run."""
        tuned = merged(self.values["settings"], variant)
        return Recipe.of({**self.values, "settings": tuned, "seed": seed}, f"{self.experiment.name}: {self.cell.name}")

    @property
    def searched(self) -> tuple[int, ...]:
        """The seeds with which the grid is searched."""
        seeds, part = self.size.seeds, self.size.part(self.experiment)
        searching = part.tune_seeds if part else self.experiment.tune_seeds
        return seeds if len(self.variants) == 1 else seeds[: searching or len(seeds)]

    @cached_property
    def fingerprint(self) -> str:
        """Of all that its numbers depend on but for the seeds: equal ones may be put together."""
        runs = [key_of(self.recipe(variant, 0)) for variant in self.variants]
        chosen = [self.by, self.tuned_on, list(self.searched)] if len(runs) > 1 else []
        return _digest([runs, chosen, self.reading.model_dump()])

    def same_as(self, other: TableColumn) -> bool:
        """Whether both columns would hold the same numbers."""
        alike = (self.values, self.reading, self.variants) == (other.values, other.reading, other.variants)
        return alike and (not self.grid or self.tuned_on == other.tuned_on)

    @property
    def tuned_on(self) -> str:
        there = self.experiment.authors
        return there.tune if self.authors and there is not None else "validation"


def place(keys: Mapping[str, Any]) -> tuple[Table, Table]:
    """A cell's keys as fields of a recipe and as settings of its method."""
    run: Table = {}
    settings: Table = {}
    for key, value in keys.items():
        if key == "method" or value in CHOSEN:
            continue
        if key in SOLVER:
            settings = merged(settings, {"solver": {SOLVER[key]: value}})
        elif FIELDS.get(key, key) in SETTINGS:
            run[FIELDS.get(key, key)] = value
        else:
            settings[RENAMED.get(key, key)] = value
    return run, settings


def with_expected(aggregator: str, cohort: int | None, attackers: float) -> str:
    """An aggregator of a server that knows how many malicious clients to expect in a round (Ditto, D.4).

    {malicious} and {benign} are those of the cohort, {krum} at most what Krum's own condition n ≥ 2f + 3 allows.
    """
    if "{" not in aggregator:
        return aggregator
    need(cohort is not None, f"{aggregator} says what is expected in a cohort; the run has none.")
    assert cohort is not None
    malicious = round(cohort * attackers)
    known = {"malicious": malicious, "benign": cohort - malicious, "krum": min(malicious, (cohort - 3) // 2)}
    try:
        return aggregator.format(**known)
    except (KeyError, IndexError, ValueError) as e:
        raise unknown("number of clients in an aggregator", aggregator, [f"{{{k}}}" for k in known]) from e


def key_of(recipe: Recipe) -> str:
    """The name under which a run is kept: of all that its numbers depend on.

    What is as it is by default is left out, so that a recipe that can say more than before has the same name.
    """
    plain = type(recipe)().values()
    idle = [name for name, about in SETTINGS.items() if about.idle]
    idle += ["columns"] if recipe.target is None else []  # of a table, which these data are not
    kept = {k: v for k, v in resolve(recipe).values().items() if k not in idle and v != plain[k]}
    if recipe.method == "local" and recipe.cohort is not None:  # another run than when only the cohort trained
        kept["trained"] = "everyone"
    return _digest([FORMAT, kept])


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]


def _of(tables: Mapping[str, Table], dataset: str) -> Table:
    return tables.get(dataset, tables.get(base(dataset), {}))


def _as_authors(words: Mapping[str, str], value: Any) -> Any:
    return words.get(value, value) if isinstance(value, str) else value
