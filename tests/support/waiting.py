"""Waiting for progress, not for the clock: a process on a busy machine is slow, and that is no fault.

A wait fails only when nothing happens any more: for `STILL` seconds the processes have used no CPU time and said
nothing. `CAP` is for processes that never rest, such as servers that poll.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import psutil

STILL, CAP = 300.0, 1800.0


class Watch:
    """Whether some processes, and all that they have started, do anything."""

    def __init__(self, pids: Callable[[], Iterable[int]], still: float = STILL, cap: float = CAP) -> None:
        self.pids, self.still, self.cap = pids, still, cap
        self.began = self.looked = self.moved = time.monotonic()
        self.last: object = None

    def check(self, said: Callable[[], object] = lambda: None) -> None:
        """Raise an AssertionError when there is no use in waiting any longer. Looks once in a second at most."""
        now = time.monotonic()
        if now - self.looked < 1:
            return
        self.looked = now
        if (found := (cpu_seconds(self.pids()), said())) != self.last:
            self.last, self.moved = found, now
        assert now - self.moved < self.still, f"for {self.still:.0f} s nothing has happened"
        assert now - self.began < self.cap, f"it is not done after {self.cap:.0f} s"


def cpu_seconds(pids: Iterable[int]) -> float:
    """What these processes and their descendants have used."""
    used = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            first = psutil.Process(pid)
            for process in (first, *first.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    used += sum(process.cpu_times()[:4])  # with those of its children that have ended
    return used


def until(condition: Callable[[], bool], pids: Callable[[], Iterable[int]], said: Callable[[], str]) -> None:
    """Wait for a condition as long as the processes do something; where they do not, show what they said."""
    watch = Watch(pids)
    while not condition():
        try:
            watch.check(said)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{said()}") from None
        time.sleep(0.05)


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process says on both pipes until its end, which is waited for as long as it does something."""
    watch, so_far = Watch(lambda: [process.pid]), (0, 0)
    while True:
        try:
            return process.communicate(timeout=1)
        except subprocess.TimeoutExpired as e:
            so_far = len(e.output or ""), len(e.stderr or "")
        try:
            watch.check(lambda found=so_far: found)  # type: ignore[misc]
        except AssertionError as e:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"{e}: {process.args!r}\n{out}\n{err}") from None


def run(words: Sequence[object], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A command to its end."""
    pipe = subprocess.PIPE
    with subprocess.Popen(list(map(str, words)), stdout=pipe, stderr=pipe, text=True, env=env) as process:
        out, err = ended(process)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
