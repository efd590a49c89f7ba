"""A folder in which a server or a site of a federation works: one process at a time, a log, and how far it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ..errors import SartorError, readable
from ..storage import write_json
from .logs import EventLog, append
from .rounds.client_store import alone
from .server import Coordinator

STATUS, LOG, RUN = "status.json", "log.txt", "run"
_LOCK = 60.0  # seconds to wait for an earlier process to go


def play(lead: Coordinator, place: Path, events: EventLog | None = None) -> None:
    """Lead a run to its end, alone in its folder; its status is kept there, and each round is an event."""
    rounds = lead.recipe.rounds
    status: dict[str, Any] = {"state": "joining", "round": 0, "rounds": rounds, "silent": {}}
    write_json(place / STATUS, status)
    with patiently(place, "another process leads this run"):
        for result in lead.play():
            assert lead.hub is not None
            status |= {"state": "playing", "round": result.run.round, "silent": lead.hub.silent}
            status |= {"counts": lead.hub.counts, "refusals": lead.hub.refusals, "time": time.time()}
            run = result.run
            status |= {"seconds": run.seconds, "bytes_sent": run.bytes_down, "bytes_received": run.bytes_up}
            write_json(place / STATUS, status)
            if events is not None and run.round:
                answers = {"answers": lead.hub.counts["answers"], "refusals": sum(lead.hub.refusals.values())}
                numbers = {k: status[k] for k in ("round", "rounds", "seconds", "bytes_sent", "bytes_received")}
                events.add("round", **numbers, **answers, silent=[s for s, times in lead.hub.silent.items() if times])
            if result.run.round:
                lead.say(f"round {result.run.round} of {rounds}")
    write_json(place / STATUS, status | {"state": "finished"})


@contextmanager
def patiently(place: Path, busy: str) -> Iterator[None]:
    """Hold the folder; a process that is about to end may hold it a little longer."""
    until = time.monotonic() + _LOCK
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(alone(place, busy))
                break
            except SartorError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)
        yield


class Speaker:
    """Adds a line to the folder's own log: also what others say, so nothing that a terminal would obey. With `events`
    (a server's, who knows no client by name) it stands there, too."""

    def __init__(self, place: Path, events: EventLog | None = None) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.path, self.events = place / LOG, events

    def __call__(self, text: str) -> None:
        append(self.path, time.strftime("%H:%M:%S ") + readable(text))
        if self.events is not None:
            self.events.say(text)
