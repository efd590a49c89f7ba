"""A site: one or more clients with their own data, states and disk, that answer what a server asks. No transport here.

Exactly once. A message is named by (run, round, client), and the server says with each request after which round it
last heard the client (`since`). The site begins from its state after that round, never from a later one, and writes the
new state with the reply to its disk before it answers. So a repeated request is answered from the disk, and a round
whose answer never arrived has not happened: the next one begins where the server believes the client to be.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from ...core import Stage, State
from ...errors import Diverged, Refused, SartorError
from .client_store import Begun, Keeper, Look, Looks, Played
from .masking import SECURE, SEED, SUM, SiteMasking, SumOf, clients_asked, summed_scores
from .messages import Damaged, Message, Spec, decode, encode, packed, plain, size_of, unpacked
from .packing import CODES, SitePacking, codes_in, joined, trimmed

# Why a request or a reply was not taken: its bytes, its run or sender, its settings, its round (old, ahead, or from a
# state that is gone), its work (raised, NaN), or the disk.
# What was asked before with another content, or goes beyond the site's limits.
REASONS = (
    *("damaged", "foreign", "agreement", "stale", "early", "behind", "failed", "diverged", "disk"),
    *("changed", "unscheduled", "limit"),
)
GLOBAL = "global"  # what the global model is called in a message, beside the method's own downlink


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
    counts: dict[str, int] = field(default_factory=lambda: {"answered": 0, "repeated": 0, **dict.fromkeys(REASONS, 0)})
    log: Callable[[str], None] = lambda text: None
    open: bool = False  # a simulation: all that is asked for comes back, also the words of errors, and is not judged
    scored: Callable[[int], bool] = lambda round: True  # whether an evaluation was agreed on for this round
    looks: Looks | None = None  # none: a simulation, where models are scored as often as one likes
    release: Callable[[Tensor, State], State] = lambda ids, scores: scores  # which scores leave, and how
    packing: SitePacking | None = None  # none: models and messages go as they are
    masks: SiteMasking | None = None  # none: messages leave without a mask
    # Before messages of these clients are made with noise, in this round; it may refuse. None: there is no noise, and
    # what is computed again is the same.
    spend: Callable[[int, Sequence[int]], None] | None = None

    def __post_init__(self) -> None:
        self._own = frozenset(self.ids)
        coded = 0 if self.packing is None else self.packing.most_down(len(self.ids))
        coded += 0 if self.masks is None else self.masks.most
        self.most = max((size_of(spec, len(self.ids)) for spec in self.down.values()), default=0) + coded

    def answer(self, data: bytes) -> bytes:
        """The reply to a request. A request that cannot be taken changes nothing, is counted and is refused in a word:
        what went wrong in detail is said here, not to the server."""
        try:
            request = decode(data, None if self.open else self.most)
            self._check(request)
            if request.kind == "unmask":
                return encode(self._unmask(request))
            down, codes = self._received(request)
            marks = _marked(request, codes)
            if not self.open:
                self._check_once(request, marks)
            return encode(self._reply(request, _Downlink(down, codes), marks))
        except Exception as e:
            return self._refuse(e)

    def _refuse(self, error: Exception) -> bytes:
        why = _why(error)
        self.counts[why] += 1
        text = str(error) if isinstance(error, SartorError | OSError) else f"{type(error).__name__}: {error}"
        self.log(f"refused ({why}): {text}")
        note: dict[str, Any] = {"why": why, "instance_id": self.instance_id}
        note |= {"limit": error.limit} if isinstance(error, Refused) and error.limit else {}
        if self.open:
            own = isinstance(error, SartorError)
            note |= {"text": text if own else "".join(traceback.format_exception(error)), "own": own}
        return encode(Message("refused", self.run, self.agreement, note=note))

    def _check(self, request: Message) -> None:
        masked = ("unmask",) if self.masks is not None else ()
        stages = ("train", "evaluate", "personal", *masked, *(("training", "diagnose", "states") if self.open else ()))
        mine = request.kind in stages and set(request.clients) <= self._own
        if request.run != self.run or not mine or not request.clients or len(request.since) != len(request.clients):
            raise Refused("foreign", "a request of another run, or for clients that are not here")
        if request.agreement != self.agreement:
            raise Refused("agreement", "the server works with other settings than were agreed on")
        training = request.kind == "train" or (request.kind == "unmask" and _stage(request) == "train")
        if request.round >= self.rounds + (not training):
            raise Refused("early", f"round {request.round + 1} of {self.rounds}")
        newest, known = self.store.newest(request.clients), self.store.known(request.clients, request.since)
        for last, since, here in zip(newest, request.since, known, strict=True):
            if training and (request.round < last or since >= request.round):
                raise Refused("stale", f"round {request.round + 1} after round {last + 1}")
            if not here:
                raise Refused("behind", f"the state after round {since + 1}, which the server counts on, is not here")

    def _check_once(self, request: Message, marks: Marks) -> None:
        """A round has one model for each client: the one that is scored is the one to train on, and neither is asked
        for twice with another. So a server gets no more answers out of a site than rounds were agreed on."""
        if request.kind == "evaluate" and not self.scored(request.round):
            raise Refused("unscheduled", f"no scores were agreed on after round {request.round}")
        newest, begun = self.store.newest(request.clients), self.store.begun(request.clients, request.round)
        each = zip(request.clients, request.since, marks, newest, begun, strict=True)
        for client, since, (mark, full), last, trained in each:
            look = None if self.looks is None else self.looks.last(client)
            if request.kind == "train":
                again = trained is None or trained == Begun(since, mark)
                same = look is None or look.round != request.round or look.down == mark
                if not (again and same):
                    raise Refused("changed", f"another model in round {request.round + 1} than was sent before")
            elif request.kind == "evaluate":
                if request.round < max(last, -1 if look is None else look.round):
                    raise Refused("stale", f"scores after round {request.round}, which is over")
                fresh = look is None or look.round != request.round or look.mark == f"{since} {full}"
                if not fresh or (trained is not None and trained.digest != mark):
                    raise Refused("changed", f"scores of another model after round {request.round}")

    def _received(self, request: Message) -> tuple[State, list[bytes]]:
        """What the server sent, as tensors [c, ...], and what it sent as codes, for each client."""
        n = len(request.clients)
        if self.open:
            return plain(request.arrays, n), []
        arrays, codes = dict(request.arrays), list[bytes]()
        if self.packing is not None and self.packing.codes_down:
            codes = self.packing.split(codes_in(arrays.pop(CODES, None), self.packing.most_down(n)), n)
        return unpacked(arrays, n, self.down[request.kind]), codes

    def _reply(self, request: Message, down: _Downlink, marks: Marks) -> Message:
        if request.kind == "train":
            arrays = self._train(request, down, marks)
        else:
            arrays = packed(self._look(request, down, marks))
            if self.masks is not None and request.kind == "evaluate":
                summed = summed_scores(arrays)
                arrays = self.masks.masked(_sum_of(request, "evaluate"), request.note.get(SECURE), summed)
        self.counts["answered"] += 1
        return self._answer(request, arrays)

    def _answer(self, request: Message, arrays: dict[str, np.ndarray]) -> Message:
        note: dict[str, Any] = {"stage": request.kind, "instance_id": self.instance_id}
        if isinstance(summed := request.note.get(SUM), str):
            note[SUM] = summed[:64]
        named = (self.run, self.agreement, request.round, request.clients, request.since)
        return Message("answer", *named, arrays, note)

    def _look(self, request: Message, down: _Downlink, marks: Marks) -> State:
        """What a stage that changes nothing brings."""
        states, visits = self.store.states(request.clients, request.since)
        if request.kind == "states":
            return {f"state/{k}": v for k, v in states.items()} | {"visits": visits}
        found = self._work(request, down, states, visits)[1]
        if self.open:
            return found
        if request.kind == "personal":
            self.keep(request.round, torch.tensor(request.clients), found)
            return {}
        if self.looks is not None:
            each = zip(request.clients, request.since, marks, strict=True)
            self.looks.put({i: Look(request.round, f"{since} {full}", mark) for i, since, (mark, full) in each})
        return self.release(torch.tensor(request.clients), found)

    def _train(self, request: Message, down: _Downlink, marks: Marks) -> dict[str, np.ndarray]:
        """The replies, from the disk where all are there, else computed from the states that the server names.

        Where some are missing all are computed again: the same bits, as nothing depends on what happened since. But not
        where they have noise: a second one on the same message would tell more of it than was accounted for.
        """
        begun = [Begun(since, mark) for since, (mark, _) in zip(request.since, marks, strict=True)]
        there = [a == b for a, b in zip(self.store.begun(request.clients, request.round), begun, strict=True)]
        if all(there):
            self.counts["repeated"] += 1
        else:
            missing = [at for at, known in enumerate(there) if self.spend is None or not known]
            self.store.put(
                self._trained(_some(request, missing), down.some(missing), [begun[at].digest for at in missing])
            )
        reply, steps = self.store.replies(request.clients, request.round)
        counted = {"steps": steps.numpy()}
        if self.masks is not None:
            masked = self.masks.masked(_sum_of(request, "train"), request.note.get(SECURE), packed(reply))
            return {f"message/{k}": v for k, v in masked.items()} | counted
        if CODES in reply:
            return {CODES: joined(trimmed(reply))} | counted
        return {f"message/{k}": v for k, v in packed(reply).items()} | counted

    def _unmask(self, request: Message) -> Message:
        """What opens the sum of a round, or of its scores, that all of these sites have answered."""
        assert self.masks is not None  # _check has looked
        stage = _stage(request)
        if not all(self._has_answered(i, stage, request.round) for i in request.clients):
            raise Refused("early", f"round {request.round + 1} is not answered yet")
        seed = np.frombuffer(self.masks.opened(_sum_of(request, stage), request.note.get(SECURE)), np.uint8)[None]
        return self._answer(request, {SEED: seed})

    def _has_answered(self, client: int, stage: str, round: int) -> bool:
        if stage == "train":
            return self.store.begun([client], round) != [None]
        look = None if self.looks is None else self.looks.last(client)
        return look is not None and look.round == round

    def _trained(self, request: Message, down: _Downlink, sent: list[str]) -> Played:
        """One round of each client."""
        before, visits = self.store.states(request.clients, request.since)
        if self.spend is not None:
            self.spend(request.round, request.clients)
        state, message, steps = self._work(request, down, before, visits)
        return Played(request.round, request.clients, request.since, sent, visits + 1, steps, state, message)

    def _work(self, request: Message, sent: _Downlink, state: State, visits: Tensor) -> tuple[State, State, Tensor]:
        down, kept = dict(sent.down), State()
        common = down.pop(GLOBAL, None)
        if self.packing is not None and self.packing.codes_down:
            down, kept = self.packing.received(sent.codes, state)
        ids = torch.tensor(request.clients)
        new, message, steps = self.bench(cast(Stage, request.kind), request.round, ids, state, visits, down, common)
        return new | kept, message, steps


class _Downlink(NamedTuple):
    """What a request brings: tensors [c, ...], and each client's codes where downlinks are coded."""

    down: State
    codes: list[bytes]

    def some(self, places: list[int]) -> _Downlink:
        """What it brings for the clients at these places."""
        if len(places) == max(map(len, self.down.values()), default=len(self.codes)):
            return self  # all of them
        rows = {
            k: v[:1].expand(len(places), *v.shape[1:]) if v.stride(0) == 0 else v[places] for k, v in self.down.items()
        }
        return _Downlink(rows, [self.codes[at] for at in places] if self.codes else [])


def _stage(request: Message) -> str:
    """Of which stage a sum is to be opened."""
    return "evaluate" if str(request.note.get(SUM)).startswith("evaluate") else "train"


def _sum_of(request: Message, stage: str) -> SumOf:
    return SumOf(request.round, stage, clients_asked(request.clients))


def _some(request: Message, places: list[int]) -> Message:
    """The same for the clients at these places."""
    if len(places) == len(request.clients):
        return request
    clients, since = (tuple(numbers[at] for at in places) for numbers in (request.clients, request.since))
    return replace(request, clients=clients, since=since)


def _why(error: Exception) -> str:
    """The one word that a server is told."""
    if isinstance(error, Refused):
        return error.why
    for kind, word in ((Damaged, "damaged"), (Diverged, "diverged"), (OSError, "disk")):
        if isinstance(error, kind):
            return word
    return "disk" if isinstance(error, SartorError) and isinstance(error.__cause__, OSError) else "failed"


Marks = list[tuple[str, str]]  # for each client: a hash of what it would train on, and of all that it was sent


def _marked(request: Message, codes: list[bytes]) -> Marks:
    clients, arrays = len(request.clients), {k: v for k, v in request.arrays.items() if not (codes and k == CODES)}
    whole = _hashes(arrays, clients)
    if codes:
        coded = [hashlib.sha256(code).hexdigest() for code in codes]
        return [(code, f"{code} {rest}") for code, rest in zip(coded, whole, strict=True)]
    if GLOBAL not in arrays:
        return list(zip(whole, whole, strict=True))
    down = _hashes({k: v for k, v in arrays.items() if k != GLOBAL}, clients)
    return list(zip(down, whole, strict=True))


def _hashes(arrays: Mapping[str, np.ndarray], clients: int) -> list[str]:
    """For each client a hash of its rows."""
    if all(len(v) == 1 for v in arrays.values()) and clients > 1:  # the same to all
        return _hashes(arrays, 1) * clients
    out = []
    for at in range(clients):
        found = hashlib.sha256()
        for k, v in sorted(arrays.items()):
            found.update(f"{k} {v.dtype} {v.shape[1:]} ".encode())
            found.update(np.ascontiguousarray(v[at if len(v) > 1 else 0]).tobytes())
        out.append(found.hexdigest())
    return out


def nothing(*_: Any) -> None:
    """Personal models that are not kept."""
