"""Fair tuning: every method gets the same number of trials over a stated search space, scored on validation data with
the same seeds. Test data are taken away before the first trial, so nothing can be chosen by them.

The first trial is the method's own defaults. "grid" takes the largest even grid that the budget allows, "random" draws,
"tpe" is Optuna's tree-structured Parzen estimator (the extra `tune`); what a grid leaves of the budget is drawn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from .. import spelling
from ..data import Clients, Dataset
from ..engines.predictions import EACH
from ..errors import SartorError, need, one_of
from ..methods import entry
from ..run.assemble import Tasks, assemble
from ..run.complete import parameters, split, to_the_end, unsplit
from ..run.folder_schema import TUNING
from ..run.lockstep import gaining, play_together
from ..run.named_parts import method_from
from ..run.play import play_recipe
from ..run.recipe import Recipe
from ..run.result import Result
from ..seeds import stream
from ..storage import read_json, write_json
from .ahead import cores_for, in_order, spare_cores
from .equal_work import equal_steps, with_steps

SAMPLERS = ("grid", "random", "tpe")


@dataclass(frozen=True)
class Log:
    """A number between two bounds, even on the logarithmic scale."""

    low: float
    high: float

    def at(self, u: float) -> float:
        """The value at u in [0, 1], to three digits."""
        return float(f"{self.low * (self.high / self.low) ** u:.3g}")


@dataclass(frozen=True)
class Flat:
    """A number between two bounds."""

    low: float
    high: float

    def at(self, u: float) -> float:
        """The value at u in [0, 1], to three digits."""
        return float(f"{self.low + (self.high - self.low) * u:.3g}")


@dataclass(frozen=True)
class OneOf:
    """One of a few values, in rising order."""

    values: tuple[Any, ...]

    def at(self, u: float) -> Any:
        """The value at u in [0, 1]."""
        return self.values[min(int(u * len(self.values)), len(self.values) - 1)]


Range = Log | Flat | OneOf
LR, RIDGE = Log(0.005, 0.5), Log(0.1, 100)


def space(method: str) -> dict[str, Range]:
    """What is tuned of a method: its solver's step size, and what its file says; all of it settings that it has."""
    made = entry(method)
    found: dict[str, Range] = {"solver.lr": LR} if hasattr(made.make, "solver") else {}
    found |= {key: read_range(text) for key, text in made.tune.items()}
    for key, spread in found.items():
        method_from(method, {key: spread.at(0.5)})
    return found


def read_range(text: str) -> Range:
    """The range that is written "log(0.01, 10)", "flat(0, 1)" or "oneof(1, 2, 5)"."""
    kind, values, named = spelling.read("range", text)
    if kind == "oneof" and values and not named:
        return OneOf(tuple(values))
    numbers = [float(v) for v in values if isinstance(v, int | float)]
    need(
        kind in ("log", "flat") and len(numbers) == len(values) == 2 and not named,
        f'a range is written "log(LOW, HIGH)", "flat(LOW, HIGH)" or "oneof(VALUE, ...)"; got "{text}".',
    )
    return Log(*numbers) if kind == "log" else Flat(*numbers)


@dataclass
class Trial:
    """One setting and its score: what its chosen models are expected to be worth (judge.validated), mean over seeds."""

    settings: dict[str, Any]  # {}: the defaults
    score: float | None = None  # None: it failed
    error: str | None = None
    gradients: float | None = None  # that a client has evaluated in all, fine-tuning included; the mean over seeds


@dataclass
class Tuning:
    """All trials so far, by method."""

    base: Recipe
    budget: int
    sampler: str
    seeds: tuple[int, ...]
    trials: dict[str, list[Trial]] = field(default_factory=dict)
    fixed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # settings that are not tuned, by method
    together: dict[str, int] = field(default_factory=dict)  # runs that go together, by method

    def best(self, method: str) -> Trial | None:
        """The best of a method's trials; of equals the first."""
        good = [t for t in self.trials[method] if t.score is not None]
        return max(good, key=lambda t: t.score or 0.0, default=None)

    def ranges(self, method: str) -> dict[str, Range]:
        """What is tuned of a method; with equal work how much it computes is not."""
        return {k: r for k, r in ranges(method, self.base).items() if k not in self.fixed.get(method, {})}

    def own_work(self) -> dict[str, str]:
        """The methods whose gradients cannot be chosen, and why."""
        found = {m: unsplit(self.base.replace(method=m, settings=dict(self.fixed.get(m, {})))) for m in self.trials}
        return {m: why for m, why in found.items() if why}

    def set_line(self, method: str) -> str | None:
        """The options of `sartor compare` that give a method its best settings."""
        best = self.best(method)
        return None if best is None else set_line(method, {**self.fixed.get(method, {}), **best.settings})

    def table(self) -> dict[str, Any]:
        """What tune.json holds."""
        kept = (
            *("data", "partition", "clients", "local_steps", "rounds", "cohort", "model", "parts"),
            *("attack", "attackers", "report", "metric"),
        )
        return {
            "scored": f"mean over clients and seeds of the validation {scored_by(self.base.metric)} that may be "
            "expected of the chosen models; test data were taken away",
            **{k: getattr(self.base, k) for k in kept},
            "budget": self.budget,
            "sampler": self.sampler,
            "seeds": list(self.seeds),
            "methods": {m: self._row(m) for m in self.trials},
        }

    def _row(self, method: str) -> dict[str, Any]:
        best = self.best(method)
        return {
            "space": {k: {"kind": type(r).__name__.lower(), **vars(r)} for k, r in self.ranges(method).items()},
            "fixed": dict(self.fixed.get(method, {})),
            "trials": [vars(t) for t in self.trials[method]],
            "best": None if best is None else vars(best),
            "set": self.set_line(method),
        }


def scored_by(metric: str) -> str:
    """What a trial's score is: a metric of many samples has something of each that stands for it."""
    return EACH.get(metric, "accuracy")


def ranges(method: str, base: Recipe) -> dict[str, Range]:
    """What is tuned of a method; with equal work not how much it computes."""
    found = space(method)
    if to_the_end(base.replace(method=method, settings={})):
        return {"solver.ridge": RIDGE} | {k: r for k, r in found.items() if not k.endswith(".lr")}
    length = ("epochs", "steps") if base.local_steps is not None else ()
    return {k: r for k, r in found.items() if k.rpartition(".")[2] not in length}


def set_line(method: str, settings: Mapping[str, Any]) -> str:
    """The options of `sartor compare` that give a method these settings."""
    return " ".join(f"--set {method}.{k}={v}" for k, v in settings.items()) or f"({method}'s defaults)"


def without_test(clients: Clients) -> Clients:
    """The same clients, with nothing in their test parts."""
    bounds = clients.bounds.copy()
    bounds[:, 3] = bounds[:, 2]
    return replace(clients, bounds=bounds)


def tune(
    base: Recipe,
    methods: Sequence[str],
    seeds: Sequence[int],
    dataset: Dataset,
    budget: int = 20,
    sampler: str = "random",
    folder: Path | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    own_steps: bool = False,
) -> Iterator[tuple[Tuning, str, int]]:
    """Give every method `budget` trials; yields (all so far, method, trial) after each. `settings` are held fixed.

    With a folder, trials that an earlier call has finished with the same base are not repeated. All methods evaluate
    the same number of gradients (equal_work.py); with `own_steps` each takes as many as it does by default.
    """
    one_of("tune", "sampler", sampler, SAMPLERS)
    need(budget >= 1, f"tune needs a budget of at least 1 trial for each method; got {budget}.")
    need(sum(base.parts[1:2]) > 0, "tune chooses on validation data, and parts leave none; see --parts.")
    for what, values in (("method", methods), ("seed", seeds)):
        need(len(set(values)) == len(values), f"a {what} is listed twice: {', '.join(map(str, values))}.")
    clients = [without_test(split(base.replace(seed=s), dataset)) for s in seeds]
    if base.local_steps is None and not own_steps:
        each = (base.replace(method=m, settings=dict((settings or {}).get(m, {}))) for m in methods)
        base = base.replace(local_steps=equal_steps(each, clients[0]))
    tuning = Tuning(base, budget, sampler, tuple(seeds), {m: [] for m in methods}, settings or {})
    if sampler == "tpe":
        _optuna()
    known = _known(tuning, folder)
    for method, some, found in _played(tuning, clients, known):
        known |= {(method, _text(t.settings)): t for t in found}
        for wanted in some:
            tuning.trials[method].append(known[method, _text(wanted)])
            if folder is not None:
                write_json(folder / "tune.json", tuning.table() | {"base": _mark(tuning)})
            yield tuning, method, len(tuning.trials[method]) - 1


Known = Mapping[tuple[str, str], "Trial"]  # by method and settings
Some = list[dict[str, Any]]  # settings that are tried together


def _played(tuning: Tuning, clients: Sequence[Clients], known: Known) -> Iterator[tuple[str, Some, list[Trial]]]:
    """A method, some of its settings and the trials of those that are new, until every method has had its budget.

    Each core makes a trial of its own; TPE cannot know the next ones, as it goes by those before.
    """
    base, parts, spare = tuning.base, list[tuple[str, Recipe, Some]](), spare_cores(tuning.base.device)
    for method in tuning.trials:
        recipe = with_steps(base.replace(method=method, settings=dict(tuning.fixed.get(method, {}))), base.local_steps)
        example = assemble(recipe, clients[0])  # whatever can be refused is refused before the first trial
        asked = propose(tuning.sampler, tuning.ranges(method), tuning.budget, tuning.trials[method], method)
        many = 1 if tuning.sampler == "tpe" else trials_at_once(recipe, clients)
        tuning.together[method] = min(many, tuning.budget) * len(clients)
        if tuning.sampler == "tpe":
            for wanted in asked:
                new = [] if (method, _text(wanted)) in known else [wanted]
                yield method, [wanted], [Trial(**found) for found in _try(recipe, new, tuning.seeds, clients)]
            continue
        every = list(asked)
        parts += [(method, recipe, every[first : first + many]) for first in range(0, len(every), many)]
        spare = min(spare, cores_for(example)) if recipe.workers is None else 0
    calls = [
        partial(_try, recipe, [s for s in some if (method, _text(s)) not in known], tuning.seeds, clients)
        for method, recipe, some in parts
    ]
    with closing(in_order(calls, spare)) as answers:
        for method, _, some in parts:
            yield method, some, [Trial(**found) for found in next(answers)]


def trials_at_once(recipe: Recipe, clients: Sequence[Clients]) -> int:
    """How many trials of a method are played in lockstep, each with every seed."""
    return max(1, gaining(len(clients[0]), parameters(recipe, clients[0])) // len(clients))


def _try(
    recipe: Recipe, asked: Sequence[Mapping[str, Any]], seeds: Sequence[int], clients: Sequence[Clients]
) -> list[dict[str, Any]]:
    """Play settings, each of them with every seed, all in lockstep; what came of each, as another process can tell."""
    tasks: Tasks = {}
    plays = [
        play_recipe(recipe.replace(seed=seed, settings=recipe.settings | dict(wanted)), own, None, tasks=tasks)
        for wanted in asked
        for seed, own in zip(seeds, clients, strict=True)
    ]
    found, k = dict(play_together(plays)), len(seeds)  # by run the last that is heard of it
    return [vars(_tried(dict(wanted), [found[i * k + j] for j in range(k)])) for i, wanted in enumerate(asked)]


def _tried(settings: dict[str, Any], results: Sequence[Result | SartorError]) -> Trial:
    """What came of one setting: a result for every seed."""
    scores: list[float] = []
    work: list[float] = []
    for result in results:
        if isinstance(result, SartorError):  # it diverged, or these settings do not go together
            return Trial(settings, None, str(result))
        looks = [line["validation"] or 0.0 for line in result.history]
        scores.append(max(looks) if result.run.report == "best" else looks[-1])
        work.append(result.run.gradients_per_client["total"])
    return Trial(settings, float(np.mean(scores)), gradients=float(np.mean(work)))


# --- which settings are tried -----------------------------------------------------------------------------------------


def propose(
    sampler: str, ranges: Mapping[str, Range], budget: int, done: Sequence[Trial], method: str
) -> Iterator[dict[str, Any]]:
    """The settings of one trial after another; `done` fills as they are tried."""
    yield {}
    if sampler == "tpe":
        yield from _by_tpe(ranges, budget - 1, done, method)
        return
    points = even_grid(ranges, budget - 1) if sampler == "grid" else []
    yield from points
    draw = stream(0, f"tune/{method}")
    for _ in range(budget - 1 - len(points)):
        yield {k: r.at(float(draw.random())) for k, r in ranges.items()}


def even_grid(ranges: Mapping[str, Range], budget: int) -> list[dict[str, Any]]:
    """A grid of at most `budget` points: one more value again and again where there are fewest, while it fits."""
    if budget < 1 or not ranges:
        return []
    most = [len(r.values) if isinstance(r, OneOf) else budget for r in ranges.values()]
    sides = [1] * len(ranges)
    while True:
        fits = [i for i, side in enumerate(sides) if side < most[i] and math.prod(sides) // side * (side + 1) <= budget]
        if not fits:
            break
        sides[min(fits, key=lambda i: sides[i])] += 1
    each = [[r.at((i + 0.5) / side) for i in range(side)] for r, side in zip(ranges.values(), sides, strict=True)]
    return [dict(zip(ranges, values, strict=True)) for values in product(*each)]


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as e:
        raise SartorError("--sampler tpe needs Optuna: pip install 'sartor[tune]'; or take grid or random.") from e
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _by_tpe(ranges: Mapping[str, Range], count: int, done: Sequence[Trial], method: str) -> Iterator[dict[str, Any]]:
    """Optuna's proposals; it hears the score of each, a failure as 0, or as the lowest so far where that is below."""
    optuna = _optuna()
    seed = int(stream(0, f"tune/{method}").integers(2**31))
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    for _ in range(count):
        trial = study.ask()
        yield {k: r.at(trial.suggest_float(k, 0.0, 1.0)) for k, r in ranges.items()}
        lowest = min([0.0, *(t.score for t in done if t.score is not None)])
        study.tell(trial, lowest if (score := done[-1].score) is None else score)


# --- going on ---------------------------------------------------------------------------------------------------------


def _text(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


def _mark(tuning: Tuning) -> dict[str, Any]:
    """What must be the same for a trial to count again."""
    return {"recipe": tuning.base.values(), "seeds": list(tuning.seeds)}


def _known(tuning: Tuning, folder: Path | None) -> dict[tuple[str, str], Trial]:
    """The trials of an earlier call."""
    if folder is None or not (folder / "tune.json").exists():
        return {}
    found = read_json(folder / "tune.json", TUNING)
    need(
        found.get("base") == _mark(tuning),
        f"{folder} holds a tuning with other settings or seeds; choose another --out folder.",
    )
    return {
        (method, _text(t["settings"])): Trial(t["settings"], t["score"], t["error"], t.get("gradients"))
        for method, row in found["methods"].items()
        for t in row["trials"]
        if t["error"] is None and row.get("fixed", {}) == tuning.fixed.get(method, {})
    }


def winners(folder: Path) -> tuple[Recipe, dict[str, dict[str, Any]]]:
    """What a tuning that was kept in a folder was about, and the best settings of each of its methods."""
    path = folder / "tune.json"
    need(path.exists(), f"{folder} holds no tune.json; sartor tune --out {folder} makes one.")
    found = read_json(path, TUNING)
    best = {m: row.get("fixed", {}) | row["best"]["settings"] for m, row in found["methods"].items() if row["best"]}
    need(bool(best), f"in {path} no trial of any method has succeeded.")
    return Recipe.of(found["base"]["recipe"], str(path)), best
