"""A shard: some of a simulation's clients in a process of their own, vectorised, with their states in a folder.

What a shard computes is what the local engine would: whole chunks are dealt to shards, so that the numbers do not
depend on how many shards there are. (In a round with a part of the clients each shard cuts its own: other sums.)
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...core import Method, State, Task
from ...data.clients import Clients
from ...federation.rounds.remote_clients import RemoteClients, nothing
from ...federation.rounds.round_store import RoundStore
from ...tasks import compiled
from ..local import LocalEngine
from ..orphans import die_with_parent
from ..stateless import StatelessEngine

_PACKAGE = Path(__file__).parent.parent.parent
_ROUNDS = 1 << 31  # a simulation may always be played on


@dataclass(frozen=True)
class Part:
    """All that a shard needs, sent once. Arrays are plain ones."""

    run: str
    folder: str
    ids: tuple[int, ...]
    stacks: tuple[int, ...]  # clients computed together where all are asked
    method: Method
    task: Task
    data: Mapping[str, Any]  # x, y, bounds, names, classes, inputs: the samples of these clients only
    start: Mapping[str, np.ndarray]  # a client that has not yet taken part
    rows: Mapping[str, np.ndarray]  # [len(ids), ...] these clients' states, where they have taken part before
    visits: np.ndarray  # [len(ids)]
    seed: int
    chunk: int | None
    in_memory: bool

    def site(self) -> RemoteClients:
        """The shard, with what it has already played."""
        rest = {k: self.data[k] for k in _REST}
        data = Clients(_tensor(self.data["x"]), _tensor(self.data["y"]), **rest, inputs=self.data["inputs"])
        start = {k: _tensor(v) for k, v in self.start.items()}
        engine = LocalEngine(self.method, self.task, data, start, self.seed, self.chunk, workers=1)
        engine.stacks = self.stacks
        ids = np.array(self.ids)  # rising
        rows = {k: _tensor(v) for k, v in self.rows.items()}

        def first(clients: Sequence[int]) -> tuple[State, torch.Tensor]:
            at = torch.from_numpy(np.searchsorted(ids, clients))
            visits = torch.from_numpy(self.visits[at.numpy()])
            if rows:
                return {k: v[at] for k, v in rows.items()}, visits
            return {k: v.expand(len(clients), *v.shape) for k, v in start.items()}, visits

        shelf = RoundStore(Path(self.folder), self.run, first, self.in_memory)
        return RemoteClients(
            self.run,
            "",
            _ROUNDS,
            self.ids,
            down={},
            bench=StatelessEngine(engine),
            store=shelf,
            keep=nothing,
            open=True,
        )


_REST = ("bounds", "names", "classes")


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array))  # what was sent may lie in memory that must not be written


def plain(tensors: State) -> dict[str, np.ndarray]:
    """Tensors to send."""
    return {k: v.detach().cpu().contiguous().numpy() for k, v in tensors.items()}


def data_of(clients: Clients, ids: tuple[int, ...]) -> dict[str, Any]:
    """The samples of these clients, to send."""
    own = clients.holding(ids)
    return plain({"x": own.x, "y": own.y}) | {k: getattr(own, k) for k in _REST} | {"inputs": clients.inputs}


def versions() -> dict[str, Any]:
    """What must be the same everywhere for the numbers to be the same: this library to the letter."""
    from ... import __version__

    found = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        found.update(path.relative_to(_PACKAGE).as_posix().encode() + path.read_bytes())
    own = f"{__version__} ({found.hexdigest()[:8]})"
    return {"sartor": own, "torch": str(torch.__version__), "compiled steps": compiled.available()}


class Shard:
    """What a process of its own runs. It is made of nothing: what goes wrong is an answer, not a dead process."""

    def __init__(self) -> None:
        self.part: Part | None = None
        self._site: RemoteClients | None = None
        self._watched = False

    def alone(self) -> None:
        """This process is Ray's: it ends with its node, also where that was killed."""
        if not self._watched:
            self._watched = True
            die_with_parent()

    def about(self, mark: str) -> dict[str, Any]:
        """Where this is, with which versions, and whether it sees the file `mark`."""
        return {"host": socket.gethostname(), "sees": Path(mark).exists(), "versions": versions()}

    def begin(self, part: Part) -> None:
        """Take a run's clients, in place of any other run's."""
        self.part, self._site = part, None

    def answer(self, request: bytes) -> bytes:
        """The reply to a request of the run."""
        assert self.part is not None
        if self._site is None:
            self._site = self.part.site()
        return self._site.answer(request)


def dealt(chunks: list[np.ndarray], samples: np.ndarray, shards: int) -> list[list[np.ndarray]]:
    """Whole chunks of clients, dealt to at most so many shards: the largest first, each to the shard with the least.

    A shard's chunks stay in their order, by falling size of the clients: so it will cut them again.
    """
    hands: list[list[int]] = [[] for _ in range(min(shards, len(chunks)))]
    work = [int(samples[c].sum()) for c in chunks]
    for at in sorted(range(len(chunks)), key=lambda at: -work[at]):
        min(hands, key=lambda hand: sum(work[i] for i in hand)).append(at)
    return [[chunks[i] for i in sorted(hand)] for hand in hands]
