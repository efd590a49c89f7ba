"""A site in a process of its own, that takes requests and gives replies over a pipe; killed and restarted by tests."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import fresh

from sartor.federation.site import Participant
from sartor.federation.site_config import SiteConfig


class Process:
    """The parent's side: starts the process when it is needed, and kills it when it is told to."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.place = folder, data
        self.kill_at: str | None = None
        self.kills = 0
        self._running: tuple[BaseProcess, Connection] | None = None

    def answer(self, data: bytes) -> bytes | None:
        if self._running is None:
            line, theirs = multiprocessing.Pipe()
            self._running = fresh.start(main, theirs, *self.place), line
            theirs.close()
        line, kill = self._running[1], self.kill_at
        if kill and b'"kind":"train"' not in data:
            kill = None
        line.send((kill == "write", data))
        try:
            reply: bytes = line.recv()
        except EOFError:
            kill = "reply"
        if kill == "reply":
            self.kills, self.kill_at = self.kills + 1, None
            self.end()
            return None
        return reply

    def end(self) -> None:
        if self._running is not None:
            process, line = self._running
            process.kill()
            process.join()
            line.close()
        self._running = None


def main(line: Connection, folder: Path, data: Path) -> None:
    member = Participant(folder.name, folder, SiteConfig(str(data), "outcome"))
    replace = os.replace
    while True:
        dies, request = line.recv()
        if dies:
            os.replace = lambda a, b: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        else:
            os.replace = replace
        line.send(member.answer(request))
