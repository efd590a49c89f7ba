"""Clients in this process: stacked and vectorised (local), or one at a time with their name on every error (serial).

Small matrix products gain nothing from being split over cores, so each worker computes with one thread, and workers
take chunks of clients side by side. How clients are cut into chunks does not depend on the workers, and neither do the
numbers.
"""

from __future__ import annotations

import copy
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor

from ..core import Method, Problem, State, Task
from ..data.clients import Clients
from ..errors import Diverged, SartorError
from ..rows import Rows
from ..threads import one_thread
from .stack import Stack

_CACHE_BYTES = 5 << 20  # what a chunk's models may take: measured, one step's working set is several times that
_SIDE_BY_SIDE = 2  # a cohort is cut into at least so many chunks, to keep so many cores at work ...
_WORTH_IT = 1 << 19  # ... if its models have so many parameters in all: with fewer, Python takes most of the time


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
        self.store = store
        self.states = {k: Rows(self.clients, v).at(store, f"client-{k}") for k, v in start.items()}
        self.visits = torch.zeros(self.clients, dtype=torch.int64)
        self.workers = workers or min(_SIDE_BY_SIDE, len(os.sched_getaffinity(0)))
        self._tasks: SimpleQueue[Task] = SimpleQueue()  # a module must not be used by two threads at once
        for i in range(self.workers):
            self._tasks.put(copy.deepcopy(task) if i else task)
        self._pool = ThreadPoolExecutor(self.workers) if self.workers > 1 else None

    def map(self, stage: str, round: int, ids: Tensor, down: State) -> tuple[Tensor, State]:
        place = np.asarray(ids.tolist())
        by_size = np.argsort(-self.data.counts("train")[place], kind="stable")
        chunks = self._chunks(by_size)

        def work(here: np.ndarray) -> tuple[State, State]:
            return self._stage(stage, round, place[here], self._rows(down, here))

        with one_thread():
            if self._pool is not None and len(chunks) > 1:
                found = list(self._pool.map(work, chunks))
            else:
                found = [work(here) for here in chunks]
            if stage == "train":  # nothing is written before every client of the round has finished
                for here, (state, _) in zip(chunks, found, strict=True):
                    rows = ids[torch.from_numpy(here)]
                    self.visits[rows] += 1
                    for k, v in state.items():
                        self.states[k] = self.states[k].replaced(rows, v)
                if self.store is None:
                    self.settle()
            messages = {k: v.new_empty(len(ids), *v.shape[1:]) for k, v in found[0][1].items()}
            for here, (_, message) in zip(chunks, found, strict=True):
                for k, v in message.items():
                    messages[k][torch.from_numpy(here)] = v
        return ids, messages

    def _chunks(self, by_size: np.ndarray) -> list[np.ndarray]:
        """Places in the cohort, largest clients first, cut into chunks of clients of similar size."""
        n = len(by_size)
        if self.chunk:
            return np.array_split(by_size, -(-n // self.chunk))
        fits = max(1, min(50, _CACHE_BYTES // (self.task.size * self.data.x.element_size())))
        together = _SIDE_BY_SIDE if n * self.task.size >= _WORTH_IT else 1
        return np.array_split(by_size, min(n, -(-n // (fits * together)) * together))

    def _stage(self, stage: str, round: int, ids: np.ndarray, down: State) -> tuple[State, State]:
        rows = torch.from_numpy(ids)
        state = {k: v[rows] for k, v in self.states.items()}
        visits = self.visits[rows] + (stage == "train")
        task = self._tasks.get()
        try:
            stack = Stack(task, self.data, ids, visits.to(self.data.x.device), round, self.seed)
            return self._at(stage, round, state, down, stack)
        finally:
            self._tasks.put(task)

    def _at(self, stage: str, round: int, state: State, down: State, stack: Stack) -> tuple[State, State]:
        shared = down.pop("global", None)
        if stage == "train":
            new, message = self.method.client(state, down, stack)
            self._check_finite(round, stack.ids, new | message)
            return new, message
        if stage == "diagnose":
            return {}, self.method.diagnose(state, down, stack)
        if stage == "evaluate":
            return {}, self._evaluate(state, down, shared, stack)
        if stage == "personal":
            model = self.method.personal(state, down, stack)
            return {}, {} if model is None else {"personal": model} | stack.statistics(model)
        raise SartorError(f"a stage is train, evaluate, diagnose or personal; got {stage!r}.")

    def _evaluate(self, state: State, down: State, shared: Tensor | None, stack: Stack) -> State:
        out: State = {}
        for name, theta in (("personal", self.method.personal(state, down, stack)), ("global", shared)):
            if theta is None:
                continue
            for part in ("validation", "test"):
                out[f"{name}/{part}/loss"], out[f"{name}/{part}/accuracy"] = stack.score(theta, part)
        return out

    def _check_finite(self, round: int, ids: np.ndarray, tensors: State) -> None:
        for name, value in tensors.items():
            bad = ~torch.isfinite(value.reshape(len(ids), -1).sum(1))
            if bool(bad.any()):
                client = int(ids[int(torch.nonzero(bad)[0])])
                raise Diverged(
                    f"diverged in round {round + 1}: {name} of client {self.data.names[client]} holds NaN or Inf. "
                    "The likely cause is a step too large for this problem (lr·(λ + L) must stay below 2): "
                    "lower lr or lam."
                )

    def _rows(self, down: State, here: np.ndarray) -> State:
        """The chunk's rows; what is common to all stays one expanded row."""
        rows = torch.from_numpy(here)
        return {k: v[:1].expand(len(here), *v.shape[1:]) if v.stride(0) == 0 else v[rows] for k, v in down.items()}

    def save(self) -> State:
        out = {"visits": self.visits}
        for k, rows in self.states.items():
            out |= rows.saved(f"state/{k}")
        return out

    def restore(self, states: State) -> None:
        self.visits = states["visits"].clone()
        self.states = {k: rows.restored(f"state/{k}", states) for k, rows in self.states.items()}

    def settle(self) -> None:
        self.states = {k: rows.settle() for k, rows in self.states.items()}


class SerialEngine(LocalEngine):
    """One client at a time, in order. When something raises, it says which client, round and stage."""

    def __init__(
        self, method: Method, task: Task, data: Clients, start: State, seed: int, store: Path | None = None
    ) -> None:
        super().__init__(method, task, data, start, seed, chunk=1, workers=1, store=store)

    def _stage(self, stage: str, round: int, ids: np.ndarray, down: State) -> tuple[State, State]:
        try:
            return super()._stage(stage, round, ids, down)
        except Diverged:
            raise
        except Exception as e:
            e.add_note(f"client {self.data.names[int(ids[0])]}, round {round + 1}, stage {stage}")
            raise


def problem_of(task: Task, data: Clients, seed: int, pretrained: bool = False) -> Problem:
    """What a method is told before the first round."""
    count = data.counts("train")
    start = task.init(None if pretrained else seed).to(data.x)
    share = torch.as_tensor(count / count.sum(), dtype=start.dtype, device=start.device)
    return Problem(start, share, seed, task.blocks, task.kind, task.linear, int(count.max()))
