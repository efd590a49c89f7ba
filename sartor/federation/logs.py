"""Logs of bounded size: a text for people, and `events.jsonl`, a line of JSON for each thing that happened.

Events are made to be collected by a machine. At a site they hold kinds of requests, rounds, counts, bytes, seconds and
our own words for reasons; no name of a client, no value and no text of an error that came up in data.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from ..errors import SartorError, readable

EVENTS = "events.jsonl"
MOST_BYTES = 5_000_000  # of one file; with the one before there are twice as many
Value = str | int | float | bool | list[str] | None


def before(path: Path) -> Path:
    """Where the older half of a log is."""
    return path.with_name(f"{path.name}.1")


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """A supervisor and its job's process write to one log; a line must not go to a file that was just put aside."""
    with path.with_name(f".{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def append(path: Path, line: str, most: int = MOST_BYTES) -> None:
    """Another line. A file that would become too large is put aside, in place of the one that was before. A disk that
    takes no log does not stop a run: that is for what must be on it (states, ledgers, the audit log)."""
    data = line.encode() + b"\n"
    with contextlib.suppress(OSError), _held(path):
        if path.exists() and path.stat().st_size + len(data) > most:
            os.replace(path, before(path))
        with path.open("ab") as file:
            file.write(data)


def trim(path: Path, most: int = MOST_BYTES) -> None:
    """The same for a file that another process keeps open for appending: its content is copied aside."""
    with contextlib.suppress(OSError):
        if path.stat().st_size > most:
            with path.open("rb") as file:
                file.seek(-most, os.SEEK_END)
                before(path).write_bytes(file.read())
            os.truncate(path, 0)


class EventLog:
    """The events of a server or a site."""

    def __init__(self, place: Path, who: str) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.path, self.who = place / EVENTS, who

    def add(self, event: str, level: str = "info", /, **fields: Value) -> None:
        """One thing that happened."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line: Mapping[str, Value] = {"time": now, "level": level, "who": self.who, "event": event, **fields}
        append(self.path, json.dumps({k: v for k, v in line.items() if v is not None}))

    def say(self, text: str) -> None:
        """A line that a supervisor or a server says: names of sites, rounds and settings."""
        self.add("message", text=readable(text))


class Follower:
    """Says what other processes have added to a log since the last look."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self.path, self.say = path, say
        self.file, self.at = self._number(), path.stat().st_size if path.exists() else 0

    def _number(self) -> int:
        return self.path.stat().st_ino if self.path.exists() else 0

    def look(self) -> None:
        """Say the new lines; of a file that was put aside first its rest."""
        if self.file != self._number():
            with contextlib.suppress(OSError):
                if before(self.path).stat().st_ino == self.file:
                    self._read(before(self.path))
            self.file, self.at = self._number(), 0
        self._read(self.path)

    def _read(self, path: Path) -> None:
        if not path.exists():
            return
        with path.open("rb") as file:
            if self.at > os.fstat(file.fileno()).st_size:
                self.at = 0  # put aside twice since the last look, and the number of the old file used again
            file.seek(self.at)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self.at += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            self.say(line)


class Voice:
    """How a supervisor says what happens, itself and in the processes of its jobs: as lines of text, or as events."""

    def __init__(self, text_log: Path, who: str, tell: Callable[[str], None], as_events: bool = False) -> None:
        self.events, self.tell, self.as_events = EventLog(text_log.parent, who), tell, as_events
        self.follower = Follower(self.events.path if as_events else text_log, tell)

    def say(self, text: str) -> None:
        """A line of the supervisor's own."""
        self.events.say(text)
        if not self.as_events:
            self.tell(text)

    def look(self) -> None:
        """Tell what is new in the log."""
        self.follower.look()

    @contextmanager
    def last_word(self) -> Iterator[None]:
        """Whatever happens in this block, its end is an event, and everything is told."""
        try:
            yield
            self.events.add("finished")
        except SartorError as e:
            self.events.add("failed", "error", text=str(e))
            raise
        finally:
            self.look()
