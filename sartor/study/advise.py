"""Advice: which of a few methods serves these clients best, or whether each should train alone.

1. Every client's test samples are put aside. The others are cut anew, `cuts` times, into samples to learn from and to
   score on (and to choose on, for methods that train by steps).
2. Methods are tried in sweeps, a setting of each at a time, while time is left (candidates.py). Of a method's settings
   the one with the lowest loss is kept: loss tells settings apart with fewer samples than accuracy.
3. Methods are compared by their scores on samples that they have not seen, client by client and cut by cut. Those no
   more than one standard error behind the best are in the race. Few samples tell few accuracies apart, so among them
   the loss decides: the simplest is taken that is no more than one standard error above the lowest. Training alone is
   the simplest of all.
4. Only then the test samples are looked at, once, to report what the choice is worth. They change nothing, and if they
   speak against it, the first line says so.

The standard error is that of a mean over these clients, which are the ones to be served: the scores of a client vary
from cut to cut by s², and as cuts share samples, the mean of J of them by s² (1/J + scored/learnt from) (Nadeau and
Bengio 2003).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Clients, Dataset, parse
from ..errors import SartorError, need
from ..judge.metrics import gains
from ..judge.prediction_metrics import score_name
from ..judge.significance import cut_factor, interval, signed_rank
from ..run.assemble import Tasks, assemble
from ..run.complete import TYPES, dealt, resolve, split
from ..run.lockstep import play_together
from ..run.play import play_recipe
from ..run.recipe import Recipe
from ..run.result import Result
from ..storage import write_json
from .ahead import in_order, spare_cores
from .candidates import ALONE, Candidate, candidates
from .compare import Comparison, compare
from .equal_work import equal_steps, with_steps

INSIDE = (0.65, 0.15, 0.2)  # of what is not test data: to train on, to choose on, to score on
CUTS, FEW_CUTS, MANY_ROWS = 5, 3, 5000  # with many rows chance does less, and each cut takes longer
QUICK = 20_000_000  # what a Newton step may cost (`_newton_step`): with more, settings are tried one by one
SURE = 0.05  # a p-value below this is called more than chance


@dataclass
class Tried:
    """One setting of a method, and what each client made of it."""

    settings: dict[str, Any]
    scores: np.ndarray | None = None  # [cuts, m], NaN where a client had no samples to score on; None: it failed
    losses: np.ndarray | None = None  # [cuts, m] the same of the loss
    error: str | None = None
    loss: float = np.inf  # over all samples that were scored: what settings of one method are chosen by

    @classmethod
    def of(cls, settings: dict[str, Any], found: dict[str, Any]) -> Tried:
        """What `_tried` found."""
        scores, losses = (None if v is None else np.array(v) for v in (found["scores"], found["losses"]))
        return cls(settings, scores, losses, found["error"], found["loss"])


def _within(behind: float, error: float) -> bool:
    return behind <= error


@dataclass
class Advice:
    """What was tried, what is recommended, and what that is worth."""

    base: Recipe
    names: list[str]  # the clients'
    minutes: float
    tried: dict[str, list[Tried]]  # by candidate, the simplest first
    candidates: dict[str, Candidate] = field(default_factory=dict)
    regression: bool = False
    samples: np.ndarray | None = None  # [m] how many samples of each client are scored in a cut
    sweeps: int = 0
    began: float = field(default_factory=time.monotonic)
    test: dict[str, np.ndarray] = field(default_factory=dict)  # [m] test scores by candidate, when all is over
    table: Comparison | None = None  # the same, of all candidates with the first model

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def best(self, name: str) -> Tried:
        """The best of a candidate's settings; of equals the first."""
        return min(self.tried[name], key=lambda t: t.loss if t.scores is not None else np.inf)

    def mean(self, name: str) -> float:
        """Its mean score over clients and cuts."""
        scores = self.best(name).scores
        return -np.inf if scores is None else self._over_clients(scores)[0]

    def behind(self, name: str, other: str) -> tuple[float, float]:
        """By how much a candidate is behind another in the mean over clients, and the standard error of that."""
        ours, theirs = self.best(name).scores, self.best(other).scores
        if ours is None or theirs is None:
            return np.inf, 0.0
        return self._over_clients(theirs - ours)

    def above(self, name: str, other: str) -> tuple[float, float]:
        """By how much a candidate's loss is above another's in the mean over samples, and its standard error."""
        ours, theirs = self.best(name).losses, self.best(other).losses
        if ours is None or theirs is None:
            return np.inf, 0.0
        return self._over_clients(ours - theirs, self.samples)

    def gain(self, name: str) -> tuple[float, float]:
        """The mean gain over local training, and its standard error."""
        behind, error = self.behind(name, ALONE)
        return -behind, error

    def _over_clients(self, each: np.ndarray, weights: np.ndarray | None = None) -> tuple[float, float]:
        """The mean over clients of numbers [cuts, m], and its standard error."""
        there = ~np.isnan(each).all(0)
        each = each[:, there]
        weights = self.weights if weights is None else weights
        w = weights[there] / weights[there].sum()
        count = (~np.isnan(each)).sum(0)
        own = np.nanmean(each, axis=0)
        mean = float(w @ own)
        if count.max(initial=0) < 2:  # one cut says nothing of chance: clients have to
            return mean, float(np.sqrt((w**2 * (own - mean) ** 2).sum() * len(own) / max(len(own) - 1, 1)))
        spare = np.maximum(count - 1, 1)
        varies = np.nansum((each - own) ** 2, axis=0) / spare
        return mean, float(np.sqrt((w**2 * varies * cut_factor(count, INSIDE[2])).sum()))

    @property
    def leader(self) -> str:
        """The best candidate that is not local training."""
        return max((m for m in self.tried if m != ALONE), key=self.mean)

    @property
    def metric(self) -> str:
        """What methods are compared by, as people call it."""
        return score_name(None if self.base.metric == "auto" else self.base.metric, not self.regression)

    @property
    def scored(self) -> str:
        """The same, with what it is taken over."""
        pooled = self.regression and self.base.metric in ("auto", "r2")
        return self.metric + (" over all samples" if pooled else ", the mean over clients")

    @property
    def weights(self) -> np.ndarray:
        """[m] what clients count in a mean of scores: all alike; for R², which is over all samples, by those."""
        by_samples = self.regression and self.samples is not None
        return np.ones(len(self.names)) if not by_samples else np.asarray(self.samples, dtype=float)

    @property
    def recommended(self) -> str:
        """The simplest of those that can hardly be told from the best."""
        return self.as_good[0]

    @property
    def as_good(self) -> list[str]:
        """Those at most one standard error behind the best score, and of them those at most one above the lowest loss;
        the simplest first."""
        first = max(self.tried, key=self.mean)
        near = [name for name in self.tried if name == first or _within(*self.behind(name, first))]
        lowest = min(near, key=lambda name: self.best(name).loss)
        return [name for name in near if name == lowest or _within(*self.above(name, lowest))]

    @property
    def rival(self) -> str:
        """What local training is held against on test data: what is recommended, or else the best of the others."""
        return self.recommended if self.recommended != ALONE else self.leader

    def recipe(self) -> Recipe:
        """The recommended method with its settings, ready to run."""
        return resolve(self.recipe_of(self.recommended))

    def recipe_of(self, name: str) -> Recipe:
        """A candidate with the best of its settings."""
        made = self.candidates[name].recipe(self.base, self.best(name).settings)
        return with_steps(made, self.base.local_steps if self.candidates[name].by_steps else None)

    def on_test(self) -> dict[str, Any] | None:
        """The rival against local training on test data: paired over clients."""
        if self.rival not in self.test or ALONE not in self.test:
            return None
        ours, alone = self.test[self.rival], self.test[ALONE]
        test, d = signed_rank(ours, alone), ours - alone
        if test is None:
            return None
        found = interval(d[~np.isnan(d)].tolist())
        better, worse = gains(ours, alone)
        each = {n: float(v) for n, v in zip(self.names, d, strict=True) if not np.isnan(v)}
        means = [self._over_clients(v[None])[0] for v in (ours, alone, d)]
        return {
            "method": self.rival,
            "accuracy": means[0],
            "local": means[1],
            "gain": means[2],
            "low": found[0] if found else None,
            "high": found[1] if found else None,
            "p": test.p,
            "better": better,
            "worse": worse,
            "of": test.n,
            "each": each,
        }

    def plain(self) -> dict[str, Any]:
        """What advise.json holds."""
        rows = {}
        for m, tried in self.tried.items():
            best, score, (gain, error) = self.best(m), self.mean(m), self.gain(m)
            rows[m] = {
                "score": score if np.isfinite(score) else None,
                "gain_over_local": gain if np.isfinite(gain) else None,
                "standard_error": error if np.isfinite(error) else None,
                "settings": best.settings,
                "trials": [{"settings": t.settings, "loss": t.loss if np.isfinite(t.loss) else None} for t in tried],
                "errors": [t.error for t in tried if t.error],
                "test": self._over_clients(self.test[m][None])[0] if m in self.test else None,
            }
        return {
            "recommended": self.recommended,
            "words": self.words(),
            "clients": self.names,
            "sweeps": self.sweeps,
            "minutes": self.minutes,
            "seconds": round(self.seconds, 1),
            "scored": f"{self.scored}, on samples that were kept from training, without any test sample",
            "methods": rows,
            "test": self.on_test(),
        }

    def words(self) -> list[str]:
        """The advice in plain words."""
        trials = sum(len(t) for t in self.tried.values())
        tried = f"{trials} trials of {len(self.tried)} candidates"
        leader, (gain, error) = self.leader, self.gain(self.leader)
        measured = f"a gain of {gain:+.3f} in {self.metric} over training locally (standard error {error:.3f})"
        if self.recommended == ALONE:
            lines = [f"Recommended: train locally. After {tried} the best federated one, {leader}, shows {measured}: "]
            lines[0] += "no more than chance can do, so federating is not worth its trouble here."
        else:
            chosen, (gain, error) = self.recommended, self.gain(self.recommended)
            lines = [f"Recommended: {chosen}. After {tried} it shows a gain of {gain:+.3f} in {self.metric} over "]
            lines[0] += f"training locally (standard error {error:.3f}), on samples kept from training."
        if (test := self.on_test()) is not None:
            against = test["gain"] < 0 and self.recommended != ALONE
            if against:
                lines[0] = f"With doubt: on test data it is worse than training locally. {lines[0]}"
            spread = "" if test["low"] is None else f", between {test['low']:+.3f} and {test['high']:+.3f} (95%)"
            sure = "more" if test["p"] < SURE else "not more"
            text = f"On test data, which had no part in this: {test['method']} {test['accuracy']:.3f}, local "
            text += f"{test['local']:.3f}; a gain of {test['gain']:+.3f}{spread}, {sure} than chance explains "
            lines.append(text + f"(p = {test['p']:.2g}, paired over {test['of']} clients).")
            lines.append(self._who(test))
        lines.append(self._how_sure())
        return lines

    def _how_sure(self) -> str:
        """Who else may be as good, and what more data would tell."""
        near = self.as_good[1:]
        if not near:
            return "How sure: all others are more than one standard error behind, in score or in loss."
        names = ", ".join(near[:4]) + (", ..." if len(near) > 4 else "")
        text = f"How sure: as good within one standard error of score and loss: {names}; the simplest is recommended."
        above, error = self.above(self.recommended, min(near, key=lambda name: self.best(name).loss))
        if above <= 0 or not np.isfinite(error):
            return text
        more = (error / above) ** 2
        return f"{text} About {more:.2g} times as many samples would tell it from the best, if the difference is real."

    @staticmethod
    def _who(test: dict[str, Any]) -> str:
        lose = sorted((v, n) for n, v in test["each"].items() if v < 0)
        named = ", ".join(f"{n} {v:+.3f}" for v, n in lose[:5]) + (", ..." if len(lose) > 5 else "")
        same = test["of"] - test["better"] - test["worse"]
        text = f"With {test['method']} {test['better']} clients gain, {same} stay as they are and {test['worse']} lose"
        return f"{text}{' (' + named + ')' if lose else ''}."


def advise(
    base: Recipe,
    dataset: Dataset,
    methods: Sequence[str] | None = None,
    minutes: float = 5.0,
    trials: int = 12,
    cuts: int | None = None,
    folder: Path | None = None,
    own_steps: bool = False,
) -> Iterator[tuple[Advice, str, float]]:
    """Try methods, choose one, and report what that is worth; yields (so far, what is being done, share of the time).

    The first sweep and the report are made however long they take; further sweeps only where they fit into `minutes`.
    Methods that train by steps evaluate the same number of gradients (equal_work.py), unless `own_steps`.
    """
    need(minutes > 0, f"advise needs minutes > 0; got {minutes}.")
    cuts = cuts if cuts is not None else FEW_CUTS if len(dataset) >= MANY_ROWS else CUTS
    need(trials >= 1 and cuts >= 1, f"advise needs at least 1 trial and 1 cut; got {trials} and {cuts}.")
    need(methods is None or bool(set(methods) - {ALONE}), "advise needs at least one method besides local.")
    workers, spare = base.workers, spare_cores(base.device) if base.workers is None else 0
    base = base.replace(partition=dealt(base, dataset), workers=workers or 1)
    names, inside = _without_test(base, dataset)
    need(len(names) >= 2, f"advise needs at least two clients; {base.data} has {len(names)} (see --minimum).")
    features = int(np.prod(inside.x.shape[1:]))
    parameters = (features + 1) * (dataset.classes or 1)  # of a linear model
    asked = candidates(base, methods, trials, len(inside), parameters)
    how = {"minimum": 1, "dtype": TYPES[str(base.dtype)], "columns": base.columns}
    whole = (INSIDE[0] + INSIDE[1], 0.0, INSIDE[2])
    parts = {by_steps: INSIDE if by_steps else whole for by_steps in {c.by_steps for c in asked.values()}}
    samples = {
        by_steps: [inside.split("natural", None, seed, parts=p, **how) for seed in range(cuts)]  # type: ignore[arg-type]
        for by_steps, p in parts.items()
    }
    stepping = [c.recipe(base, {}) for c in asked.values() if c.by_steps]
    if base.local_steps is None and not own_steps and stepping:
        base = base.replace(local_steps=equal_steps(stepping, samples[True][0]))
    advice = Advice(base, names, minutes, {m: [] for m in asked}, asked, regression=dataset.classes is None)
    advice.samples = np.mean([c.counts("test") for c in next(iter(samples.values()))], axis=0)
    last, slow = 0.0, _newton_step(len(inside), len(names), features) > QUICK
    while advice.sweeps < trials:
        # The report at the end takes about as long as one cut of a sweep.
        if advice.sweeps and advice.seconds + last * (1 + 1 / cuts) > 60 * minutes:
            break
        began = time.monotonic()
        # Problems that are solved to the end have a grid, all of which goes together where that is quick.
        drawn = {m: list(islice(c.settings, 1 if c.by_steps or slow else trials)) for m, c in asked.items()}
        wanted = {m: some for m, some in drawn.items() if some}
        if not wanted:
            break
        calls = []
        for name, some in wanted.items():
            by_steps = asked[name].by_steps
            recipes = [with_steps(asked[name].recipe(base, s), base.local_steps if by_steps else None) for s in some]
            if advice.sweeps == 0 and methods is not None:  # a method that was asked for is not left out silently
                assemble(recipes[0], samples[by_steps][0])
            calls.append(partial(_try, [r.replace(clients=None) for r in recipes], samples[by_steps]))
        with closing(in_order(calls, spare)) as answers:
            for name, some in wanted.items():
                trial = f"trial {advice.sweeps + 1}" if len(some) == 1 else f"{len(some) * cuts} runs together"
                yield advice, f"{name}, {trial}", min(1.0, advice.seconds / (60 * minutes))
                advice.tried[name] += [Tried.of(own, found) for own, found in zip(some, next(answers), strict=True)]
        advice.sweeps, last = advice.sweeps + 1, time.monotonic() - began
    why = next((t.error for tried in advice.tried.values() for t in tried if t.error), "")
    advice.tried = {m: t for m, t in advice.tried.items() if any(one.scores is not None for one in t)}
    need(ALONE in advice.tried and len(advice.tried) > 1, f"nothing could be compared: {why}")
    yield from _look_at_test(advice, dataset, folder, workers)
    if folder is not None:
        advice.recipe().save(folder)
        write_json(folder / "advise.json", advice.plain())
    yield advice, "", 1.0


def _look_at_test(
    advice: Advice, dataset: Dataset, folder: Path | None, workers: int | None
) -> Iterator[tuple[Advice, str, float]]:
    """What every candidate's best setting is worth on test data: a comparison for each way of training."""
    groups: dict[tuple[bool, str, int], dict[str, str]] = {}  # (by steps, model, rounds) → method → candidate
    for name in advice.tried:
        one = advice.candidates[name]
        groups.setdefault((one.by_steps, one.model, one.rounds), {})[one.method] = name
    for number, here in enumerate(groups.values()):
        base = advice.recipe_of(next(iter(here.values()))).replace(method=ALONE, settings={}, diagnostics=False)
        base = base.replace(workers=workers)
        place = None if folder is None else folder / (f"comparison-{number + 1}" if number else "comparison")
        settings = {method: advice.best(name).settings for method, name in here.items()}
        for step in compare(base, list(here), [base.seed], dataset, place, settings, own_steps=True):
            yield advice, f"{step.method}, on test data", 1.0
        advice.table = advice.table or step.table
        for cell in step.table.cells:
            if cell.accuracy is not None and cell.loss is not None:
                advice.test[here[cell.method]] = _score(cell.accuracy, cell.loss, dataset.classes, base.metric)


def _newton_step(rows: int, clients: int, features: int) -> int:
    """Products that everybody's Newton step takes: curvatures of all rows, and a factorisation for each client, which
    is most of it where many clients have few rows."""
    return (rows + clients * features) * features**2


def _without_test(base: Recipe, dataset: Dataset) -> tuple[list[str], Dataset]:
    """The clients' names, and the data without anybody's test samples, dealt out as they were."""
    outer = split(base, dataset)
    _, order, bounds = dataset.deal(parse(base.partition), base.clients, base.seed, base.parts, base.minimum)
    kept = [order[low:high] for low, high in bounds[:, [0, 2]]]
    rows, owners = np.concatenate(kept), np.repeat(np.arange(len(kept)), [len(k) for k in kept])
    part = replace(dataset, x=dataset.x[rows], y=dataset.y[rows], keys=owners, key_names=tuple(outer.names))
    return outer.names, part


def _try(recipes: Sequence[Recipe], samples: Sequence[Clients]) -> list[dict[str, Any]]:
    """Play recipes, each of them on every cut, all in lockstep."""
    tasks: Tasks = {}
    plays = [
        play_recipe(recipe.replace(seed=seed), clients, None, tasks=tasks)
        for recipe in recipes
        for seed, clients in enumerate(samples)
    ]
    found, cuts = dict(play_together(plays)), len(samples)  # by run the last that is heard of it
    each = [[found[i * cuts + seed] for seed in range(cuts)] for i in range(len(recipes))]
    return [_tried(results, samples, recipes[0].metric) for results in each]


def _tried(results: Sequence[Result | SartorError], samples: Sequence[Clients], metric: str) -> dict[str, Any]:
    """What came of one setting, a result for every cut: as another process can tell it, see `Tried`."""
    found, losses, counts = [], [], []
    for result, clients in zip(results, samples, strict=True):
        if isinstance(result, SartorError):  # it diverged, or these settings do not go together
            return {"scores": None, "losses": None, "error": str(result), "loss": np.inf}
        accuracy, loss = (result.scores[f"chosen/test/{k}"] for k in ("accuracy", "loss"))
        found.append(_score(accuracy, loss, clients.classes, metric).tolist())
        losses.append(loss.tolist())
        counts.append(clients.counts("test"))
    total = (np.nan_to_num(losses) * counts).sum() / np.sum(counts)
    return {"scores": found, "losses": losses, "error": None, "loss": float(total)}


def _score(accuracy: np.ndarray, loss: np.ndarray, classes: int | None, metric: str) -> np.ndarray:
    """[m] accuracy, or the metric by name; for regression a client's share in R² over all samples: targets have
    variance 1 over all clients' training samples, and the loss is half of the squared error."""
    return 1 - 2 * loss if classes is None and metric in ("auto", "r2") else accuracy
