"""Clients in this process: stacked and vectorised (local), or one at a time with their name on every error (serial)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..core import Method, Problem, State, Task
from ..data.clients import Clients
from ..errors import Diverged, SartorError
from .stack import Stack

_CACHE_BYTES = 1 << 24  # what a chunk's models may take, so that one step's working set stays close to the caches


class LocalEngine:
    """All clients' data and states in memory; a stage runs over chunks of clients of similar size."""

    def __init__(
        self, method: Method, task: Task, data: Clients, start: State, seed: int, chunk: int | None = None
    ) -> None:
        self.method, self.task, self.data, self.seed = method, task, data, seed
        self.clients = len(data)
        self.chunk = chunk or max(1, min(64, _CACHE_BYTES // (task.size * data.x.element_size())))
        self.states = {k: v.expand(self.clients, *v.shape).clone() for k, v in start.items()}
        self.visits = torch.zeros(self.clients, dtype=torch.int64)

    def map(self, stage: str, round: int, ids: Tensor, down: State) -> tuple[Tensor, State]:
        place = ids.tolist()
        by_size = np.argsort(-self.data.counts("train")[place], kind="stable")
        found: list[tuple[np.ndarray, State, State]] = []
        for at in range(0, len(by_size), self.chunk):
            here = by_size[at : at + self.chunk]
            found.append((here, *self._stage(stage, round, np.asarray(place)[here], self._rows(down, here))))
        if stage == "train":  # nothing is written before every client of the round has finished
            for here, state, _ in found:
                rows = ids[torch.from_numpy(here)]
                self.visits[rows] += 1
                for k, v in state.items():
                    self.states[k][rows] = v
        order = torch.from_numpy(np.argsort(by_size, kind="stable"))
        return ids, {k: torch.cat([m[k] for _, _, m in found])[order] for k in found[0][2]}

    def _stage(self, stage: str, round: int, ids: np.ndarray, down: State) -> tuple[State, State]:
        rows = torch.from_numpy(ids)
        state = {k: v[rows] for k, v in self.states.items()}
        visits = self.visits[rows] + (stage == "train")
        stack = Stack(self.task, self.data, ids, visits.to(self.data.x.device), round, self.seed)
        if stage == "train":
            down.pop("global", None)
            new, message = self.method.client(state, down, stack)
            self._check_finite(round, ids, new | message)
            return new, message
        if stage == "diagnose":
            return {}, self.method.diagnose(state, down, stack)
        if stage == "evaluate":
            return {}, self._evaluate(state, down, stack)
        if stage == "personal":
            model = self.method.personal(state, down, stack)
            return {}, {} if model is None else {"personal": model} | stack.statistics(model)
        raise SartorError(f"a stage is train, evaluate, diagnose or personal; got {stage!r}.")

    def _evaluate(self, state: State, down: State, stack: Stack) -> State:
        shared = down.pop("global", None)
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
                    f"diverged in round {round}: {name} of client {self.data.names[client]} holds NaN or Inf. "
                    "The likely cause is a step too large for this problem (lr·(λ + L) must stay below 2): "
                    "lower lr or lam."
                )

    def _rows(self, down: State, here: np.ndarray) -> State:
        """The chunk's rows; what is common to all stays one expanded row."""
        rows = torch.from_numpy(here)
        return {k: v[:1].expand(len(here), *v.shape[1:]) if v.stride(0) == 0 else v[rows] for k, v in down.items()}

    def save(self) -> State:
        return {"visits": self.visits} | {f"state/{k}": v for k, v in self.states.items()}

    def restore(self, states: State) -> None:
        self.visits = states["visits"].clone()
        self.states = {k: states[f"state/{k}"].to(v) for k, v in self.states.items()}


class SerialEngine(LocalEngine):
    """One client at a time, in order. When something raises, it says which client, round and stage."""

    def __init__(self, method: Method, task: Task, data: Clients, start: State, seed: int) -> None:
        super().__init__(method, task, data, start, seed, chunk=1)

    def _stage(self, stage: str, round: int, ids: np.ndarray, down: State) -> tuple[State, State]:
        try:
            return super()._stage(stage, round, ids, down)
        except Diverged:
            raise
        except Exception as e:
            e.add_note(f"client {self.data.names[int(ids[0])]}, round {round}, stage {stage}")
            raise


def problem_of(task: Task, data: Clients, seed: int) -> Problem:
    """What a method is told before the first round."""
    count = data.counts("train")
    start = task.init(seed).to(data.x)
    return Problem(start, torch.as_tensor(count / count.sum(), dtype=start.dtype, device=start.device), seed)
