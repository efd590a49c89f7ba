"""Many clients' memory in one folder: a file for each round, with all of them that trained in it and their replies.

As a ClientStore, but one write for a round however many clients there are, and of an earlier round only the rows that
are asked for are read. A file is deleted when none of its clients needs it: when each has trained twice since. It
outlives this process, and the machine where the folder is another one's.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...core import State
from ...errors import SartorError
from ...storage import read_note, save_tensors
from .client_store import Begun, Played
from .tensor_file import TensorFile

_FRESH = 2  # rounds whose tensors stay in memory where states are kept on disk
_STATE, _REPLY = "state/", "reply/"
First = Callable[[Sequence[int]], tuple[State, Tensor]]  # states [c, ...] and visits [c] of clients before any round


@dataclass
class _Round:
    """One file: whose rows it has, and the rows where they are in memory."""

    place: dict[int, int]  # client → row
    since: list[int]
    digests: list[str]
    visits: Tensor
    steps: Tensor
    tensors: State | None = None
    file: TensorFile | None = None  # where its rows are in the file; looked up once


class RoundStore:
    """The states of some clients of one run. `first` says what clients are before their first round here."""

    def __init__(self, folder: Path, run: str, first: First, in_memory: bool = True) -> None:
        self.folder, self.run, self.first, self.in_memory = folder, run, first, in_memory
        self._rounds: dict[int, _Round] = {}
        self._kept: dict[int, tuple[int, int]] = {}  # client → (round before, newest round)
        self._needed: Counter[int] = Counter()  # round → how many times it is in a pair of `_kept`
        for path in sorted(folder.glob("round-*.safetensors")):  # zeros in front: by number
            self._find(path)
        self._tidy()

    def _find(self, path: Path) -> None:
        about = read_note(path)
        if about.get("run") != self.run:
            raise SartorError(f"{path} belongs to another run; keep each run's states in a folder of their own.")
        clients = [int(c) for c in about["clients"]]
        visits, steps = (torch.tensor(about[k]) for k in ("visits", "steps"))
        self._enter(int(about["round"]), clients, [int(s) for s in about["since"]], about["digest"], visits, steps)

    def _enter(self, round: int, clients: Sequence[int], since: list[int], *about: Any) -> _Round:
        self._rounds[round] = _Round({client: at for at, client in enumerate(clients)}, since, *about)
        for client, before in zip(clients, since, strict=True):
            for needed in self._kept.get(client, ()):
                self._needed[needed] -= 1
            self._kept[client] = before, round
            self._needed[before] += 1
            self._needed[round] += 1
        return self._rounds[round]

    def newest(self, clients: Sequence[int]) -> list[int]:
        return [self._kept.get(client, (-1, -1))[1] for client in clients]

    def known(self, clients: Sequence[int], rounds: Sequence[int]) -> list[bool]:
        each = zip(clients, rounds, strict=True)
        return [round == -1 or round in self._kept.get(client, ()) for client, round in each]

    def begun(self, clients: Sequence[int], round: int) -> list[Begun | None]:
        found = self._rounds.get(round)
        if found is None:
            return [None] * len(clients)
        known = self.known(clients, [round] * len(clients))
        at = [found.place[client] if here else None for client, here in zip(clients, known, strict=True)]
        return [None if row is None else Begun(found.since[row], found.digests[row]) for row in at]

    def states(self, clients: Sequence[int], rounds: Sequence[int]) -> tuple[State, Tensor]:
        places: dict[int, list[int]] = {}
        for at, round in enumerate(rounds):
            places.setdefault(round, []).append(at)
        parts = []
        for round, here in places.items():
            mine = [clients[at] for at in here]
            parts.append(self.first(mine) if round == -1 else self._after(round, mine))
        if len(parts) == 1:
            state, visits = parts[0]
            return {k: v.clone() for k, v in state.items()}, visits
        order = torch.tensor([at for here in places.values() for at in here]).argsort()
        state = {k: torch.cat([own[k] for own, _ in parts])[order] for k in parts[0][0]}
        return state, torch.cat([visits for _, visits in parts])[order]

    def _after(self, round: int, clients: Sequence[int]) -> tuple[State, Tensor]:
        found = self._rounds[round]
        rows = torch.tensor([found.place[client] for client in clients])
        return self._read(round, _STATE, rows), found.visits[rows]

    def replies(self, clients: Sequence[int], round: int) -> tuple[State, Tensor]:
        found = self._rounds[round]
        rows = torch.tensor([found.place[client] for client in clients])
        return self._read(round, _REPLY, rows), found.steps[rows]

    def _read(self, round: int, part: str, rows: Tensor) -> State:
        """These rows of a round's states or replies: views where all are in memory and wanted, copies elsewhere."""
        found = self._rounds[round]
        if found.tensors is None and self.in_memory:  # of an earlier process
            found.tensors = TensorFile(self._path(round)).rows()
        if found.tensors is None:
            found.file = found.file or TensorFile(self._path(round))
            return {k.removeprefix(part): v for k, v in found.file.rows(rows, part).items()}
        whole = len(rows) == len(found.place) and bool((rows[1:] > rows[:-1]).all())
        own = {k.removeprefix(part): v for k, v in found.tensors.items() if k.startswith(part)}
        return own if whole else {k: v[rows] for k, v in own.items()}

    def put(self, done: Played) -> None:
        done = self._with_others(done)
        tensors = {f"{_STATE}{k}": v.contiguous() for k, v in done.state.items()}
        tensors |= {f"{_REPLY}{k}": v.contiguous() for k, v in done.reply.items()}
        note = {"run": self.run, "round": done.round, "clients": list(done.clients), "since": list(done.since)}
        counted = {"visits": done.visits.tolist(), "steps": done.steps.tolist()}
        about = note | {"digest": list(done.digests)} | counted
        save_tensors(self._path(done.round), tensors, about, durable=False)
        new = self._enter(done.round, done.clients, list(done.since), list(done.digests), done.visits, done.steps)
        new.tensors = tensors
        self._tidy()
        if not self.in_memory:
            for earlier in sorted(self._rounds)[:-_FRESH]:
                self._rounds[earlier].tensors = None

    def _with_others(self, done: Played) -> Played:
        """Where the round is asked again, for others: those that are there stay."""
        mine, round = set(done.clients), done.round
        there = self._rounds[round].place if round in self._rounds else {}
        others = [c for c in there if c not in mine and self._kept[c][1] == round]
        if not others:
            return done
        found = self._rounds[round]
        rows = torch.tensor([found.place[c] for c in others])
        clients = [*done.clients, *others]
        order = torch.tensor(clients).argsort()

        def both(ours: Tensor, theirs: Tensor) -> Tensor:
            return torch.cat([ours, theirs])[order]

        state, reply = (self._read(round, part, rows) for part in (_STATE, _REPLY))
        since = [*done.since, *(found.since[at] for at in rows.tolist())]
        digests = [*done.digests, *(found.digests[at] for at in rows.tolist())]
        return Played(
            round,
            clients=[clients[at] for at in order.tolist()],
            since=[since[at] for at in order.tolist()],
            digests=[digests[at] for at in order.tolist()],
            visits=both(done.visits, found.visits[rows]),
            steps=both(done.steps, found.steps[rows]),
            state={k: both(v, state[k]) for k, v in done.state.items()},
            reply={k: both(v, reply[k]) for k, v in done.reply.items()},
        )

    def _tidy(self) -> None:
        """Delete the files that nobody needs."""
        for round in [r for r in self._rounds if self._needed[r] <= 0]:
            del self._rounds[round]
            with contextlib.suppress(FileNotFoundError):
                self._path(round).unlink()

    def _path(self, round: int) -> Path:
        return self.folder / f"round-{round:010d}.safetensors"
