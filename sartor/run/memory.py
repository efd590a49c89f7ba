"""How much memory a run will need and how much there is; what is too large is refused before the first round."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from torch import Tensor

from ..client_table import Rows
from ..core import Method, Server, State
from ..data.clients import Clients
from ..errors import need, see

_BASE = 600 << 20  # Python, PyTorch and what a round's steps need besides; measured
GIB = 1 << 30


@dataclass(frozen=True)
class Wanted:
    """What a run will hold, in bytes."""

    tables: int  # one row for every client: their states, and what the server remembers of them
    cohort: int  # those asked in a round: states, messages and downlinks
    server: int  # what else the server holds

    @classmethod
    def of(cls, method: Method, model: Tensor, clients: int, server: Server, start: State, cohort: int) -> Wanted:
        """From a method's first states."""
        each = sum(_bytes(v) for v in start.values())
        kept = sum(_bytes(v.start) for v in server.values() if isinstance(v, Rows))
        asked = clients if method.train_all else cohort
        other = sum(_bytes(v) for v in server.values() if isinstance(v, Tensor))
        return cls(clients * (each + kept), asked * (2 * each + 3 * _bytes(model)), other)

    def memory(self, on_disk: bool) -> int:
        """In memory: tables are there twice while a checkpoint is written; on disk a checkpoint holds some rounds'."""
        return _BASE + self.cohort + 2 * self.server + (0 if on_disk else 2 * self.tables)


def of_data(clients: Clients) -> int:
    """Bytes of the samples."""
    return _bytes(clients.x) + _bytes(clients.y)


def available() -> int | None:
    """Bytes of memory that are free for this process, as of this second; None where the system does not say."""
    return _available(int(time.monotonic()))


@lru_cache(maxsize=1)
def _available(second: int) -> int | None:
    """As of then: a study asks for each of its runs."""
    found = [int(line.split()[1]) << 10 for line in _lines("/proc/meminfo") if line.startswith("MemAvailable")]
    limit, used = (_lines(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if found and limit and used and limit[0].isdigit() and used[0].isdigit():  # in a container with less
        found.append(max(0, int(limit[0]) - int(used[0])))
    return min(found) if found else None


def check(method: Method, model: Tensor, clients: int, server: Server, start: State, cohort: int, disk: bool) -> None:
    """Refuse a run that cannot fit."""
    there = available()
    if model.device.type != "cpu" or there is None:
        return
    wanted = Wanted.of(method, model, clients, server, start, cohort).memory(disk)
    need(
        wanted <= there,
        f"this run needs about {wanted / GIB:.1f} GiB of memory for {clients} clients (cohort {cohort}) with "
        f"{model.numel():,} parameters each, but {there / GIB:.1f} GiB are free; take "
        f"{'a smaller cohort' if disk else '--store disk (states on disk), fewer clients'} or a smaller model."
        + see("memory"),
    )


def _bytes(value: Tensor) -> int:
    return value.numel() * value.element_size()


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
