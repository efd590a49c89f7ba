"""A client's memory on its own disk: its state after the last two rounds in which it trained, each with its reply.

Two files for each client. A round writes the one whose round the server no longer names, atomically and once, before it
is answered. So at any moment both the state from which the last round began and the state after it are there.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from ...core import State
from ...errors import SartorError
from ...storage import load_tensors, read_json, save_tensors, write_json

_SLOTS = ("a", "b")


@dataclass(frozen=True)
class Snapshot:
    """A client after one round. Without a reply: as it was before its first."""

    round: int
    since: int  # the round from whose state this one began
    digest: str  # of what it was sent
    visits: int
    steps: int
    state: State
    reply: State


class Keeper(Protocol):
    """What a site needs of its disk."""

    def after(self, client: int, round: int) -> Snapshot | None:
        """The client as it was after this round (−1: before the first); None where that is not known any more."""
        ...

    def newest(self, client: int) -> int:
        """The last round in which the client trained; −1: none."""
        ...

    def put(self, done: Mapping[int, Snapshot]) -> None:
        """Keep clients' rounds beside those from which they began; when this returns they are on the disk."""
        ...


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

    def newest(self, client: int) -> int:
        return max((h.round for h in self.slots(client).values()), default=-1)

    def put(self, done: Mapping[int, Snapshot]) -> None:
        for client, held in done.items():
            self._put(client, held)

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


def stacked(rows: list[State]) -> State:
    """Clients' rows as [c, ...]."""
    return {k: torch.stack([r[k] for r in rows]) for k in rows[0]}
