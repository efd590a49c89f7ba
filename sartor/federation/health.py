"""What a server or a site of a federation is doing, for a monitor: /healthz and Prometheus' /metrics, on 127.0.0.1.

Nothing is counted here. A supervisor says what it waits for, and the process of its job writes status.json (rounds,
answers, refusals, bytes, seconds); both are read when somebody asks. No name of a client and no score is told.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import SartorError, readable
from ..storage import read_json
from .privacy_ledger import DELTA, LEDGER, spent_in_all
from .work_folder import STATUS

STARTING = "starting"
_STATES = ("starting", "waiting", "playing", "done", "failed")


@dataclass
class Health:
    """Of one work folder. A supervisor says with `wait` what it waits for; then the next job has the word."""

    place: Path
    who: str  # "server" or the site's name
    federation: str
    waiting: str = STARTING  # what the supervisor does until the next job speaks
    failed: str = ""
    done: bool = False
    restarts: int = 0  # jobs and NVFlare processes that were started again
    _old: int = 0  # when status.json was written before that: by an earlier job
    _epsilon: tuple[int, float] = field(default=(0, 0.0), repr=False)

    def __post_init__(self) -> None:
        self._old = self._changed()

    def wait(self, what: str) -> None:
        """What is waited for from now on, until a job writes its status."""
        self.waiting, self._old = what, self._changed()

    def _changed(self) -> int:
        with contextlib.suppress(OSError):
            return (self.place / STATUS).stat().st_mtime_ns
        return 0

    def status(self) -> dict[str, Any]:
        """What the job's process has written last."""
        with contextlib.suppress(SartorError):
            found = read_json(self.place / STATUS)
            return found if isinstance(found, dict) else {}
        return {}

    def now(self) -> tuple[str, str]:
        """One of five states, and the same in words."""
        status = self.status()
        if self.failed:
            return "failed", f"failed: {readable(self.failed, 300)}"
        if self.done:
            return "done", "done"
        if self._changed() == self._old:
            return STARTING if self.waiting == STARTING else "waiting", self.waiting
        if status.get("state") == "finished":
            return "done", "done"
        begun, rounds = status.get("round", 0) + (self.who == "server"), status.get("rounds", 0)
        if status.get("state") != "playing" or not begun:
            return "waiting", "waiting for sites" if self.who == "server" else "waiting for the first round"
        last = f"scoring after round {rounds} of {rounds}"
        return "playing", f"in round {begun} of {rounds}" if begun <= rounds else last

    def epsilon(self) -> float | None:
        """ε of the client that has spent most, over all runs of this folder; None where nothing is private."""
        with contextlib.suppress(OSError, SartorError):
            changed = (self.place / LEDGER).stat().st_mtime_ns
            if self._epsilon[0] != changed:
                self._epsilon = changed, max(spent_in_all(self.place).values(), default=0.0)
            return self._epsilon[1]
        return None

    def metrics(self) -> str:
        """All numbers, in Prometheus' text format."""
        state = self.now()[0]
        known = {_labels(who=self.who, federation=self.federation, version=__version__): 1}
        lines = _metric("sartor_info", "gauge", "what runs here", known)
        states = {_labels(state=each): int(each == state) for each in _STATES}
        lines += _metric("sartor_state", "gauge", "1 for the state that it is in", states)
        return "\n".join([*lines, *self._of_run(), *self._of_machine()]) + "\n"

    def _of_run(self) -> list[str]:
        status, server = self.status(), self.who == "server"
        counts = status.get("counts") or {}
        lines = _metric(
            "sartor_round", "gauge", "rounds finished; at a site the one asked for last", status.get("round")
        )
        lines += _metric("sartor_rounds", "gauge", "rounds of the run", status.get("rounds"))
        answers = counts.get("answers" if server else "answered")
        lines += _metric("sartor_answers_total", "counter", "requests that were answered", answers)
        refusals = _by("why", status.get("refusals") or {})
        lines += _metric("sartor_refusals_total", "counter", "requests that were refused", refusals)
        if server:
            other = _by("why", {k: v for k, v in counts.items() if k != "answers"})
            lines += _metric("sartor_rejected_total", "counter", "answers that were not taken", other)
            silent = _by("site", status.get("silent") or {})
            lines += _metric("sartor_silent", "gauge", "timeouts of a site in a row", silent)
        seconds = "seconds of rounds; at a site of computing answers"
        lines += _metric("sartor_seconds_total", "counter", seconds, status.get("seconds"))
        lines += _metric("sartor_bytes_sent_total", "counter", "bytes of messages that left", status.get("bytes_sent"))
        came = status.get("bytes_received")
        lines += _metric("sartor_bytes_received_total", "counter", "bytes of messages that came", came)
        last = "when the run last went on, in seconds since 1970"
        lines += _metric("sartor_progress_timestamp_seconds", "gauge", last, status.get("time"))
        if not server and (spent := self.epsilon()) is not None:
            text = "epsilon of the client that has spent most, over all runs"
            lines += _metric("sartor_epsilon_spent", "gauge", text, {_labels(delta=DELTA): spent})
        return lines

    def _of_machine(self) -> list[str]:
        lines = _metric("sartor_restarts_total", "counter", "jobs and NVFlare processes started again", self.restarts)
        lines += _metric("sartor_memory_bytes", "gauge", "resident memory of all processes", resident(os.getpid()))
        lines += _metric("sartor_memory_limit_bytes", "gauge", "what the control group allows", memory_limit())
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(self.place).free
            lines += _metric("sartor_disk_free_bytes", "gauge", "free where states and logs are kept", free)
        return lines


def _labels(**labels: object) -> str:
    escaped = {k: str(v).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for k, v in labels.items()}
    return "{" + ",".join(f'{k}="{v}"' for k, v in escaped.items()) + "}"


def _by(label: str, counts: Mapping[str, float]) -> dict[str, float]:
    return {_labels(**{label: k}): v for k, v in counts.items()}


def _metric(name: str, kind: str, text: str, value: float | Mapping[str, float] | None) -> list[str]:
    """A metric's lines; none where its value is not known."""
    each = value if isinstance(value, Mapping) else {"": value}
    found = [f"{name}{labels} {_number(v)}" for labels, v in each.items() if v is not None]
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *found] if found else []


def _number(value: float) -> str:
    return "+Inf" if value == float("inf") else repr(float(value)) if isinstance(value, float) else str(int(value))


def resident(first: int) -> int | None:
    """Bytes of memory that a process and all that it started hold; None where there is no /proc."""
    page, parents, held = os.sysconf("SC_PAGE_SIZE"), dict[int, int](), dict[int, int]()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            parents[int(entry.name)], held[int(entry.name)] = int(words[1]), int(words[21]) * page
    family = {first} & held.keys()
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(held[pid] for pid in family) if family else None


def memory_limit() -> int | None:
    """What the control group of this process allows (MemoryMax, a container's limit); None: no limit, or not known."""
    with contextlib.suppress(OSError, ValueError):
        own = Path("/proc/self/cgroup").read_text().splitlines()[-1].rpartition(":")[2]
        place = Path("/sys/fs/cgroup") / own.lstrip("/") / "memory.max"
        return int((place if place.exists() else Path("/sys/fs/cgroup/memory.max")).read_text())
    return None
