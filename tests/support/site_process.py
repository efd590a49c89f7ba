"""A site in a process of its own, that reads requests and writes replies on pipes; killed and restarted by tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from sartor.federation.site import Participant, SiteConfig


class Process:
    """The parent's side: starts the process when it is needed, and kills it when it is told to."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.command = [sys.executable, __file__, str(folder), str(data)]
        self.kill_at: str | None = None
        self.kills, self._process = 0, None

    _process: subprocess.Popen[bytes] | None

    def answer(self, data: bytes) -> bytes | None:
        if self._process is None:
            self._process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process, kill = self._process, self.kill_at
        assert process.stdin is not None and process.stdout is not None
        if kill and b'"kind":"train"' not in data:
            kill = None
        process.stdin.write((b"!" if kill == "write" else b" ") + len(data).to_bytes(4, "little") + data)
        process.stdin.flush()
        head = process.stdout.read(4)
        if len(head) < 4 or kill == "reply":
            self.kills, self.kill_at = self.kills + 1, None
            self.end()
            return None
        return process.stdout.read(int.from_bytes(head, "little"))

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
        self._process = None


def main(folder: str, data: str) -> None:
    member = Participant(Path(folder).name, Path(folder), SiteConfig(data, "outcome"))
    replace = os.replace
    while head := sys.stdin.buffer.read(5):
        if head[:1] == b"!":
            os.replace = lambda a, b: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        else:
            os.replace = replace
        reply = member.answer(sys.stdin.buffer.read(int.from_bytes(head[1:], "little")))
        sys.stdout.buffer.write(len(reply).to_bytes(4, "little") + reply)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
