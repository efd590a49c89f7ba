"""Cold start: clients that join when training is over, and what they get. Nothing that they do changes the federation.

A newcomer starts from the state that its method gives it (`fresh`: most often all its models are the global one),
visits the server some times (`welcome`: what it is sent; `join`: what it makes of it) and ends with `personal`. What
each method does is in docs/cold-start.md. One without personal models serves a newcomer with the global one, as it is.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import torch
from torch import Tensor

from ..core import ClientStack, Method, Server, Stage, State, Task
from ..data.clients import Clients
from ..engines import LocalEngine
from ..errors import need
from ..seeds import stream
from ..wrappers.base import Wrapper
from .rounds import Run


def hold_out(clients: Clients, share: float, seed: int) -> tuple[Clients, Clients | None]:
    """(those that take part, those that do not): a share of the clients, drawn by the seed, is never trained on."""
    count, m = held_out(len(clients), share), len(clients)
    if count == 0:
        return clients, None
    order = stream(seed, "unseen").permutation(m)
    return clients.take(sorted(order[count:])), clients.take(sorted(order[:count]))


def held_out(m: int, share: float) -> int:
    """How many of m clients a share is."""
    need(0 <= share < 1, f"unseen must be a share in [0, 1), so that some clients train; got {share}.")
    count = math.floor(share * m + 0.5)
    need(count > 0 or share == 0, f"unseen = {share:g} of {m} clients is no client; use at least {0.5 / m:.3g}, or 0.")
    need(count < m, f"unseen = {share:g} of {m} clients is all of them; take at most {(m - 0.6) / m:.3g}.")
    return count


class Guest(Wrapper):
    """`method` for clients that join a federation whose training is over: they meet the server as it is now."""

    def __init__(self, method: Method, server: Server, clients: int, samples: float) -> None:
        super().__init__(method)
        self.hostile = frozenset()
        self.last, self.clients, self.samples = server, clients, samples

    def _joining(self, local: ClientStack) -> ClientStack:
        """What a client knows of the federation is of the one that was trained, however many join at once."""
        local.clients, local.share = self.clients, (local.samples / self.samples).to(local.share)[:, None]
        return local

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        local = self._joining(local)
        return self.method.join(state, self.method.welcome(self.last, state, local), local), {}

    def personal(self, state: State, down: State, local: ClientStack) -> Tensor | None:
        local = self._joining(local)
        return self.method.personal(state, self.method.welcome(self.last, state, local), local)


def serve(run: Run, task: Task, known: Clients, newcomers: Clients, steps: int) -> LocalEngine:
    """The newcomers after `steps` visits, ready to be asked for their models and scores (`ask`)."""
    need(steps >= 0, f"a newcomer makes 0 visits or more; got {steps}.")
    guest = Guest(run.method, run.server, len(known), float(known.counts("train").sum()))
    problem = replace(run.problem, largest=int(newcomers.counts("train").max()))
    if (kept := run.method.neighbours) is not None:
        task = copy.copy(task)
        task.neighbours = kept.among(newcomers.counts("train"))
    state, ids = run.method.fresh(problem, run.server), torch.arange(len(newcomers))
    engine = LocalEngine(guest, task, newcomers, state, run.problem.seed, workers=1)
    if state and "personal" in engine.map("personal", run.round, ids, {})[1]:
        for visit in range(steps):
            engine.map("train", run.round + visit, ids, {})
    return engine


def query_clients(run: Run, engine: LocalEngine, stage: Stage) -> State:
    """Scores ("evaluate") or models ("personal") of the newcomers; the global model is scored beside theirs."""
    shared = run.method.shared(run.server)
    each = None if shared is None else shared.expand(engine.clients, -1)
    found = engine.map(stage, run.round, torch.arange(engine.clients), {}, each)[1]
    found.pop("personal/steps", None)
    return found
