"""Clients of several runs in one stack: runs of one method and model that differ in seeds, data or numbers.

Every run keeps its own engine with its clients' states. Here what all of them ask in a round is computed in one go:
rows of the stack are (run, client), sorted by size over all runs; each has its run's seed, data and downlink, and a
setting in which the runs differ is a column [c, 1]. Which settings may be one, a method or solver says (`columns`).

The numbers are those of the runs played one by one. To the last bit they need not be: passes over all of a client's
samples are padded to the largest client of a stack, and the order in which a product adds up depends on that.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..client_table import rows_of
from ..core import Method, Stage, State
from ..data.clients import Clients
from ..errors import Diverged
from ..seeds import words
from ..tasks import convex
from ..tasks.shared_layer import FEWEST, SharedLayer
from .local import WORTH_IT, LocalEngine, computed
from .stack import Stack
from .threads import one_thread

Answer = tuple[Tensor, State]
Settings = TypeVar("Settings")
_MOST_BYTES = 1 << 28  # of all runs' samples together: with more of them there is nothing to gain
_ENOUGH, _ALIKE = 64, 0.8  # rows, and how much smaller the next client may be: padding costs more than another call
_METHODS = 64  # with their columns, that are kept from round to round
_ENTRIES = 1 << 19  # numbers in the largest tensor of a chunk: measured, with more of them caches are too small


@dataclass(frozen=True)
class Request:
    """What a run asks its clients, as Engine.map."""

    stage: Stage
    round: int
    ids: Tensor
    down: State
    shared: Tensor | None


# --- which runs go together -------------------------------------------------------------------------------------------


def alone(engine: object) -> str:
    """Why the clients of this engine cannot be in one stack with those of other runs; empty: they can."""
    if type(engine) is not LocalEngine:
        return f"its clients are in a {type(engine).__name__}"
    if engine.store is not None:
        return "its clients' states are on disk"
    if not is_dataclass(engine.method):
        return f"its method is wrapped ({type(engine.method).__name__})"
    if not getattr(engine.task, "vectorise", True):
        return "its model is computed client by client"
    if engine.workers > 1 and engine.clients * engine.task.size >= WORTH_IT:
        return "its models keep all cores at work"
    return ""


def kind_of(engine: LocalEngine) -> Hashable:
    """What must be equal of runs that go together: all but seeds, data, and numbers that can be columns."""
    task, data = engine.task, engine.data
    weights = None if task.class_weights is None else tuple(task.class_weights.tolist())
    layers = repr(getattr(task, "original", None)), getattr(task, "frozen", None)  # and what is not trained of them
    model = *layers, task.kind, task.size, task.dense, task.metric, task.named_metric, weights, task.neighbours
    shapes = tuple((k, rows.start.shape) for k, rows in engine.states.items())
    samples = data.x.shape[1:], data.x.dtype, data.x.device, data.y.dtype, data.classes, len(data)
    return _outline(engine.method), model, shapes, samples


def _outline(settings: Any) -> Hashable:
    """Settings without the numbers that can be columns. What is not a dataclass is taken as it is."""
    if not is_dataclass(settings):
        return settings if isinstance(settings, Hashable) else id(settings)
    each = []
    for f in fields(settings):
        value = getattr(settings, f.name)
        free = f.name in getattr(settings, "columns", ()) and _is_number(value)
        each.append((f.name, "any number" if free else _outline(value)))
    return type(settings), tuple(each)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def columned(each: Sequence[Settings], rows: np.ndarray, like: Tensor) -> Settings:
    """One method for a stack whose rows [c] are of these methods: settings that differ are columns [c, 1]."""
    one = each[0]
    if all(other == one for other in each[1:]):
        return one
    made = copy.copy(one)
    for f in fields(one):  # type: ignore[arg-type]
        own = [getattr(method, f.name) for method in each]
        if is_dataclass(own[0]):
            object.__setattr__(made, f.name, columned(own, rows, like))
        elif any(value != own[0] for value in own[1:]):
            object.__setattr__(made, f.name, like.new_tensor(own)[torch.from_numpy(rows)][:, None])
    return made


def fitting(each: Sequence[Clients]) -> Iterator[int]:
    """How many runs after each other go into one stack, as their samples together must fit into memory."""
    at = 0
    while at < len(each):
        held: dict[Hashable, int] = {}
        count = 0
        for clients in each[at:]:
            held[_samples(clients)] = clients.x.nbytes
            if count and sum(held.values()) > _MOST_BYTES:
                break
            count += 1
        yield count
        at += count


# --- what they ask, at once -------------------------------------------------------------------------------------------


class Joint:
    """The clients of runs of one kind (`kind_of`): their states are in tables of which every engine has its part."""

    def __init__(self, engines: Sequence[LocalEngine]) -> None:
        self.engines, self.task = list(engines), engines[0].task
        self.mixes = any(engine.mixes for engine in engines)
        self.data, self.first = _joined([e.data for e in engines])
        self.seeds = words([e.seed for e in engines])
        counts = [e.data.counts("train") for e in engines]
        self.shares = torch.as_tensor(np.concatenate([n / n.sum() for n in counts])).to(self.data.x)
        self.layers: dict[bytes, SharedLayer] = {}
        self._methods: dict[tuple[bytes, bytes], Method] = {}  # of chunks: the same in every round
        c = len(self.data)
        self.states = {k: rows.start.new_empty(c, *rows.start.shape) for k, rows in engines[0].states.items()}
        self.visits, self.taken = torch.empty(2, c, dtype=torch.int64)
        for engine, first in zip(engines, self.first, strict=True):
            here = slice(first, first + engine.clients)
            engine.move({k: v[here] for k, v in self.states.items()}, self.visits[here], self.taken[here])

    def together(self, stage: Stage) -> bool:
        """Whether a stage can be computed for all at once: diagnostics are not written for columns, and differences of
        slopes would show how sums were rounded; metrics by name are in units of each run's own data."""
        return stage != "diagnose" and (stage != "evaluate" or self.task.named_metric is None)

    def map(self, requests: Sequence[tuple[int, Request]]) -> list[Answer | Diverged]:
        """The answers to requests of one stage and round, each with the number of its run. A run that diverges is told
        so, and the others get what they asked for."""
        numbers, asked = np.array([number for number, _ in requests]), [request for _, request in requests]
        stage, round = asked[0].stage, asked[0].round
        which = np.repeat(np.arange(len(asked)), [len(r.ids) for r in asked])
        ids = torch.cat([r.ids for r in asked]).numpy()
        at, seeds = self.first[numbers][which] + ids, self.seeds[numbers][which]
        down = {k: torch.cat([r.down[k] for r in asked]) for k in asked[0].down}
        models = [r.shared for r in asked if r.shared is not None]
        shared = torch.cat(models) if models else None
        chunks, found = self._cut(at), list[tuple[State, State, State]]()
        with one_thread():
            for here in chunks:
                rows, places = torch.from_numpy(here), torch.from_numpy(at[here])
                visits = self.visits[places] + (stage == "train")
                stack = Stack(self.task, self.data, at[here], visits.to(self.data.x.device), round, seeds[here])
                stack.ids, stack.clients, stack.layers = ids[here], self.engines[0].clients, self.layers
                stack.share, stack.mixes = self.shares[places, None], self.mixes
                method = self._method(numbers, which[here])
                state, model = rows_of(self.states, places), None if shared is None else shared[rows]
                new, message = computed(method, stage, state, rows_of(down, rows), model, stack)
                found.append((new, message, {"gradients": torch.from_numpy(stack.gradients())}))
        back = torch.from_numpy(np.argsort(np.concatenate(chunks)))  # from the chunks' order to that of the requests
        new, message, work = (
            {k: torch.cat([p[k] for p in parts])[back] for k in parts[0]} for parts in zip(*found, strict=True)
        )
        lengths = [len(r.ids) for r in asked]
        each = {k: torch.split(v, lengths) for k, v in message.items()}
        answers: list[Answer | Diverged] = [(r.ids, {k: v[i] for k, v in each.items()}) for i, r in enumerate(asked)]
        if stage == "train":
            bad = self._diverged(numbers, asked, new | message)
            kept = torch.from_numpy(~np.isin(which, list(bad)))
            self._keep(torch.from_numpy(at)[kept], {k: v[kept] for k, v in new.items()}, work["gradients"][kept])
            taken = np.bincount(which, work["gradients"].numpy(), len(asked)).tolist()
            for i in set(range(len(asked))) - set(bad):
                self.engines[numbers[i]].steps += int(taken[i])
            answers = [bad.get(i, answer) for i, answer in enumerate(answers)]
        return answers

    def _method(self, numbers: np.ndarray, rows: np.ndarray) -> Method:
        """One method for a stack whose rows [c] are of these runs."""
        mark = numbers.tobytes(), rows.tobytes()
        if mark not in self._methods:
            if len(self._methods) >= _METHODS:
                self._methods.clear()
            self._methods[mark] = columned([self.engines[number].method for number in numbers], rows, self.data.x)
        return self._methods[mark]

    def _keep(self, at: Tensor, new: State, gradients: Tensor) -> None:
        for k, v in new.items():
            self.states[k][at] = v
        self.visits[at] += 1
        self.taken[at] += gradients

    def _diverged(self, numbers: np.ndarray, asked: Sequence[Request], found: State) -> dict[int, Diverged]:
        """Which of the runs hold NaN or Inf now, and the words for it."""
        bad: dict[int, Diverged] = {}
        if all(bool(torch.isfinite(v.sum())) for v in found.values()):
            return bad
        each = {k: torch.split(v, [len(r.ids) for r in asked]) for k, v in found.items()}
        for i, (number, request) in enumerate(zip(numbers, asked, strict=True)):
            try:
                own = {k: v[i] for k, v in each.items()}
                self.engines[number].check_finite(request.round, request.ids.numpy(), own)
            except Diverged as e:
                bad[i] = e
        return bad

    def _cut(self, at: np.ndarray) -> list[np.ndarray]:
        """Places, largest clients first and those with the same samples after each other, in chunks whose largest
        tensors fit into a cache."""
        counts, first = self.data.counts("train")[at], self.data.bounds[at, 0]
        order = np.lexsort((first, -counts))
        groups = np.split(order, np.flatnonzero(np.diff(first[order]) | np.diff(counts[order])) + 1)
        chunks: list[list[int]] = []
        held = 0
        for group in groups:
            own = self._entries(group, counts)
            padded = chunks and len(chunks[-1]) >= _ENOUGH and counts[group[0]] < _ALIKE * counts[chunks[-1][0]]
            if not chunks or padded or held + own > _ENTRIES:
                chunks.append([])
                held = 0
            held += own
            chunks[-1] += group.tolist()
        return [np.array(chunk) for chunk in chunks]

    def _entries(self, group: np.ndarray, counts: np.ndarray) -> int:
        """Numbers in the largest tensor that clients with the same samples have."""
        dense = convex.one_layer(self.task.dense)
        if dense is None:
            return len(group) * self.task.size
        wide = math.prod(self.data.x.shape[1:]) if len(group) < FEWEST else dense.outputs
        return len(group) * max(self.task.size, int(counts[group[0]]) * wide)


def _samples(clients: Clients) -> Hashable:
    """The same for clients whose samples are the same tensors."""
    return id(clients.x), id(clients.y)


def _joined(each: Sequence[Clients]) -> tuple[Clients, np.ndarray]:
    """All runs' clients, and the number of each run's first; data that runs share are there once."""
    starts: dict[Hashable, int] = {}
    kept: list[Clients] = []
    bounds, rows = [], 0
    for clients in each:
        if _samples(clients) not in starts:
            starts[_samples(clients)] = rows
            kept.append(clients)
            rows += len(clients.x)
        bounds.append(clients.bounds + starts[_samples(clients)])
    x, y = torch.cat([c.x for c in kept]), torch.cat([c.y for c in kept])
    joined = np.concatenate(bounds)
    first = np.cumsum([0, *map(len, bounds)])[:-1]
    return Clients(x, y, joined, [str(i) for i in range(len(joined))], each[0].classes), first
