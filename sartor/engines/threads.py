"""How many cores there are for this process, and how many threads torch computes with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_beside = 1  # processes that share the cores, this one among them


def cores() -> int:
    """How many cores this process may use."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, found // _beside)


def share_cores(processes: int) -> int:
    """So many processes play for one study from now on, this one among them; gives how many it were before."""
    global _beside
    before, _beside = _beside, processes
    return before


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, and with as many as before afterwards.

    Splitting the small operations of a round over cores costs more than it gains, and would make the last bit of a sum
    depend on the number of cores.
    """
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
