"""Monte Carlo through the library: R independent federations of m clients, played as one of R·m clients.

Client r·m + i is client i of federation r. Methods, attacks, engine and round loop are the library's own; only the
server's part is called once for each federation, with its own clients' messages.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...client_table import Rows
from ...core import ClientStack, Method, Problem, Server, State, Task
from ...data.clients import Clients
from ...engines import LocalEngine
from ...engines.local import problem_of
from ...run.rounds import Run
from ...wrappers import Attack, Hostile
from ...wrappers.base import Wrapper

_ENTRIES = 1 << 21  # numbers in the largest tensor of a chunk, so that a run stays within the memory of a small machine


class Replicas(Wrapper):
    """`method` in R federations at once."""

    def __init__(self, method: Method, replicas: int) -> None:
        super().__init__(method)
        self.replicas = replicas

    def init(self, problem: Problem) -> tuple[Server, State]:
        self.m = problem.clients // self.replicas
        own = replace(problem, share=problem.share[: self.m] * self.replicas)
        self.share = own.share
        server, state = self.method.init(own)
        based = [
            {k: v.at(None, k) if isinstance(v, Rows) else v for k, v in server.items()} for _ in range(self.replicas)
        ]
        return {"federations": based}, state

    def downlink(self, server: Server, ids: Tensor, round: int) -> State:
        each = [
            self.method.downlink(server["federations"][r], here - r * self.m, round)
            for r, here in self._federations(ids)
        ]
        return {k: torch.cat([down[k] for down in each]) for k in each[0]}

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        return self.method.client(state, down, self._within(local))

    def server(self, server: Server, ids: Tensor, messages: State, weights: Tensor, round: int) -> Server:
        federations, at = list(server["federations"]), 0
        for r, here in self._federations(ids):
            own = {k: v[at : at + len(here)] for k, v in messages.items()}
            ids = here - r * self.m
            new = self.method.server(federations[r], ids, own, self.method.client_weights(self.share[ids]), round)
            federations[r] = {k: v.settle() if isinstance(v, Rows) else v for k, v in new.items()}
            at += len(here)
        return {"federations": federations}

    def shared(self, server: Server) -> None:
        return None  # one for each federation: see `globals_of`

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor | None:
        return self.method.personal(state, down, self._within(local))

    def diagnose(self, state: State, down: State, local: ClientStack) -> State:
        return self.method.diagnose(state, down, self._within(local))

    def _within(self, local: ClientStack) -> ClientStack:
        """The same stack, whose clients know only their own federation's size."""
        own = copy.copy(local)
        own.clients = self.m
        return own

    def _federations(self, ids: Tensor) -> Iterable[tuple[int, Tensor]]:
        """Sorted ids by federation."""
        which = torch.div(ids, self.m, rounding_mode="floor")
        counts = torch.bincount(which, minlength=self.replicas).tolist()
        return ((r, here) for r, here in enumerate(torch.split(ids, counts)) if len(here))


class Play:
    """R federations at work: rounds are played one by one, and models and losses read off in between."""

    def __init__(
        self,
        method: Method,
        task: Task,
        data: Clients,
        replicas: int = 1,
        *,
        attack: Attack | None = None,
        hostile: Iterable[int] = (),
        cohort: int | None = None,
        seed: int = 0,
    ) -> None:
        self.replicas, self.m, self.size = replicas, len(data) // replicas, task.size
        self.many = Replicas(method, replicas)
        problem = problem_of(task, data, seed, pretrained=True)
        server, start = self.many.init(problem)
        ids = frozenset(r * self.m + i for r in range(replicas) for i in hostile)
        played = Hostile(self.many, attack, ids, seed, self.m) if attack is not None and ids else self.many
        square = task.size**2 if problem.linear else 0  # the normal equations
        chunk = max(self.m, _ENTRIES // max(square, int(data.counts("train").max()) * task.size))
        self.engine = LocalEngine(played, task, data, start, seed, chunk=chunk, workers=1)
        self.run = Run(played, self.engine, problem, server, len(data) if cohort is None else cohort)
        self.everyone = torch.arange(len(data))

    def rounds(self, count: int = 1) -> Play:
        for _ in range(count):
            self.run.step()
        return self

    def servers(self) -> list[Server]:
        federations: list[Server] = self.run.server["federations"]
        return federations

    def globals_of(self) -> Tensor:
        """w [R, k] of every federation."""
        found = [w.whole() if isinstance(w := s["w"], Rows) else w for s in self.servers()]
        return torch.stack(found)

    def state(self, name: str) -> Tensor:
        """A client state by name [R, m, ...]."""
        rows: Tensor = self.engine.save()[f"state/{name}"]
        return rows.reshape(self.replicas, self.m, *rows.shape[1:])

    def losses(self, of: str) -> np.ndarray:
        """[R, m] the test loss of every client's "personal" or "global" model, as the library scores it."""
        down = self.many.downlink(self.run.server, self.everyone, self.run.round)
        shared = self.globals_of().repeat_interleave(self.m, 0) if of == "global" else None
        found = self.engine.map("evaluate", self.run.round, self.everyone, down, shared)[1][f"{of}/test/loss"]
        scored: np.ndarray = found.double().numpy().reshape(self.replicas, self.m)
        return scored

    def facts(self) -> dict[str, np.ndarray]:
        """[R, m, ...] the method's diagnostics by name."""
        down = self.many.downlink(self.run.server, self.everyone, self.run.round)
        found = self.engine.map("diagnose", self.run.round, self.everyone, down)[1]
        return {k: v.double().numpy().reshape(self.replicas, self.m, *v.shape[1:]) for k, v in found.items()}

    def personal(self) -> np.ndarray:
        """[R, m, d] every client's own model."""
        down = self.many.downlink(self.run.server, self.everyone, self.run.round)
        found = self.engine.map("personal", self.run.round, self.everyone, down)[1]["personal"]
        models: np.ndarray = found.numpy().reshape(self.replicas, self.m, -1)
        return models


def estimate(samples: np.ndarray) -> tuple[float, float]:
    """Mean and standard error over the first axis, one number for each independent federation."""
    R = len(samples)
    return float(samples.mean()), float(samples.std(ddof=1) / math.sqrt(R)) if R > 1 else math.inf
