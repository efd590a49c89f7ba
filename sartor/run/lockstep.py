"""Runs in lockstep: many runs are played at once, and what they ask their clients in a round is computed in one go.

A run knows nothing of it. It is played by `run/rounds.py` as ever, with its own server, seed, folder and checkpoint, in
a thread of its own; only one thread is at work at a time. It works until it asks its engine something, then it waits
until all others have asked, too. Runs of one kind (engines/joint.py) are answered together, the others one by one. One
that diverges, stops early or ends leaves; the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any

import torch
from torch import Tensor

from ..core import Engine, Stage, State
from ..engines.joint import Answer, Joint, Request, alone, fitting, kind_of
from ..engines.local import WORTH_IT, LocalEngine
from ..engines.threads import one_thread
from ..errors import SartorError
from .result import Result

_MOST = 100  # runs, each of which has a thread
Play = Iterator[Result]  # as run/play.py:play_recipe


class _Over(BaseException):
    """Nobody waits for this run any more."""


class _Player:
    """A run that is played until it asks its clients something; it is its own engine to it."""

    def __init__(self, play: Play, result: Result) -> None:
        self.play, self.result, self.engine = play, result, result.run.engine
        self.clients = self.engine.clients
        self._said: SimpleQueue[Any] = SimpleQueue()
        self._heard: SimpleQueue[Any] = SimpleQueue()
        self._thread = Thread(target=self._work, daemon=True)
        self.spent = 0.0  # seconds that the last answer took, of which this run has its share

    # In the caller's thread.

    def go_on(self, answer: object = None) -> Request | Result | BaseException | None:
        """Play on with this answer: what is asked next, a round that is done, why it failed, or None at its end."""
        if not self._thread.is_alive():
            self._thread.start()
        else:
            self._heard.put(answer)
        said: Request | Result | BaseException | None = self._said.get()
        return said

    def leave(self) -> None:
        """End it where it is."""
        if self._thread.is_alive():
            self._heard.put(_Over())
            self._thread.join()
        self.result.run.engine = self.engine

    # In the run's own thread.

    def _work(self) -> None:
        torch.set_num_threads(1)
        self.result.run.engine = self
        try:
            seen = len(self.result.history)
            for result in self.play:
                if len(result.history) > seen:  # a turn costs as much as a small server's round
                    seen = len(result.history)
                    self._wait(result)
            self._said.put(None)
        except _Over:
            pass
        except BaseException as e:  # an interruption, too: whoever waits must hear of it
            self._said.put(e)

    def _wait(self, said: object) -> Any:
        self._said.put(said)
        heard = self._heard.get()
        if isinstance(heard, BaseException):
            raise heard
        return heard

    # What a run sees of its engine.

    @property
    def steps(self) -> int:
        return self.engine.steps

    def map(
        self, stage: Stage, round: int, ids: Tensor, down: State, shared: Tensor | None = None
    ) -> tuple[Tensor, State]:
        began = time.perf_counter()
        answer: Answer = self._wait(Request(stage, round, ids, down, shared))
        if stage == "train":  # a run's seconds are those of its rounds, not of what it waits for
            self.result.run.seconds -= time.perf_counter() - began - self.spent
        return answer

    def save(self) -> State:
        return self.engine.save()

    def restore(self, states: State) -> None:
        self.engine.restore(states)

    def settle(self) -> None:
        self.engine.settle()


def gaining(clients: int, parameters: int) -> int:
    """How many runs gain by going together: the more numbers their models have, the less of the time is Python's."""
    return max(1, min(_MOST, WORTH_IT // (clients * parameters)))


def at_once(engine: Engine) -> int:
    """How many runs like this one gain by going together. Of networks it is one: their time goes into products, so that
    a core for each run does more for them."""
    if not isinstance(engine, LocalEngine) or alone(engine):
        return 1
    dense = engine.task.dense
    one_layer = dense is not None and len(dense.biases) == 1
    return gaining(engine.clients, engine.task.size) if one_layer else 1


def play_together(plays: Sequence[Play]) -> Iterator[tuple[int, Result | SartorError]]:
    """Play runs at once; yields (which, its result so far) before the first round of each and after every round that
    was evaluated, or the reason why it was refused or failed."""
    players: dict[int, _Player] = {}
    for i, play in enumerate(plays):
        try:
            result = next(play)
            yield i, result
            if alone(result.run.engine):  # to the end, before the next takes up memory, or another cluster's machines
                for result in play:
                    yield i, result
            else:
                players[i] = _Player(play, result)
        except SartorError as e:
            yield i, e
    joints = _joints(players)
    answers: dict[int, object] = dict.fromkeys(players)
    try:
        with one_thread():
            while players:
                requests: dict[int, Request] = {}
                for i, player in list(players.items()):
                    said = player.go_on(answers.get(i))
                    while isinstance(said, Result):
                        yield i, said
                        said = player.go_on()
                    if isinstance(said, Request):
                        requests[i] = said
                        continue
                    player.leave()
                    del players[i]
                    if isinstance(said, SartorError):
                        yield i, said
                    elif said is not None:
                        raise said
                answers = _answered(requests, players, joints)
    finally:
        for player in players.values():
            player.leave()


def together(results: Sequence[Result]) -> list[list[int]]:
    """Which of these runs are played together, by their places; one that goes alone is a list of one."""
    groups: dict[Hashable, list[int]] = {}
    for i, result in enumerate(results):
        engine = result.run.engine
        kind = kind_of(engine) if isinstance(engine, LocalEngine) and not alone(engine) else i
        groups.setdefault(kind, []).append(i)
    return [part for group in groups.values() for part in _that_fit(group, results)]


def _that_fit(group: list[int], results: Sequence[Result]) -> Iterator[list[int]]:
    """A group whose samples together take too much memory is cut."""
    engines = [results[i].run.engine for i in group]
    if isinstance(engines[0], LocalEngine) and len(group) > 1:
        for size in fitting([e.data for e in engines if isinstance(e, LocalEngine)]):
            yield group[:size]
            group = group[size:]
    else:
        yield group


def _joints(players: dict[int, _Player]) -> dict[int, tuple[Joint, int]]:
    """By run the stack that it belongs to, and its number there; those that go alone have none."""
    numbers, found = list(players), dict[int, tuple[Joint, int]]()
    for group in together([player.result for player in players.values()]):
        if len(group) > 1:
            engines = [players[numbers[i]].engine for i in group]
            joint = Joint([e for e in engines if isinstance(e, LocalEngine)])
            found |= {numbers[i]: (joint, place) for place, i in enumerate(group)}
    return found


def _answered(
    requests: dict[int, Request], players: dict[int, _Player], joints: dict[int, tuple[Joint, int]]
) -> dict[int, object]:
    """An answer to each request, or the error that it ends in."""
    groups: dict[Hashable, list[int]] = {}
    for i, request in requests.items():
        joint = joints[i][0] if i in joints else None
        same = joint is not None and joint.together(request.stage) and len(request.ids) > 0
        groups.setdefault((id(joint), request.stage, request.round) if same else i, []).append(i)
    answers: dict[int, object] = {}
    for group in groups.values():
        began = time.perf_counter()
        found: list[Any] | None = None
        if len(group) > 1:
            joint = joints[group[0]][0]
            try:
                found = joint.map([(joints[i][1], requests[i]) for i in group])
            except (SartorError, RuntimeError):  # one of them, or memory: who is at fault hears it below, alone
                found = None
        found = found or [_by_itself(players[i].engine, requests[i]) for i in group]
        answers |= dict(zip(group, found, strict=True))
        for i in group:
            players[i].spent = (time.perf_counter() - began) / len(group)
    return answers


def _by_itself(engine: Engine, request: Request) -> object:
    try:
        return engine.map(request.stage, request.round, request.ids, request.down, request.shared)
    except Exception as e:
        return e
