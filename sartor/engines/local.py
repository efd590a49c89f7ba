"""Clients in this process: stacked and vectorised (local), or one at a time with their name on every error (serial).

Small matrix products gain nothing from being split over cores, so each worker computes with one thread, and workers
take chunks of clients side by side. How clients are cut into chunks does not depend on the workers, and neither do the
numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import combinations_with_replacement
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ..client_table import Empty, Memory, Rows, row_of, rows_of, span
from ..core import Method, Problem, Stage, State, Task
from ..data.clients import Clients
from ..errors import Diverged, SartorError, see
from ..judge.choice import SHARES, covariance
from ..tasks import compiled, convex
from ..tasks.task import ModelTask
from . import forked
from .stack import Judged, Stack
from .threads import cores, one_thread

Item = TypeVar("Item")
Found = TypeVar("Found")
_LINE = 64  # bytes: where PyTorch's own memory begins
_CACHE_BYTES = 5 << 19  # what a chunk's models may take: measured, one step's working set is several times that
_MOST = 25  # clients in a chunk, however small their models: their batches are in the cache too,
_MOST_COMPILED = 50  # unless they take their steps one after the other (tasks/dense_steps.py)
_MOST_APART = 3  # and few where they are multiplied one by one anyway: what layers give them stays in the cache
_SIDE_BY_SIDE = 2  # a cohort is cut into at least so many chunks, to keep so many cores at work ...
WORTH_IT = 1 << 19  # ... if its models have so many parameters in all: with fewer, Python takes most of the time


class LocalEngine:
    """All clients' data in memory, their states there or on disk (`store`); chunks hold clients of similar size."""

    def __init__(
        self,
        method: Method,
        task: Task,
        data: Clients,
        start: State,
        seed: int,
        chunk: int | None = None,
        workers: int | None = None,
        store: Path | None = None,
    ) -> None:
        self.method, self.task, self.data, self.seed = method, task, data, seed
        self.clients = len(data)
        self.chunk = chunk
        self.stacks: tuple[int, ...] = ()  # where all whose data are here are asked: how they are cut, if not by itself
        self.store = store
        self.most_steps: int | None = None  # of a client in a round, where somebody else decides on the method
        self.mixes = True  # whether mixtures of both models are scored: nobody takes one where nothing is chosen by
        self.workers = min(workers, max(1, self.clients)) if workers else min(_SIDE_BY_SIDE, cores())
        empty: Empty = forked.shared if self.workers > 1 and data.x.device.type == "cpu" else torch.empty
        self.states = {k: Rows(self.clients, v).at(store, f"client-{k}", empty) for k, v in start.items()}
        self.visits = empty([self.clients], dtype=torch.int64).zero_()
        self._taken = empty([self.clients], dtype=torch.int64).zero_()
        self.steps = 0  # minibatch gradients of everybody in training: counted, as a sum over a million would take long
        self._tasks: SimpleQueue[Task] = SimpleQueue()  # a module must not be used by two threads at once
        for i in range(self.workers):
            self._tasks.put(copy.deepcopy(task) if i else task)
        self._pool = ThreadPoolExecutor(self.workers) if self.workers > 1 else None
        self._lock = Lock()
        self._team: forked.Team | None = None
        self._most = _MOST_COMPILED if task.dense is not None and compiled.available() else _MOST
        if isinstance(task, ModelTask) and task.multiplies_apart(data.steps):
            self._most = _MOST_APART

    def taken(self, ids: Tensor) -> Tensor:
        """How many minibatch gradients each of these clients has evaluated in training."""
        return self._taken[ids]

    @property
    def _memory(self) -> dict[str, Memory]:
        """The states whose rows may be written in place."""
        return {k: base for k, rows in self.states.items() if (base := rows.memory) is not None}

    def map(
        self, stage: Stage, round: int, ids: Tensor, down: State, shared: Tensor | None = None
    ) -> tuple[Tensor, State]:
        place = ids.numpy()
        chunks = self.cut(place)
        with one_thread():
            if stage != "train":
                return ids, self._gathered(chunks, self._by_threads(stage, round, place, chunks, down, shared))
            before = int(self._taken[ids].sum())
            if self._team is not None and len(chunks) > 1 and self._team.fits(ids, down):
                messages = self._team.play(round, ids, chunks, down)
            else:
                found = self._by_threads(stage, round, place, chunks, down, shared)
                for base in self._memory.values():
                    base.lay_out()
                kept = [(ids[torch.from_numpy(here)], state) for here, (state, _) in zip(chunks, found, strict=True)]
                if len(self._memory) < len(self.states):  # what waits for the disk is looked through: one block a round
                    kept = [_one_block(kept)]
                self._each(lambda one: self.keep(*one), kept)
                messages = self._gathered(chunks, found)
                self._team = self._make_team(chunks, down, messages)
            self.visits[ids] += 1
            self.steps += int(self._taken[ids].sum()) - before
        return ids, messages

    def _by_threads(
        self,
        stage: Stage,
        round: int,
        place: np.ndarray,
        chunks: list[np.ndarray],
        down: State,
        shared: Tensor | None,
    ) -> list[tuple[State, State]]:
        """New states and messages of each chunk."""

        def work(here: np.ndarray) -> tuple[State, State]:
            rows = torch.from_numpy(here)
            model = None if shared is None else row_of(shared, rows)
            return self._stage(stage, round, place[here], rows_of(down, rows), model)

        return self._each(work, chunks)

    def _gathered(self, chunks: list[np.ndarray], found: list[tuple[State, State]]) -> State:
        """The chunks' messages as one, in the order of the ids."""
        count = sum(map(len, chunks))
        messages = {k: v.new_empty(count, *v.shape[1:]) for k, v in found[0][1].items()}

        def put(at: int) -> None:
            here = span(torch.from_numpy(chunks[at]))
            for k, v in found[at][1].items():
                messages[k][here] = v

        self._each(put, range(len(chunks)))
        return messages

    def keep(self, ids: Tensor, state: State) -> None:
        """Take over clients' new states, after every client of the round has finished."""
        for k, v in state.items():
            if k in self._memory:
                self._memory[k].write(ids, v)
            else:
                with self._lock:
                    self.states[k] = self.states[k].replaced(ids, v)

    def _make_team(self, chunks: list[np.ndarray], down: State, messages: State) -> forked.Team | None:
        """Processes in place of threads, from the second round on, where they can be had."""
        here = len(self._memory) == len(self.states) and self.data.x.device.type == "cpu"
        if self._pool is None or len(chunks) == 1 or not here or not forked.available():
            return None
        workers = min(self.workers, len(chunks))
        return forked.Team(workers, partial(self._stage, "train"), self.keep, sum(map(len, chunks)), down, messages)

    def _each(self, work: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
        """The work on every item, by all workers."""
        if self._pool is not None and len(items) > 1:
            return list(self._pool.map(work, items))
        return [work(item) for item in items]

    def cut(self, ids: np.ndarray) -> list[np.ndarray]:
        """Places in the cohort, largest clients first, cut into chunks of clients of similar size."""
        by_size = np.argsort(-self.data.counts("train")[ids], kind="stable")
        n = len(by_size)
        if self.stacks and sum(self.stacks) == n:
            return np.split(by_size, np.cumsum(self.stacks)[:-1])
        if self.chunk:
            return np.array_split(by_size, -(-n // self.chunk))
        fits = max(1, min(self._most, _CACHE_BYTES // (self.task.size * self.data.x.element_size())))
        together = _SIDE_BY_SIDE if n * self.task.size >= WORTH_IT else 1
        return np.array_split(by_size, min(n, -(-n // (fits * together)) * together))

    def _stage(
        self, stage: Stage, round: int, ids: np.ndarray, down: State, shared: Tensor | None = None
    ) -> tuple[State, State]:
        rows = torch.from_numpy(ids)
        state = {k: v[rows] for k, v in self.states.items()}
        if stage != "train":  # methods train on copies, but score states where they lie
            state = {k: _aligned(v) for k, v in state.items()}
        visits = self.visits[rows] + (stage == "train")
        task = self._tasks.get()
        try:
            stack = Stack(task, self.data, ids, visits.to(self.data.x.device), round, self.seed)
            stack.most_steps, stack.mixes = self.most_steps, self.mixes
            return self._at(stage, round, state, down, shared, stack)
        finally:
            self._tasks.put(task)

    def _at(
        self, stage: Stage, round: int, state: State, down: State, shared: Tensor | None, stack: Stack
    ) -> tuple[State, State]:
        new, message = computed(self.method, stage, state, down, shared, stack)
        if stage == "train":
            self.check_finite(round, stack.ids, new | message)
            self._taken[torch.from_numpy(stack.ids)] += torch.from_numpy(stack.gradients())
        return new, message

    def check_finite(self, round: int, ids: np.ndarray, tensors: State) -> None:
        """Refuse what is not finite of what these clients have computed in training."""
        honest = torch.from_numpy(~np.isin(ids, list(self.method.hostile))).to(self.data.x.device)
        for name, value in tensors.items():
            bad = ~torch.isfinite(value.reshape(len(ids), -1).sum(1)) & honest
            if bool(bad.any()):
                client = int(ids[int(torch.nonzero(bad)[0])])
                raise Diverged(
                    f"diverged in round {round + 1}: {name} of client {self.data.names[client]} holds NaN or Inf. "
                    "The likely cause is a step too large for this problem (lr·(λ + L) must stay below 2): "
                    f"lower lr or lam.{see('divergence')}"
                )

    def move(self, states: State, visits: Tensor, taken: Tensor) -> None:
        """Keep the clients' states and counts in these tensors from now on: parts of tables that engines share."""
        for k, base in self._memory.items():
            base.move(states[k])
        self.visits, self._taken = visits.copy_(self.visits), taken.copy_(self._taken)
        self._pool = None  # other processes would not see them

    def save(self) -> State:
        out = {"visits": self.visits}
        for k, rows in self.states.items():
            out |= rows.saved(f"state/{k}")
        return out

    def restore(self, states: State) -> None:
        self.visits.copy_(states["visits"])
        self.states = {k: rows.restored(f"state/{k}", states) for k, rows in self.states.items()}

    def settle(self) -> None:
        self.states = {k: rows.settle() for k, rows in self.states.items()}


class SerialEngine(LocalEngine):
    """One client at a time, in order. When something raises, it says which client, round and stage."""

    def __init__(
        self, method: Method, task: Task, data: Clients, start: State, seed: int, store: Path | None = None
    ) -> None:
        super().__init__(method, task, data, start, seed, chunk=1, workers=1, store=store)

    def _stage(
        self, stage: Stage, round: int, ids: np.ndarray, down: State, shared: Tensor | None = None
    ) -> tuple[State, State]:
        try:
            return super()._stage(stage, round, ids, down, shared)
        except Diverged:
            raise
        except Exception as e:
            e.add_note(f"client {self.data.names[int(ids[0])]}, round {round + 1}, stage {stage}")
            raise


def computed(
    method: Method, stage: Stage, state: State, down: State, shared: Tensor | None, stack: Stack
) -> tuple[State, State]:
    """New states and messages of a stack's clients in one stage."""
    if stage == "train":
        return method.client(state, down, stack)
    if stage == "diagnose":
        return {}, method.diagnose(state, down, stack)
    if stage == "evaluate":
        return {}, _evaluated(method, state, down, shared, stack)
    if stage == "training":
        both = {"personal": (method.personal(state, down, stack), stack), "global": (shared, stack.forgetful())}
        return {}, {f"{k}/train/loss": of.score(v, "train")[0] for k, (v, of) in both.items() if v is not None}
    if stage == "personal":
        model = method.personal(state, down, stack)
        return {}, {} if model is None else {"personal": model} | stack.statistics(model)
    raise SartorError(f"a stage is train, evaluate, training, diagnose or personal; got {stage!r}.")


def _evaluated(method: Method, state: State, down: State, shared: Tensor | None, stack: Stack) -> State:
    """Scores of both models and of their mixtures; and "personal/steps" [c], the gradients it took to make the personal
    ones: none where they are kept, else those of fine-tuning."""
    out: State = {}
    personal = method.personal(state, down, stack)
    if personal is not None:
        out["personal/steps"] = torch.from_numpy(stack.gradients()).double()
    merits: State = {}
    for name, (validation, test, merits[name]) in _judged(personal, shared, stack):
        for part, (loss, score) in (("validation", validation), ("test", test)):
            out[f"{name}/{part}/loss"], out[f"{name}/{part}/accuracy"] = loss, score
    return out | _compared(merits)


def _judged(personal: Tensor | None, shared: Tensor | None, stack: Stack) -> Iterator[tuple[str, Judged]]:
    """The models that a client may be served with, by name, and how good they are. Two are not mixed where each has its
    own statistics of batch normalisation, or where a client remembers samples for the personal one."""
    if personal is not None and shared is not None and stack.mixes and stack.mixes_outputs:
        yield from zip(SHARES, stack.judged_mixtures(personal, shared, SHARES.values()), strict=True)
        return
    whole = not stack.mixes or stack.task.has_statistics or stack.task.neighbours is not None
    for name, share in SHARES.items():
        if share == 1.0 and personal is not None:
            yield name, stack.judged(personal)
        elif share == 0.0 and shared is not None:
            yield name, stack.forgetful().judged(shared)
        elif personal is not None and shared is not None and 0.0 < share < 1.0 and not whole:
            yield name, stack.judged(torch.lerp(shared, personal, share))


def _compared(merits: State) -> State:
    """What a choice between models is made by (judge.choice.belief): each one's mean merit on validation samples;
    where there are two or more, how their differences from the personal model vary together over samples, and the
    number of samples."""
    out = {f"{name}/validation/merit": merit.nanmean(1) for name, merit in merits.items()}
    if "personal" not in merits or len(merits) == 1:
        return out
    gaps = {name: merit - merits["personal"] for name, merit in merits.items() if name != "personal"}
    around = {name: gap - gap.nanmean(1, keepdim=True) for name, gap in gaps.items()}
    for a, b in combinations_with_replacement(around, 2):
        out[covariance(a, b)] = (around[a] * around[b]).nanmean(1)
    return out | {"validation/samples": (~merits["personal"].isnan()).sum(1).double()}


def _one_block(kept: list[tuple[Tensor, State]]) -> tuple[Tensor, State]:
    """New states of all chunks."""
    ids = torch.cat([own for own, _ in kept])
    return ids, {k: torch.cat([state[k] for _, state in kept]) for k in kept[0][1]}


def _aligned(value: Tensor) -> Tensor:
    """The same rows where vector instructions like them: a product's last bit must not depend on an address, which
    another engine, or a disk, would not have."""
    return value if value.data_ptr() % _LINE == 0 else value.clone()


def problem_of(task: Task, data: Clients, seed: int, pretrained: bool = False) -> Problem:
    """What a method is told before the first round."""
    count = data.counts("train")
    start = task.init(None if pretrained else seed).to(data.x)
    share = torch.as_tensor(count / count.sum(), dtype=start.dtype, device=start.device)
    linear = task.dense is not None and task.dense.linear
    smooth = convex.one_layer(task.dense) is not None
    return Problem(start, share, seed, task.blocks, task.kind, linear, int(count.max()), smooth)
