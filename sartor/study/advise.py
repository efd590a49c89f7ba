"""Advice: which of a few methods serves these clients best, or whether each should train alone.

1. Every client's test samples are put aside. The others are cut anew, `cuts` times, into samples to train on, to
   choose on and to score on.
2. Every method has the same trials, its defaults first: a sweep is one trial of each. Sweeps go on while time is left.
3. The method with the best mean score over clients is taken, if it gains more over local training than one standard
   error (over clients) of that gain: training alone is simpler, so it wins where the difference may be chance.
4. Only then the test samples are looked at, once, to report what the choice is worth. They change nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Clients, Dataset, parse
from ..errors import SartorError, need
from ..judge.metrics import gains
from ..judge.significance import interval, signed_rank
from ..run.assemble import TYPES, assemble, dealt, resolve, split
from ..run.play import play_recipe
from ..run.recipe import Recipe
from ..storage import write_json
from .compare import Comparison, compare
from .equal_work import equal_steps, with_steps
from .tune import propose, ranges

METHODS = ("local", "fedavg", "fedavg-ft", "ditto", "pfedme", "flame", "fedamp")
ALONE = "local"
INSIDE = (0.65, 0.15, 0.2)  # of what is not test data: to train on, to choose on, to score on
SURE = 0.05  # a p-value below this is called more than chance


@dataclass
class Tried:
    """One setting of a method, and what each client made of it."""

    settings: dict[str, Any]
    scores: np.ndarray | None = None  # [m] mean over cuts; None: it failed
    error: str | None = None

    @property
    def mean(self) -> float:
        return -np.inf if self.scores is None or np.isnan(self.scores).all() else float(np.nanmean(self.scores))


@dataclass
class Advice:
    """What was tried, what is recommended, and what that is worth."""

    base: Recipe
    names: list[str]  # the clients'
    minutes: float
    tried: dict[str, list[Tried]]
    sweeps: int = 0
    began: float = field(default_factory=time.monotonic)
    table: Comparison | None = None  # on test data, when all is over

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def best(self, method: str) -> Tried:
        """The best of a method's trials; of equals the first."""
        return max(self.tried[method], key=lambda t: t.mean)

    def gain(self, method: str) -> tuple[float, float]:
        """The mean gain over local training in the score that choices are made by, and its standard error."""
        ours, alone = self.best(method).scores, self.best(ALONE).scores
        if ours is None or alone is None:
            return -np.inf, 0.0
        d = (ours - alone)[~np.isnan(ours - alone)]
        return float(d.mean()), float(d.std(ddof=1) / np.sqrt(len(d))) if len(d) > 1 else np.inf

    @property
    def leader(self) -> str:
        """The best method that is not local training."""
        return max((m for m in self.tried if m != ALONE), key=lambda m: self.best(m).mean)

    @property
    def recommended(self) -> str:
        gain, error = self.gain(self.leader)
        return self.leader if gain > error else ALONE

    def recipe(self) -> Recipe:
        """The recommended method with its settings, ready to run."""
        own = {"method": self.recommended, "settings": self.best(self.recommended).settings}
        return resolve(with_steps(self.base.replace(**own), self.base.local_steps))

    def on_test(self) -> dict[str, Any] | None:
        """The leader against local training on test data: paired over clients."""
        cells = {} if self.table is None else {c.method: c for c in self.table.cells if c.accuracy is not None}
        if self.leader not in cells or ALONE not in cells:
            return None
        ours, alone = cells[self.leader].accuracy, cells[ALONE].accuracy
        assert ours is not None and alone is not None
        test, d = signed_rank(ours, alone), ours - alone
        if test is None:
            return None
        found = interval(d[~np.isnan(d)].tolist())
        better, worse = gains(ours, alone)
        each = {n: float(v) for n, v in zip(self.names, d, strict=True) if not np.isnan(v)}
        return {
            "method": self.leader,
            "accuracy": float(np.nanmean(ours)),
            "local": float(np.nanmean(alone)),
            "gain": float(np.nanmean(d)),
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
            best, (gain, error) = self.best(m), self.gain(m)
            finite = np.isfinite(best.mean)
            rows[m] = {
                "score": best.mean if finite else None,
                "gain_over_local": gain if np.isfinite(gain) else None,
                "standard_error": error if np.isfinite(error) else None,
                "settings": best.settings,
                "trials": [{"settings": t.settings, "score": t.mean if np.isfinite(t.mean) else None} for t in tried],
                "errors": [t.error for t in tried if t.error],
            }
        return {
            "recommended": self.recommended,
            "words": self.words(),
            "clients": self.names,
            "sweeps": self.sweeps,
            "minutes": self.minutes,
            "seconds": round(self.seconds, 1),
            "scored": "mean over clients of the chosen model's accuracy (R², cut off at -1, for regression) on samples "
            "that were kept from its training, without any test sample",
            "methods": rows,
            "test": self.on_test(),
        }

    def words(self) -> list[str]:
        """The advice in plain words."""
        leader, (gain, error) = self.leader, self.gain(self.leader)
        count = f"{self.sweeps} trial{'s' if self.sweeps != 1 else ''} of each of {len(self.tried)} methods"
        measured = f"a gain of {gain:+.3f} over training locally (standard error {error:.3f} over clients)"
        if self.recommended == ALONE:
            lines = [f"Recommended: train locally. After {count} the best federated one, {leader}, shows {measured}: "]
            lines[0] += "no more than chance can do, so federating is not worth its trouble here."
        else:
            lines = [f"Recommended: {leader}. After {count} it shows {measured}, on samples kept from training."]
        if (test := self.on_test()) is not None:
            spread = "" if test["low"] is None else f", between {test['low']:+.3f} and {test['high']:+.3f} (95%)"
            sure = "more" if test["p"] < SURE else "not more"
            text = f"On test data, which had no part in this: {leader} {test['accuracy']:.3f}, local "
            text += f"{test['local']:.3f}; a gain of {test['gain']:+.3f}{spread}, {sure} than chance explains "
            lines.append(text + f"(p = {test['p']:.2g}, paired over {test['of']} clients).")
            lines.append(self._who(test))
        return lines

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
    methods: Sequence[str] = METHODS,
    minutes: float = 5.0,
    trials: int = 12,
    cuts: int = 3,
    folder: Path | None = None,
    own_steps: bool = False,
) -> Iterator[tuple[Advice, str, float]]:
    """Try methods, choose one, and report what that is worth; yields (so far, what is being done, share of the time).

    The first sweep and the report are made however long they take; further sweeps only where they fit into `minutes`.
    All methods evaluate the same number of gradients (equal_work.py), unless `own_steps`. Where no model is named, a
    table with classes has softmax (logistic) regression: there are rarely rows for more.
    """
    methods = list(dict.fromkeys([ALONE, *methods]))
    need(minutes > 0, f"advise needs minutes > 0; got {minutes}.")
    need(trials >= 1 and cuts >= 1, f"advise needs at least 1 trial and 1 cut; got {trials} and {cuts}.")
    need(len(methods) > 1, "advise needs at least one method besides local.")
    plain = base.model == "auto" and len(dataset.columns) > 0 and dataset.classes is not None
    own = {"partition": dealt(base, dataset), "evaluate_every": base.rounds, "workers": base.workers or 1}
    own |= {"checkpoint_every": base.rounds}
    base = base.replace(**own | ({"model": "softmax"} if plain else {}))
    names, inside = _without_test(base, dataset)
    need(len(names) >= 2, f"advise needs at least two clients; {base.data} has {len(names)} (see --minimum).")
    how = {"parts": INSIDE, "minimum": 1, "dtype": TYPES[str(base.dtype)], "columns": base.columns}
    samples = [inside.split("natural", None, seed, **how) for seed in range(cuts)]  # type: ignore[arg-type]
    if base.local_steps is None and not own_steps:
        base = base.replace(local_steps=equal_steps((_recipe(base, m, {}) for m in methods), samples[0]))
    advice = Advice(base, names, minutes, {m: [] for m in methods})
    asked = {m: propose("random", ranges(m, base), trials, [], m) for m in methods}
    for m in methods:  # whatever can be refused is refused before the first trial
        assemble(_recipe(base, m, {}), samples[0])
    last = 0.0
    while advice.sweeps < trials:
        # The report at the end takes about as long as one cut of a sweep.
        if advice.sweeps and advice.seconds + last * (1 + 1 / cuts) > 60 * minutes:
            break
        began = time.monotonic()
        for m in methods:
            yield advice, f"{m}, trial {advice.sweeps + 1}", min(1.0, advice.seconds / (60 * minutes))
            advice.tried[m].append(_try(_recipe(base, m, next(asked[m])), samples))
        advice.sweeps, last = advice.sweeps + 1, time.monotonic() - began
    settings = {m: advice.best(m).settings for m in methods}
    good = [m for m in methods if advice.best(m).scores is not None]
    need(ALONE in good and len(good) > 1, f"nothing could be compared: {advice.best(methods[-1]).error}")
    advice.tried = {m: advice.tried[m] for m in good}
    place = None if folder is None else folder / "comparison"
    quick = base.replace(diagnostics=False)
    for step in compare(quick, good, [base.seed], dataset, place, settings, own_steps=True):
        yield advice, f"{step.method}, on test data", 1.0
        advice.table = step.table
    if folder is not None:
        advice.recipe().save(folder)
        write_json(folder / "advise.json", advice.plain())
    yield advice, "", 1.0


def _recipe(base: Recipe, method: str, settings: dict[str, Any]) -> Recipe:
    made = base.replace(method=method, settings=dict(settings), clients=None, diagnostics=False)
    return with_steps(made, base.local_steps)


def _without_test(base: Recipe, dataset: Dataset) -> tuple[list[str], Dataset]:
    """The clients' names, and the data without anybody's test samples, dealt out as they were."""
    outer = split(base, dataset)
    _, order, bounds = dataset.deal(parse(base.partition), base.clients, base.seed, base.parts, base.minimum)
    kept = [order[low:high] for low, high in bounds[:, [0, 2]]]
    rows, owners = np.concatenate(kept), np.repeat(np.arange(len(kept)), [len(k) for k in kept])
    part = replace(dataset, x=dataset.x[rows], y=dataset.y[rows], keys=owners, key_names=tuple(outer.names))
    return outer.names, part


def _try(recipe: Recipe, samples: Sequence[Clients]) -> Tried:
    """Play one setting on every cut."""
    found = []
    try:
        for seed, clients in enumerate(samples):
            *_, result = play_recipe(recipe.replace(seed=seed), clients, None)
            found.append(np.maximum(result.scores["chosen/test/accuracy"], -1.0))
    except SartorError as e:  # it diverged, or these settings do not go together
        return Tried(recipe.settings, None, str(e))
    there = ~np.isnan(found)
    mean = np.where(there.any(0), np.nan_to_num(found).sum(0) / np.maximum(there.sum(0), 1), np.nan)
    return Tried(recipe.settings, mean)
