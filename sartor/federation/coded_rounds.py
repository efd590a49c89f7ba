"""Compression on the wire: the codes whose bytes a simulation counts are what server and sites send each other.

A code is of a difference to something that both sides know (wrappers/compression.py). The server therefore keeps, of
every client, what the client itself keeps: `ServerCodes`, in its checkpoint. It is that after the round in which it
last heard the client, and the site begins from its own state after that same round: so the two are equal, also after a
kill or a lost answer. Errors that are fed back stay at the site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..compressors import Code, decode, encode, frames
from ..core import ClientStack, State
from ..errors import Diverged, SartorError
from ..wrappers.compression import DOWN, UP, Compressed, message, ours, spec_of
from .rounds.messages import Damaged, Spec
from .rounds.packing import CODES, LENGTH, joined, stacked


@dataclass
class OneClient:
    """Of what a code is drawn."""

    round: int
    ids: np.ndarray  # [1]


class _Unheard(NamedTuple):
    """A client that was asked and has not yet been heard."""

    down: State  # [1, ...] as the client gets it
    kept: State
    bytes: int


class ServerCodes:
    """The server's half of the packing of a compressed run."""

    def __init__(self, method: Compressed, start: State, clients: int, down: Spec, messages: Spec) -> None:
        self.method, self.spec_down, self.spec_up = method, down, messages
        self.codes_down, self.codes_up = method.down is not None, method.up is not None
        own = method.server_memory(start)
        self.own = {k: v.expand(clients, *v.shape).clone() for k, v in own.items()}
        self._asked: dict[int, _Unheard] = {}
        self._heard: dict[int, tuple[State, int]] = {}  # what to keep of a client, and the bytes of its answer

    def down(self, stage: str, round: int, clients: Sequence[int], rows: State) -> np.ndarray:
        """One client at a time, as its site does it: no bit may depend on who else is asked."""
        sent = []
        for at, client in enumerate(clients):
            row = {k: v[at : at + 1] for k, v in rows.items()}
            got, codes, kept = self.method.coded_down(self._own(client), row, OneClient(round, np.array([client])))
            sent.append(message(codes, 0))
            if stage == "train":
                self._asked[client] = _Unheard(got, kept, len(sent[-1]))
        return joined(sent)

    def most_up(self, round: int) -> int:
        return sum(self.method.most_up(self.spec_up, round).values())

    def up(self, round: int, clients: Sequence[int], codes: bytes) -> State:
        found = []
        most = self.method.most_up(self.spec_up, round)
        for client, own in zip(clients, split(codes, len(clients), len(self.spec_up)), strict=True):
            parts = _named(own, self.spec_up, most)
            try:
                values, kept = self.method.read_up(self._own(client), self._asked[client].down, parts, self.spec_up)
            except SartorError as e:
                raise Damaged(str(e)) from e
            for k, v in values.items():
                if v.dtype != self.spec_up[k][0] or not bool(torch.isfinite(v).all()):
                    raise Damaged(f"{k} has another type than agreed, or holds NaN or Inf")
            self._heard[client] = kept, len(own)
            found.append({k: v[0] for k, v in values.items()})
        return stacked(found)

    def heard(self, round: int, ids: Tensor) -> State:
        notes: dict[str, list[tuple[int, int]]] = {DOWN: [], UP: []}
        most = {DOWN: 0, UP: 0}
        if self.codes_down:
            most[DOWN] = sum(self.method.most_down(self.spec_down, round + 1).values())
        if self.codes_up:
            most[UP] = self.most_up(round + 1)
        for client in ids.tolist():
            asked, (kept, spent) = self._asked[client], self._heard.get(client, ({}, 0))
            for k, v in (asked.kept | kept).items():
                self.own[k][client] = v[0]
            notes[DOWN].append((asked.bytes, most[DOWN]))
            notes[UP].append((spent, most[UP]))
        self._asked, self._heard = {}, {}
        ways = [way for way, used in ((DOWN, self.codes_down), (UP, self.codes_up)) if used]
        return {way: torch.tensor(notes[way], dtype=torch.float64).view(-1, 2) for way in ways}

    def _own(self, client: int) -> State:
        return {k: v[client : client + 1] for k, v in self.own.items()}

    def save(self) -> State:
        return dict(self.own)

    def restore(self, states: State) -> None:
        for k, v in self.own.items():
            v.copy_(states[k])


class SiteCodes:
    """A site's half."""

    def __init__(self, method: Compressed, down: Spec) -> None:
        self.method, self.down = method, down
        self.codes_down = method.down is not None

    def most_down(self, clients: int) -> int:
        """The rounds of a run do not matter: only what clients send is longer in some of them."""
        return clients * sum(self.method.most_down(self.down, 0).values()) if self.codes_down else 0

    def split(self, codes: bytes, clients: int) -> list[bytes]:
        return split(codes, clients, len(self.down))

    def received(self, codes: Sequence[bytes], states: State) -> tuple[State, State]:
        down, kept = [], []
        most = self.method.most_down(self.down, 0)
        for at, own in enumerate(codes):
            parts = _named(own, self.down, most)
            state = {k: v[at : at + 1] for k, v in ours(states).items()}
            try:
                got, new = self.method.read_down(state, parts, self.down)
            except SartorError as e:
                raise Damaged(str(e)) from e
            if not all(bool(torch.isfinite(v).all()) for v in got.values()):
                raise Damaged("a model with NaN or Inf")
            down.append({k: v[0] for k, v in got.items()})
            kept.append({f"compress.{k}": v[0] for k, v in new.items()})
        return stacked(down), stacked(kept)


class Coded(Compressed):
    """A compressed method at its site: downlinks come as the client has read them, messages leave as their codes.

    Values are those that the server will read, client by client: the sums of a whole stack may be rounded differently.
    """

    def __init__(self, made: Compressed) -> None:
        super().__init__(made.method, made.up, None, made.seed)

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        if self.up is None:
            return super().client(state, down, local)
        done = self.exchange(state, down, local)
        codes = [message(done.up, at) for at in range(len(local.ids))]
        width = sum(self.most_up(spec_of(done.messages), local.round).values())
        rows = np.zeros((len(codes), width), dtype=np.uint8)
        for at, code in enumerate(codes):
            rows[at, : len(code)] = np.frombuffer(code, np.uint8)
        return done.state, {CODES: torch.from_numpy(rows), LENGTH: torch.tensor([len(code) for code in codes])}

    def _value(self, code: Code, memory: State) -> Tensor:
        size, last = code.frame(0).size, memory.get("l")
        rows = [encode(code, at) for at in range(len(code.lengths()))]
        try:
            return torch.stack([decode(row, size, None if last is None else last[at]) for at, row in enumerate(rows)])
        except SartorError as e:
            raise Diverged("a message holds NaN or Inf: lower lr or lam.") from e


def split(codes: bytes, clients: int, parts: int) -> list[bytes]:
    """The frames of each client, of which each has so many."""
    try:
        found = list(islice(frames(codes), clients * parts + 1))
    except SartorError as e:
        raise Damaged(str(e)) from e
    if len(found) != clients * parts:
        raise Damaged(f"not the {clients * parts} codes that were agreed on")
    return [b"".join(found[at * parts : (at + 1) * parts]) for at in range(clients)]


def _named(own: bytes, parts: Spec, most: Mapping[str, int]) -> dict[str, bytes]:
    """A client's frames by name, each as long as agreed at most."""
    found = dict(zip(sorted(parts), frames(own), strict=True))
    for key, frame in found.items():
        if len(frame) > most[key]:
            raise Damaged(f"the code of {key} has {len(frame)} bytes, at most {most[key]} were agreed on")
    return found
