"""Playing runs one after another and keeping of each only a small file: its recipe and the means of every evaluated
round. What is finished is not run again; what failed is kept with its reason, and is tried again the next time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...data import Clients, Dataset
from ...errors import SartorError, need
from ...judge.metrics import ORACLE, judge, with_hybrid
from ...run.complete import complete, read_data, split
from ...run.play import play_recipe
from ...run.recipe import Recipe
from ...run.result import Result
from ...storage import read_json, write_json
from .mapping import key_of
from .workload import seconds

# A column of the history → what `judge` calls it.
COLUMNS = {"accuracy": "accuracy_mean", "pooled": "accuracy_pooled", "std": "accuracy_std"}
COLUMNS |= {"loss": "loss_mean", "loss_var": "loss_var"}
_MOST = 200  # clients up to which the weights between them are kept


class Job(NamedTuple):
    """A run that is wanted."""

    key: str
    recipe: Recipe

    @property
    def split(self) -> tuple[object, ...]:
        """Runs in which it is the same are of the same clients."""
        r = self.recipe
        return r.data, r.target, r.client_key, r.partition, r.clients, r.minimum, tuple(r.parts), r.dtype, r.seed

    @property
    def name(self) -> str:
        r = self.recipe
        words = [r.method, r.data, r.partition, *([str(r.attack), f"{r.attackers}"] if r.attack != "none" else [])]
        return ", ".join([*words, *([r.aggregator] if r.aggregator != "mean" else []), f"seed {r.seed}"])


@dataclass
class FinishedRuns:
    """A folder of finished runs. What other experiments have finished is taken over: several share their runs."""

    folder: Path
    others: Sequence[Path] = ()
    _known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def get(self, key: str) -> dict[str, Any] | None:
        """A run that was kept, also one that failed; None: there is none, or what is there cannot be read."""
        if key not in self._known:
            self._known[key] = _kept(self.folder, key)
            for other in self.others if not self._known[key] else ():
                if (found := _kept(other, key)) and "error" not in found:
                    self.put(key, found)
                    break
        return self._known[key] or None

    def done(self, key: str) -> bool:
        found = self.get(key)
        return found is not None and "error" not in found

    def finished(self) -> Iterator[dict[str, Any]]:
        """The runs asked for so far that are finished."""
        return (found for found in self._known.values() if found and "error" not in found)

    def put(self, key: str, record: dict[str, Any]) -> None:
        write_json(self.folder / f"{key}.json", record)
        self._known[key] = record


def _kept(folder: Path, key: str) -> dict[str, Any]:
    path = folder / f"{key}.json"
    with contextlib.suppress(SartorError):  # what cannot be read is as good as not there
        return dict(read_json(path)) if path.exists() else {}
    return {}


class Moment(NamedTuple):
    """How far it is: runs played, runs to play, the run at work, its result so far (None: it has just ended)."""

    done: int
    total: int
    job: Job
    result: Result | None
    record: dict[str, Any] | None
    left: float | None  # seconds


@dataclass
class Player:
    """Plays runs. Data and clients are kept while the next run needs the same ones."""

    store: FinishedRuns
    _dataset: tuple[str, Dataset | SartorError] | None = None
    _clients: tuple[tuple[object, ...], Clients] | None = None
    _took: float = 0.0  # seconds of the runs so far, and what was thought they would take
    _thought: float = 0.0

    def play(self, jobs: Sequence[Job]) -> Iterator[Moment]:
        """Play what is not finished yet, runs of the same clients one after another."""
        wanted = {job.key: job for job in jobs if not self.store.done(job.key)}
        sets = list(dict.fromkeys(j.recipe.data for j in wanted.values()))
        splits = list(dict.fromkeys(j.split for j in wanted.values()))
        order = sorted(wanted.values(), key=lambda j: (sets.index(j.recipe.data), splits.index(j.split)))
        expected = [seconds(j.recipe) for j in order]
        for i, job in enumerate(order):
            began = time.perf_counter()
            record: dict[str, Any] = {}
            try:
                for result in self._one(job, record):
                    yield Moment(i, len(order), job, result, None, self._left(expected[i:]))
            except Exception as e:  # whatever is wrong with one run must not end the others; the next call tries again
                said = str(e) if isinstance(e, SartorError) else f"{type(e).__name__}: {e}"
                record = {"recipe": job.recipe.values(), "error": " ".join(said.split())}
            self.store.put(job.key, record)
            if "error" not in record:
                self._took, self._thought = self._took + time.perf_counter() - began, self._thought + expected[i]
            yield Moment(i + 1, len(order), job, None, record, self._left(expected[i + 1 :]))

    def _left(self, expected: Sequence[float]) -> float | None:
        return None if not self._thought else sum(expected) * self._took / self._thought

    def _one(self, job: Job, record: dict[str, Any]) -> Iterator[Result]:
        clients = self._split(job)
        history = _History()
        began = time.perf_counter()
        for result in play_recipe(job.recipe, clients, None):
            history.look(result, clients)
            yield result
        record |= {
            "recipe": result_recipe(job.recipe, clients),
            "data": self._facts(),
            "parameters": result.task.size,
            "seconds": round(time.perf_counter() - began, 1),
            "warnings": list(result.history[-1]["warnings"]),
            **history.columns(),
        }
        if (xi := result.run.method.collaboration(result.run.server)) is not None and len(clients) <= _MOST:
            record["weights"] = [[_short(v) for v in row] for row in xi.double().tolist()]

    def _split(self, job: Job) -> Clients:
        name = job.recipe.data
        if self._dataset is None or self._dataset[0] != name:
            self._clients = None
            try:
                self._dataset = name, read_data(job.recipe)
                self._check_data()
            except SartorError as e:
                self._dataset = name, e  # not looked for again by every run that needs it
        found = self._dataset[1]
        if isinstance(found, SartorError):
            raise found
        if self._clients is None or self._clients[0] != job.split:
            self._clients = None  # room for the next
            self._clients = job.split, split(job.recipe, found)
        return self._clients[1]

    def _facts(self) -> dict[str, Any]:
        assert self._dataset is not None and isinstance(self._dataset[1], Dataset)
        return {"name": self._dataset[1].name, "samples": len(self._dataset[1])}

    def _check_data(self) -> None:
        """Runs on a subset must not be mixed with runs on the whole set."""
        assert self._dataset is not None
        for old in self.store.finished():
            need(
                old["recipe"]["data"] != self._dataset[0] or old["data"] == self._facts(),
                f"{self.store.folder} holds runs on {old['data']['name']} with {old['data']['samples']} samples; here "
                f"{self._dataset[0]} has {self._facts()['samples']}. Choose another --out.",
            )


class _History:
    """The means of every evaluated round."""

    def __init__(self) -> None:
        self.rounds: list[int] = []
        self.bytes: list[int] = []
        self.models: dict[str, dict[str, list[float | None]]] = {}
        self.everyone: dict[str, list[float | None]] = {}  # what a server sees that does not know who is hostile

    def look(self, result: Result, clients: Clients) -> None:
        """Take the last evaluated round, where it is new."""
        if not result.history or (self.rounds and self.rounds[-1] == result.history[-1]["round"]):
            return
        line, run = result.history[-1], result.run
        self.rounds.append(line["round"])
        self.bytes.append(line["bytes_up"] + line["bytes_down"])
        for name, value in line.get("training", {}).items():
            if name.endswith("_everyone"):
                self.everyone.setdefault(name.removesuffix("_everyone"), []).append(_short(value))
        scores = with_hybrid(run.scores)
        for model, found in judge(scores, clients.counts("test"), ~run.hostile).items():
            if found is None:
                continue
            columns = self.models.setdefault(model, {k: [] for k in (*COLUMNS, "validation")})
            for name, key in COLUMNS.items():
                columns[name].append(_short(found[key]))
            columns["validation"].append(_validation(scores, model))
            if (loss := line.get("training", {}).get(f"{model}_loss")) is not None:
                columns.setdefault("training", []).append(_short(loss))

    def columns(self) -> dict[str, Any]:
        seen = {"everyone": self.everyone} if self.everyone else {}
        return {"rounds": self.rounds, "bytes": self.bytes, "models": self.models, **seen}


def _validation(scores: dict[str, np.ndarray], model: str) -> float | None:
    """The mean validation accuracy over clients that have validation data; the oracle chooses on test data alone."""
    found = scores.get(f"{model}/validation/accuracy")
    if found is None or model == ORACLE or bool(np.isnan(found).all()):
        return None
    return _short(float(np.nanmean(found)))


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def result_recipe(recipe: Recipe, clients: Clients) -> dict[str, Any]:
    """Every setting of a run, written out."""
    return {k: v for k, v in complete(recipe, clients).values().items() if v is not None}


def job_of(recipe: Recipe) -> Job:
    """The job of a recipe; what its method or attack refuses is refused here."""
    need(recipe.store == "memory", "a repetition keeps no client states on disk; leave store away.")
    return Job(key_of(recipe), recipe)
