"""A client's memory on its own disk: its state after the last two rounds in which it trained, each with its reply.

Two files for each client. A round writes the one whose round the server no longer names, atomically and once, before it
is answered. So at any moment both the state from which the last round began and the state after it are there.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ...core import State
from ...errors import SartorError
from ...storage import load_tensors, read_json, save_tensors, write_json
from .packing import stacked, with_lengths, without_length

_SLOTS = ("a", "b")


@dataclass(frozen=True)
class Played:
    """Some clients after one round, a row for each."""

    round: int
    clients: Sequence[int]
    since: Sequence[int]  # the round from whose state each began
    digests: Sequence[str]  # of what it was sent
    visits: Tensor  # [c]
    steps: Tensor  # [c]
    state: State  # [c, ...]
    reply: State  # [c, ...]; codes in rows of equal length (packing.LENGTH)


class Begun(NamedTuple):
    """How a client's round began."""

    since: int
    digest: str


class Keeper(Protocol):
    """What a site needs of its disk, for many clients at once."""

    def newest(self, clients: Sequence[int]) -> list[int]:
        """The last round in which each client trained; −1: none."""
        ...

    def begun(self, clients: Sequence[int], round: int) -> list[Begun | None]:
        """How this round began for each client; None where it has not trained in it, or that is not known any more."""
        ...

    def known(self, clients: Sequence[int], rounds: Sequence[int]) -> list[bool]:
        """Whether each client's state after its round (−1: before the first) is still there."""
        ...

    def states(self, clients: Sequence[int], rounds: Sequence[int]) -> tuple[State, Tensor]:
        """Those states [c, ...], to be changed at will, and how often each client had trained then [c]."""
        ...

    def replies(self, clients: Sequence[int], round: int) -> tuple[State, Tensor]:
        """What the clients sent in this round [c, ...], and their steps [c]."""
        ...

    def put(self, done: Played) -> None:
        """Keep clients' rounds beside those from which they began; when this returns they are on the disk."""
        ...


@dataclass(frozen=True)
class Snapshot:
    """One client after one round, as its file holds it. Without a reply: as it was before its first."""

    round: int
    since: int
    digest: str
    visits: int
    steps: int
    state: State
    reply: State


class ClientStore:
    """The clients' states of one run in one folder."""

    def __init__(self, folder: Path, run: str, start: State) -> None:
        self.folder, self.run = folder, run
        self.first = Snapshot(-1, -1, "", 0, 0, start, {})
        self._slots: dict[int, dict[str, Snapshot]] = {}

    def slots(self, client: int) -> dict[str, Snapshot]:
        """What is on disk of a client, by file; read once."""
        if client not in self._slots:
            paths = {slot: self._path(client, slot) for slot in _SLOTS}
            self._slots[client] = {slot: self._read(path) for slot, path in paths.items() if path.exists()}
        return self._slots[client]

    def after(self, client: int, round: int) -> Snapshot | None:
        held = [h for h in self.slots(client).values() if h.round == round]
        if held:
            return held[0]
        return self.first if round == -1 else None

    def newest(self, clients: Sequence[int]) -> list[int]:
        return [max((h.round for h in self.slots(client).values()), default=-1) for client in clients]

    def begun(self, clients: Sequence[int], round: int) -> list[Begun | None]:
        held = [self.after(client, round) for client in clients]
        return [None if h is None else Begun(h.since, h.digest) for h in held]

    def known(self, clients: Sequence[int], rounds: Sequence[int]) -> list[bool]:
        return [self.after(client, round) is not None for client, round in zip(clients, rounds, strict=True)]

    def states(self, clients: Sequence[int], rounds: Sequence[int]) -> tuple[State, Tensor]:
        held = [self._held(client, round) for client, round in zip(clients, rounds, strict=True)]
        return stacked([h.state for h in held]), torch.tensor([h.visits for h in held])

    def replies(self, clients: Sequence[int], round: int) -> tuple[State, Tensor]:
        held = [self._held(client, round) for client in clients]
        return with_lengths([h.reply for h in held]), torch.tensor([h.steps for h in held])

    def _held(self, client: int, round: int) -> Snapshot:
        held = self.after(client, round)
        assert held is not None  # who asks has looked
        return held

    def put(self, done: Played) -> None:
        for at, client in enumerate(done.clients):
            own, reply = ({k: v[at].clone() for k, v in rows.items()} for rows in (done.state, done.reply))
            visits, steps = int(done.visits[at]), int(done.steps[at])
            begun = done.round, done.since[at], done.digests[at]
            self._put(client, Snapshot(*begun, visits, steps, own, without_length(reply)))

    def _put(self, client: int, held: Snapshot) -> None:
        slots = self.slots(client)
        taken = [slot for slot, h in slots.items() if h.round == held.since]
        slot = next(s for s in _SLOTS if s not in taken)
        about = {"run": self.run, "client": client, "round": held.round, "since": held.since, "digest": held.digest}
        about |= {"visits": held.visits, "steps": held.steps}
        tensors = {f"state/{k}": v for k, v in held.state.items()} | {f"reply/{k}": v for k, v in held.reply.items()}
        save_tensors(self._path(client, slot), tensors, about)
        slots[slot] = held

    def _path(self, client: int, slot: str) -> Path:
        return self.folder / f"client-{client}" / f"{slot}.safetensors"

    def _read(self, path: Path) -> Snapshot:
        tensors, about = load_tensors(path)
        if about.get("run") != self.run:
            raise SartorError(f"{path} belongs to another run; keep each run's states in a folder of their own.")
        parts: dict[str, State] = {"state": {}, "reply": {}}
        for k, v in tensors.items():
            part, _, name = k.partition("/")
            parts[part][name] = v
        round, since, visits, steps = (int(about[k]) for k in ("round", "since", "visits", "steps"))
        return Snapshot(round, since, str(about["digest"]), visits, steps, parts["state"], parts["reply"])


class Look(NamedTuple):
    """One evaluation of a client: in which round, of what, and what the client would train on in that round."""

    round: int
    mark: str
    down: str


class Looks:
    """The last evaluation of each client of one run, in one file that outlives this process."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "scored.json"
        self._last: dict[str, Look] | None = None

    def _all(self) -> dict[str, Look]:
        if self._last is None:
            found = read_json(self.path) if self.path.exists() else {}
            self._last = {client: Look(*look) for client, look in found.items()}
        return self._last

    def last(self, client: int) -> Look | None:
        """The last time that the client's models were scored."""
        return self._all().get(str(client))

    def put(self, done: Mapping[int, Look]) -> None:
        """Keep evaluations; when this returns they are on the disk."""
        now = self._all() | {str(client): look for client, look in done.items()}
        if now != self._all():
            write_json(self.path, now)
            self._last = now


@contextmanager
def alone(folder: Path, busy: str) -> Iterator[None]:
    """Hold a folder: two processes with the same states would each take a step. `busy` is said where it is held."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise SartorError(busy) from e
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)
