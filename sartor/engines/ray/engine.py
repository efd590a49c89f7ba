"""Ray as an engine: the clients of a simulation in actors, on as many machines as a cluster has.

An actor is a site of sartor.federation for a shard of clients: it writes their states and replies to a folder that all
machines share before it answers, so that an actor or a machine that is killed in mid-round is replaced and the run goes
on to the same bytes. A checkpoint is the local engine's: a run may go on with another engine.
"""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
import weakref
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...core import Method, Stage, State, Task
from ...data.clients import Clients
from ...errors import need
from ...federation.rounds.remote_engine import RemoteEngine, Waiting
from ...storage import write_text
from ..local import LocalEngine
from .cluster import Actors, connect, needs_ray
from .shard import Part, data_of, dealt, plain

_AS_LONG_AS_IT_TAKES = Waiting(seconds=1e9, clients=1 << 31, timeouts=1 << 31, again=1e9)


class RayEngine:
    """Clients in actors. Nothing is started before the first round."""

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
        address: str | None = None,
        folder: Path | None = None,
    ) -> None:
        """`workers`: actors, at most one for each chunk [the cluster's CPUs]; `folder`: one that all machines share."""
        needs_ray()
        need(data.x.device.type == "cpu", f"the engine ray computes on CPUs; got device {data.x.device}.")
        self.clients, self.workers, self.address, self.folder = len(data), workers, address, folder
        # The local engine knows how clients are cut into chunks, and keeps their states as of the last checkpoint.
        self.home = LocalEngine(method, task, data, start, seed, chunk, workers=1, store=store)
        self.hub: RemoteEngine | None = None
        self._saved = torch.full([self.clients], -1, dtype=torch.int64)  # the hub's `since` at the last checkpoint
        self._steps = 0
        self._close: weakref.finalize[..., RayEngine] | None = None

    @property
    def steps(self) -> int:
        return self._steps + (self.hub.steps if self.hub is not None else 0)

    def map(
        self, stage: Stage, round: int, ids: Tensor, down: State, shared: Tensor | None = None
    ) -> tuple[Tensor, State]:
        self.hub = self.hub or self._begin()
        return self.hub.map(stage, round, ids, down, shared)

    # --- starting -----------------------------------------------------------------------------------------------------

    def _begin(self) -> RemoteEngine:
        cpus = connect(self.address, self.workers or 0)
        shards = self.workers or cpus
        need(shards <= cpus, f"{shards} actors need a CPU each; the cluster has {cpus}. Take fewer --workers.")
        chunks = self.home.cut(np.arange(self.clients))
        hands = dealt(chunks, self.home.data.counts("train"), shards)
        run = secrets.token_hex(16)
        place = self._place(run)
        mark = place / "mark"
        write_text(mark, run)
        parts = {f"actor {k}": self._part(run, place / str(k), hand) for k, hand in enumerate(hands)}
        actors = Actors(parts, mark, self.folder is not None, _say)
        self._close = weakref.finalize(self, _end, actors, place)
        roster = {name: part.ids for name, part in parts.items()}
        return RemoteEngine(run, "", roster, None, actors, _AS_LONG_AS_IT_TAKES, _say)

    def _place(self, run: str) -> Path:
        """Where actors keep states. What a killed run has left there is of no use: a checkpoint holds all."""
        if self.folder is None:
            return Path(tempfile.mkdtemp(prefix="sartor-ray-"))
        shutil.rmtree(self.folder, ignore_errors=True)
        return self.folder.resolve() / run

    def _part(self, run: str, place: Path, hand: list[np.ndarray]) -> Part:
        home, ids = self.home, np.sort(np.concatenate(hand))
        rows, here = torch.from_numpy(ids), tuple(ids.tolist())
        played = bool(home.visits.any())
        return Part(
            run=run,
            folder=str(place),
            ids=here,
            stacks=tuple(map(len, hand)),
            method=home.method,
            task=home.task,
            data=data_of(home.data, here),
            start=plain({k: v.start for k, v in home.states.items()}),
            rows=plain({k: v[rows] for k, v in home.states.items()} if played else {}),
            visits=home.visits[rows].numpy(),
            seed=home.seed,
            chunk=home.chunk,
            in_memory=home.store is None,
        )

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def save(self) -> State:
        """As the local engine: what has changed since the last checkpoint is fetched from the actors."""
        if self.hub is not None:
            ids = torch.nonzero(self.hub.since != self._saved)[:, 0]
            if len(ids):
                _, found = self.hub.map("states", int(self.hub.since.max()), ids, {})
                self.home.visits[ids] = found.pop("visits")
                self.home.keep(ids, {k.removeprefix("state/"): v for k, v in found.items()})
            self._saved = self.hub.since.clone()
        return self.home.save()

    def restore(self, states: State) -> None:
        self.home.restore(states)
        if self.hub is not None and self._close is not None:  # actors begin anew, from these states
            self._steps, self.hub = self.steps, None
            self._close()
        self._saved.fill_(-1)

    def settle(self) -> None:
        self.home.settle()


def _end(actors: Actors, place: Path) -> None:
    actors.end()
    shutil.rmtree(place, ignore_errors=True)


def _say(text: str) -> None:
    print(f"ray: {text}", file=sys.stderr, flush=True)
