"""Many clients' memory in one folder: a file for each round, with all of them that trained in it and their replies.

As a Store, but one write for a round however many clients there are. A file is deleted when none of its clients needs
it: when each has trained twice since. It outlives this process, and the machine where the folder is another one's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...core import State
from ...errors import SartorError
from ...storage import load_tensors, read_note, save_tensors
from .client_store import Snapshot, stacked

_READ = 2  # rounds whose tensors stay in memory where states are kept on disk


@dataclass
class _Round:
    """One file: whose rows it has, and the rows where they are in memory."""

    place: dict[int, int]  # client → row
    about: dict[str, list[Any]]  # since, digest, visits, steps of each row
    tensors: State | None = None


class RoundStore:
    """The states of some clients of one run. `first` says what a client is before its first round here."""

    def __init__(self, folder: Path, run: str, first: Callable[[int], Snapshot], in_memory: bool = True) -> None:
        self.folder, self.run, self.first, self.in_memory = folder, run, first, in_memory
        self._rounds: dict[int, _Round] = {}
        self._kept: dict[int, tuple[int, int]] = {}  # client → (round before, newest round)
        for path in sorted(folder.glob("round-*.safetensors")):  # zeros in front: by number
            self._find(path)
        self._tidy()

    def _find(self, path: Path) -> None:
        about = read_note(path)
        if about.get("run") != self.run:
            raise SartorError(f"{path} belongs to another run; keep each run's states in a folder of their own.")
        round, clients = int(about["round"]), [int(c) for c in about["clients"]]
        self._enter(round, clients, {k: about[k] for k in ("since", "digest", "visits", "steps")})

    def _enter(self, round: int, clients: list[int], about: dict[str, list[Any]]) -> None:
        self._rounds[round] = _Round({client: at for at, client in enumerate(clients)}, about)
        self._kept |= {client: (int(since), round) for client, since in zip(clients, about["since"], strict=True)}

    def newest(self, client: int) -> int:
        return self._kept[client][1] if client in self._kept else -1

    def after(self, client: int, round: int) -> Snapshot | None:
        if round == -1:
            return self.first(client)
        if round not in self._kept.get(client, ()):
            return None
        found = self._rounds[round]
        at = found.place[client]
        since, digest, visits, steps = (found.about[k][at] for k in ("since", "digest", "visits", "steps"))
        parts: dict[str, State] = {"state": {}, "reply": {}}
        for k, v in self._tensors(round).items():
            part, _, name = k.partition("/")
            parts[part][name] = v[at]
        return Snapshot(round, int(since), str(digest), int(visits), int(steps), parts["state"], parts["reply"])

    def _tensors(self, round: int) -> State:
        found = self._rounds[round]
        if found.tensors is None:
            found.tensors = load_tensors(self._path(round))[0]
            self._forget(round)
        return found.tensors

    def put(self, done: Mapping[int, Snapshot]) -> None:
        (round,) = {held.round for held in done.values()}
        if round in self._rounds:  # asked again for others: those that are there stay
            there = {c: self.after(c, round) for c in self._rounds[round].place if self.newest(c) == round}
            done = {c: held for c, held in there.items() if held is not None} | dict(done)
        clients = sorted(done)
        rows = [done[c] for c in clients]
        about: dict[str, list[Any]] = {
            k: [getattr(held, k) for held in rows] for k in ("since", "digest", "visits", "steps")
        }
        tensors = {f"state/{k}": v for k, v in stacked([held.state for held in rows]).items()}
        tensors |= {f"reply/{k}": v for k, v in stacked([held.reply for held in rows]).items()}
        note = {"run": self.run, "round": round, "clients": clients} | about
        save_tensors(self._path(round), tensors, note, durable=False)
        self._enter(round, clients, about)
        self._rounds[round].tensors = tensors
        self._tidy()
        self._forget(round)

    def _tidy(self) -> None:
        """Delete the files that nobody needs."""
        needed = {round for pair in self._kept.values() for round in pair}
        for round in [r for r in self._rounds if r not in needed]:
            del self._rounds[round]
            with contextlib.suppress(FileNotFoundError):
                self._path(round).unlink()

    def _forget(self, used: int) -> None:
        """Where states are kept on disk, let go of the rounds that were read before the last few."""
        loaded = [r for r, found in self._rounds.items() if found.tensors is not None and r != used]
        if not self.in_memory:
            for round in loaded[: len(loaded) - (_READ - 1)]:
                self._rounds[round].tensors = None

    def _path(self, round: int) -> Path:
        return self.folder / f"round-{round:010d}.safetensors"


def unplayed(state: State, visits: int = 0) -> Snapshot:
    """A client before its first round here."""
    return Snapshot(-1, -1, "", visits, 0, {k: torch.as_tensor(v) for k, v in state.items()}, {})
