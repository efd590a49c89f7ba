"""Cells of a comparison played ahead: other cores begin at the end of the plan while this process begins at its start.

A small model keeps one core busy. So processes forked from this one play whole cells into their folders, from where
they are taken as if an earlier call had finished them. Nothing else comes back: a cell that fails there is played here
again, and says why.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..engines import forked

Play = Callable[[], Iterator[object]]
_FREE, _TAKEN, _DONE = range(3)
_LOOK_AGAIN = 0.02  # seconds


class Ahead:
    """Processes that play cells, the last first; each is played once, here or there."""

    def __init__(self, plays: Sequence[Play], processes: int) -> None:
        context = multiprocessing.get_context("fork")
        self._cells = forked.shared([len(plays)], torch.int64).zero_()
        self._lock: Any = context.Lock()
        self.processes = [
            context.Process(target=self._work, args=(plays, os.getpid()), daemon=True) for _ in range(processes)
        ]
        with warnings.catch_warnings():  # other threads of this process hold no lock that is needed there
            warnings.simplefilter("ignore", DeprecationWarning)
            for process in self.processes:
                process.start()

    def take(self, cell: int) -> bool:
        """Whether the cell is free; it is the caller's then."""
        with self._lock:
            free = bool(self._cells[cell] == _FREE)
            if free:
                self._cells[cell] = _TAKEN
        return free

    def wait(self, cell: int) -> None:
        """Until whoever took the cell has done it, or is gone."""
        while int(self._cells[cell]) == _TAKEN and any(process.is_alive() for process in self.processes):
            time.sleep(_LOOK_AGAIN)

    def close(self) -> None:
        for process in self.processes:
            process.kill()  # what was saved in the cells' folders is whole
            process.join()

    def _work(self, plays: Sequence[Play], parent: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and ends this one
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")  # said by the parent, who reads the summaries
        for cell in reversed(range(len(plays))):
            if not self.take(cell):
                continue
            try:
                for _ in plays[cell]():
                    if os.getppid() != parent:  # killed: nobody waits for this
                        os._exit(0)
            except BaseException:
                pass
            self._cells[cell] = _DONE
        os._exit(0)
