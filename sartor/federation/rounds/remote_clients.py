"""A site: one or more clients with their own data, states and disk, that answer what a server asks. No transport here.

Exactly once. A message is named by (run, round, client), and the server says with each request after which round it
last heard the client (`since`). The site begins from its state after that round, never from a later one, and writes the
new state with the reply to its disk before it answers. So a repeated request is answered from the disk, and a round
whose answer never arrived has not happened: the next one begins where the server believes the client to be.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from ...core import Stage, State
from ...errors import Diverged, SartorError
from .client_store import Keeper, Snapshot, stacked
from .messages import Damaged, Message, Spec, decode, encode, packed, plain, row, unpacked

# Why a request or a reply was not taken: its bytes, its run or sender, its settings, its round (old, ahead, or from a
# state that is gone), its work (raised, NaN), or the disk.
REASONS = ("damaged", "foreign", "agreement", "stale", "early", "behind", "failed", "diverged", "disk")
GLOBAL = "global"  # what the global model is called in a message, beside the method's own downlink
SHARES = ("each", "mean", "none")


class Computation(Protocol):
    """Where clients compute: states in, states out."""

    def __call__(
        self,
        stage: Stage,
        round: int,
        ids: Tensor,
        state: State,
        visits: Tensor,
        down: State,
        shared: Tensor | None = None,
    ) -> tuple[State, State, Tensor]:
        """New states, messages and steps [c] of the clients `ids`."""
        ...


@dataclass
class RemoteClients:
    """The clients `ids` of one run."""

    run: str
    agreement: str
    rounds: int  # so many are agreed on
    ids: Sequence[int]
    down: dict[str, Spec]  # by stage: what the server sends for each client
    bench: Computation
    store: Keeper
    keep: Callable[[int, Tensor, State], None]  # what becomes of the personal models: they stay here
    instance_id: str = ""  # what only this copy of the site knows, and says with each answer
    share: str = "each"  # scores of each client leave the site, or their mean over its clients, or none
    counts: dict[str, int] = field(default_factory=lambda: {"answered": 0, "repeated": 0, **dict.fromkeys(REASONS, 0)})
    log: Callable[[str], None] = lambda text: None
    open: bool = False  # a simulation: all that is asked for comes back, also the words of errors, and is not judged

    def __post_init__(self) -> None:
        self._own = frozenset(self.ids)

    def answer(self, data: bytes) -> bytes:
        """The reply to a request. A request that cannot be taken changes nothing, is counted and is refused in a word:
        what went wrong in detail is said here, not to the server."""
        try:
            request = decode(data)
            self._check(request)
            return encode(self._reply(request))
        except Exception as e:
            return self._refuse(e)

    def _refuse(self, error: Exception) -> bytes:
        why = _why(error)
        self.counts[why] += 1
        text = str(error) if isinstance(error, SartorError | OSError) else f"{type(error).__name__}: {error}"
        self.log(f"refused ({why}): {text}")
        note: dict[str, Any] = {"why": why, "instance_id": self.instance_id}
        if self.open:
            own = isinstance(error, SartorError)
            note |= {"text": text if own else "".join(traceback.format_exception(error)), "own": own}
        return encode(Message("refused", self.run, self.agreement, note=note))

    def _check(self, request: Message) -> None:
        stages = ("train", "evaluate", "personal", *(("diagnose", "states") if self.open else ()))
        mine = request.kind in stages and set(request.clients) <= self._own
        if request.run != self.run or not mine or not request.clients or len(request.since) != len(request.clients):
            raise _Refused("foreign", "a request of another run, or for clients that are not here")
        if request.agreement != self.agreement:
            raise _Refused("agreement", "the server works with other settings than were agreed on")
        if request.round >= self.rounds + (request.kind != "train"):
            raise _Refused("early", f"round {request.round + 1} of {self.rounds}")
        for client, since in zip(request.clients, request.since, strict=True):
            newest = self.store.newest(client)
            if request.kind == "train" and (request.round < newest or since >= request.round):
                raise _Refused("stale", f"round {request.round + 1} after round {newest + 1}")
            if self.store.after(client, since) is None:
                raise _Refused("behind", f"the state after round {since + 1}, which the server counts on, is not here")

    def _reply(self, request: Message) -> Message:
        if request.kind == "train":
            arrays = self._train(request)
        else:
            held = [self._held(i, s) for i, s in zip(request.clients, request.since, strict=True)]
            arrays = packed(self._look(request, held))
        self.counts["answered"] += 1
        named = (self.run, self.agreement, request.round, request.clients, request.since)
        return Message("answer", *named, arrays, {"stage": request.kind, "instance_id": self.instance_id})

    def _look(self, request: Message, held: list[Snapshot]) -> State:
        """What a stage that changes nothing brings."""
        if request.kind == "states":
            states = stacked([h.state for h in held])
            return {f"state/{k}": v for k, v in states.items()} | {"visits": torch.tensor([h.visits for h in held])}
        found = self._work(request, held)[1]
        if self.open:
            return found
        if request.kind == "personal":
            self.keep(request.round, torch.tensor(request.clients), found)
            return {}
        return shared(found, self.share)

    def _held(self, client: int, round: int) -> Snapshot:
        held = self.store.after(client, round)
        assert held is not None  # _check has looked
        return held

    def _train(self, request: Message) -> dict[str, np.ndarray]:
        """The replies, from the disk where all are there, else computed from the states that the server names.

        Where some are missing all are computed again: the same bits, as nothing depends on what happened since.
        """
        marks = _marks(request)
        stored = [self.store.after(i, request.round) for i in request.clients]
        if all(
            h is not None and (h.since, h.digest) == mark
            for h, mark in zip(stored, zip(request.since, marks, strict=True), strict=True)
        ):
            self.counts["repeated"] += 1
            done = [h for h in stored if h is not None]
        else:
            held = [self._held(i, s) for i, s in zip(request.clients, request.since, strict=True)]
            state, message, steps = self._work(request, held)
            done = []
            for at, before in enumerate(held):
                own, reply = ({k: v.clone() for k, v in row(t, at).items()} for t in (state, message))
                now = (request.round, before.round, marks[at], before.visits + 1, int(steps[at]), own, reply)
                done.append(Snapshot(*now))
            self.store.put(dict(zip(request.clients, done, strict=True)))
        replies = packed(stacked([h.reply for h in done])) if done[0].reply else {}
        return {f"message/{k}": v for k, v in replies.items()} | {"steps": np.array([h.steps for h in done])}

    def _work(self, request: Message, held: list[Snapshot]) -> tuple[State, State, Tensor]:
        n = len(held)
        down = plain(request.arrays, n) if self.open else unpacked(request.arrays, n, self.down[request.kind])
        visits = torch.tensor([h.visits for h in held])
        ids, state = torch.tensor(request.clients), stacked([h.state for h in held])
        common = down.pop(GLOBAL, None)
        return self.bench(cast(Stage, request.kind), request.round, ids, state, visits, down, common)


class _Refused(SartorError):
    """Why, and what is said here."""

    def __init__(self, why: str, text: str) -> None:
        super().__init__(text)
        self.why = why


def _why(error: Exception) -> str:
    """The one word that a server is told."""
    if isinstance(error, _Refused):
        return error.why
    for kind, word in ((Damaged, "damaged"), (Diverged, "diverged"), (OSError, "disk")):
        if isinstance(error, kind):
            return word
    return "disk" if isinstance(error, SartorError) and isinstance(error.__cause__, OSError) else "failed"


def _marks(request: Message) -> list[str]:
    """For each client a hash of what it was sent."""
    if all(len(v) == 1 for v in request.arrays.values()) and len(request.clients) > 1:  # the same to all
        return _marks(replace(request, clients=request.clients[:1])) * len(request.clients)
    out = []
    for at in range(len(request.clients)):
        found = hashlib.sha256()
        for k, v in sorted(request.arrays.items()):
            found.update(f"{k} {v.dtype} {v.shape[1:]} ".encode())
            found.update(np.ascontiguousarray(v[at if len(v) > 1 else 0]).tobytes())
        out.append(found.hexdigest())
    return out


def shared(scores: State, share: str) -> State:
    """The scores that leave a site: each client's, all clients' mean in place of each, or none (NaN)."""
    if share == "each":
        return scores
    if share == "none":
        return {k: torch.full_like(v, torch.nan) for k, v in scores.items()}
    return {k: v.nanmean().expand(len(v)).clone() for k, v in scores.items()}


def nothing(*_: Any) -> None:
    """Personal models that are not kept."""
