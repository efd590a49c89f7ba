"""A folder in which a server or a site of a federation works: one process at a time, a log, and how far it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ..errors import SartorError, readable
from ..storage import write_json
from .rounds.client_store import alone
from .server import Coordinator

STATUS, LOG, RUN = "status.json", "log.txt", "run"
_LOCK = 60.0  # seconds to wait for an earlier process to go


def play(lead: Coordinator, place: Path) -> None:
    """Lead a run to its end, alone in its folder; its status is kept there."""
    rounds = lead.recipe.rounds
    status: dict[str, Any] = {"state": "joining", "round": 0, "rounds": rounds, "silent": {}}
    write_json(place / STATUS, status)
    with patiently(place, "another process leads this run"):
        for result in lead.play():
            assert lead.hub is not None
            status |= {"state": "playing", "round": result.run.round, "silent": lead.hub.silent}
            status |= {"counts": lead.hub.counts, "refusals": lead.hub.refusals, "time": time.time()}
            write_json(place / STATUS, status)
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
    """Adds a line to the folder's own log: also what others say, so nothing that a terminal would obey."""

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.path = place / LOG

    def __call__(self, text: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(time.strftime("%H:%M:%S ") + readable(" ".join(text.split()), 1000) + "\n")
