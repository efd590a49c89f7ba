"""Whether an experiment says what the library understands: every key and value of its tables, each with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ... import data, models
from ...data.known_sets.readers import SOURCES
from ...errors import SartorError, unknown
from ...judge.metrics import MODELS
from ...methods import entry
from ...run.complete import resolve
from ...run.named_parts import aggregator, attack, method_from
from ...run.recipe import SETTINGS, Recipe
from .cells import READ, WHOLE, PaperCell, all_cells, base, is_ours, matches, outline
from .experiment import Claim, Experiment, Faults, Rule, Table, load
from .mapping import CHOSEN, FIELDS, RENAMED, SOLVER, with_expected

Place = Sequence[str | int]
NOT_HERE = ("method", "settings", "seed", "report", "oracle", "store")  # of a recipe: said elsewhere, or of no use


def checked(name: str) -> Experiment:
    """The experiment of that name or file, in which every key and value is known to mean something."""
    experiment, faults = load(name)
    ExperimentCheck(faults, experiment).everything(experiment)
    return experiment


class ExperimentCheck:
    """Looks at every table of an experiment."""

    def __init__(self, faults: Faults, experiment: Experiment) -> None:
        self.faults, self.stand_ins = faults, experiment.stand_ins
        self.solver: Mapping[str, Any] = experiment.run.get("solver", {})

    def everything(self, e: Experiment) -> None:
        """All of it."""
        for table in e.cells:
            self.need_keys(table, e.cells.index(table))
        cells = all_cells(e)
        known = {c.keys["dataset"] for c in cells} | {base(c.keys["dataset"]) for c in cells}
        a = e.authors
        parts: list[tuple[Place, Table]] = [(["run"], e.run), (["quick", "run"], e.quick.run)]
        parts += [(["authors", "run"], a.run)] if a else []
        groups: list[tuple[Place, dict[str, Table]]] = [
            (["datasets"], e.datasets),
            (["quick", "datasets"], e.quick.datasets),
        ]
        groups += [(["authors", "datasets"], a.datasets)] if a else []
        if (r := e.reduced) is not None:
            parts.append((["reduced", "run"], r.run))
            groups.append((["reduced", "datasets"], r.datasets))
        for place, group in groups:
            for name, table in group.items():
                if name not in known and name not in SOURCES:
                    raise self.faults.at([*place, name], unknown("data set", name, known | set(SOURCES)))
                parts.append(([*place, name], table))
        for place, table in parts:
            self.run(place, table)
        own: list[tuple[Place, dict[str, Table]]] = [(["methods"], e.methods)]
        own += [(["authors", "methods"], a.methods if a else {}), (["reduced", "methods"], r.methods if r else {})]
        for place, group in own:
            for name, table in group.items():
                self.method(place, name)
                self.settings([*place, name], name, table)
        grids: list[tuple[Place, dict[str, Table]]] = [(["tune"], e.tune), (["reduced", "tune"], r.tune if r else {})]
        for place, group in grids:
            for name, table in group.items():
                self.method(place, name)
                self.tuned([*place, name], name, table)
        ruled: list[tuple[Place, list[Rule]]] = [(["rules"], e.rules), (["authors", "rules"], a.rules if a else [])]
        ruled += [(["reduced", "rules"], r.rules if r else [])]
        for place, rules in ruled:
            for i, rule in enumerate(rules):
                self.rule([*place, i], rule, cells)
        for name in e.stand_ins:
            if name not in known:
                raise self.faults.at(["stand_ins", name], unknown("data set of this experiment", name, known))
        if a is not None:
            self.words(a.partitions, ["authors", "partitions"], data.parse)
            self.words(a.attacks, ["authors", "attacks"], attack)
        self.only(e, cells)
        for i, question in enumerate(e.questions):
            self.claim(["questions", i], question, cells)

    def attempt(self, place: Place, work: Callable[[], object]) -> None:
        """Do it; a mistake is one at this place."""
        try:
            work()
        except SartorError as error:
            raise self.faults.at(place, error) from error

    def run(self, place: Place, table: Mapping[str, Any]) -> None:
        """Fields of a recipe."""
        for key, value in table.items():
            known = [k for k in SETTINGS if k not in NOT_HERE]
            if key not in known:
                raise self.faults.at([*place, key], unknown("field of a run", key, known))
            self.field([*place, key], key, value)

    def field(self, place: Place, key: str, value: Any) -> None:
        """One field of a recipe with its value."""
        self.attempt(
            place, lambda: resolve(Recipe.of({key: value})) if key != "aggregator" else Recipe.of({key: value})
        )
        if key == "aggregator":
            self.attempt(place, lambda: aggregator(with_expected(value, 10, 0.2)))
        if key == "data":
            self.dataset(place, value)
        if key == "model" and value != "auto" and str(value).partition("(")[0] not in models.NAMES:
            raise self.faults.at(place, unknown("model", value, models.NAMES))

    def dataset(self, place: Place, text: str) -> None:
        """A data set by name, or a file, or one that another takes the place of."""
        if text not in self.stand_ins and not is_ours(text):
            raise self.faults.at(place, unknown("data set", base(text), SOURCES))

    def method(self, place: Place, name: str) -> None:
        self.attempt([*place, name], lambda: entry(name))

    def settings(self, place: Place, method: str, table: Mapping[str, Any]) -> None:
        """A method's own fields, one at a time and then all together; `method` names the authors' version of it."""
        method = table.get("method", method)
        self.attempt([*place, "method"], lambda: entry(method))
        table = {k: v for k, v in table.items() if k != "method"}
        for key, value in table.items():
            self.attempt([*place, key], lambda k=key, v=value: self.made(method, {k: v}))  # type: ignore[misc]
        self.attempt(place, lambda: self.made(method, table))

    def made(self, method: str, settings: Mapping[str, Any]) -> object:
        """The method with these settings and the experiment's solver."""
        return method_from(method, settings, self.solver)

    def tuned(self, place: Place, method: str, table: Mapping[str, Any]) -> None:
        """Lists of values."""
        for key, values in table.items():
            if key == "by":
                if values not in MODELS:
                    raise self.faults.at([*place, key], unknown("model", values, MODELS))
                continue
            if not isinstance(values, list) or not values:
                raise self.faults.at([*place, key], f"a list of values to choose from; got {values!r}.")
            for value in values:
                self.attempt([*place, key], lambda k=key, v=value: self.made(method, {k: v}))  # type: ignore[misc]

    def rule(self, place: Place, rule: Rule, cells: Sequence[Any]) -> None:
        """A rule is about keys and values that some cell has."""
        keys = {k for c in cells for k in outline(c)} | {"lam", "network", "attack", "attackers", "aggregator"}
        for key in rule.when:
            if key not in keys:
                raise self.faults.at([*place, "when", key], unknown("key of a cell", key, keys))
        self.run([*place, "run"], rule.run)
        wanted = rule.when.get("method")
        for method in wanted if isinstance(wanted, list) else [wanted] if wanted else []:
            self.method([*place, "when"], method)
            self.settings([*place, "settings"], method, rule.settings)
            self.tuned([*place, "tune"], method, rule.tune)
        if wanted is None and (rule.settings or rule.tune):
            raise self.faults.at(place, "a rule with settings says for which method: when = { method = ... }.")

    def words(self, table: Mapping[str, str], place: Place, read: Callable[[str], object]) -> None:
        for key, value in table.items():
            for text in (key, value):
                self.attempt([*place, key], lambda t=text: read(t))  # type: ignore[misc]

    def need_keys(self, table: Mapping[str, Any], at: int) -> None:
        """The experiment's own cells."""
        place: Place = ["cells", at]
        for key in ("dataset", "method", "model"):
            if key not in table:
                raise self.faults.at(place, f"a cell needs a {key}.")
        each = {k: v if isinstance(v, list) else [v] for k, v in table.items() if k not in (*WHOLE, "where", "unit")}
        for name in each["method"]:
            self.attempt([*place, "method"], lambda n=name: entry(n))  # type: ignore[misc]
        for model in each["model"]:
            if model not in MODELS:
                raise self.faults.at([*place, "model"], unknown("model", model, MODELS))
        for key, values in each.items():
            if key not in ("method", *READ):
                self.values([*place, key], key, values, each["method"])
        for name in each["method"]:
            self.settings([*place, "settings"], name, table.get("settings", {}))
            self.tuned([*place, "tune"], name, table.get("tune", {}))
        self.run([*place, "run"], table.get("run", {}))

    def values(self, place: Place, key: str, values: Iterable[Any], methods: Iterable[str]) -> None:
        for value in values:
            field = FIELDS.get(key, key)
            if value in CHOSEN:
                continue
            if key in SOLVER:
                self.attempt(place, lambda v=value: self.made("fedavg", {f"solver.{SOLVER[key]}": v}))  # type: ignore[misc]
            elif field in SETTINGS:
                self.field(place, field, value)
            else:
                for method in methods:
                    own = {RENAMED.get(key, key): value}
                    self.attempt(place, lambda m=method, o=own: self.made(m, o))  # type: ignore[misc]

    def claim(self, place: Place, claim: Claim, cells: Sequence[PaperCell]) -> None:
        """An order is of cells that there are."""
        outlines = [outline(c) for c in cells]
        for kind in [claim.of, *(member for order in claim.orders for member in order)]:
            if not any(matches(o, kind) for o in outlines):
                raise self.faults.at(place, f"no cell is {' and '.join(f'{k} = {v!r}' for k, v in kind.items())}.")

    def only(self, e: Experiment, cells: Sequence[Any]) -> None:
        """What the quick and the reduced size are of."""
        keys = {k for c in cells for k in outline(c)}
        kinds: list[tuple[Place, Table]] = [(["quick", "only"], e.quick.only)]
        kinds += [(["reduced", "only", i], kind) for i, kind in enumerate(e.reduced.only if e.reduced else [])]
        for place, kind in kinds:
            for key in kind:
                if key not in keys:
                    raise self.faults.at([*place, key], unknown("key of a cell", key, keys))
            if place[0] == "reduced" and not any(matches(outline(c), kind) for c in cells):
                raise self.faults.at(place, f"no cell is {' and '.join(f'{k} = {v!r}' for k, v in kind.items())}.")
