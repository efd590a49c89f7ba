"""Cells of a study played ahead, on other cores.

Runs that know nothing of each other keep all cores busier than one run does that is shared out among them. So processes
forked from this one play whole cells into files, from where they are taken as if an earlier call had finished them.
Nothing else comes back: a cell that fails there is played here again, and says why.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from ..engines import forked
from ..engines.local import LocalEngine
from ..engines.threads import cores, share_cores
from ..run import memory
from ..run.result import Result
from ..storage import write_text

Play = Callable[[], Iterator[object]]
_FREE, _TAKEN, _DONE = range(3)
_LOOK_AGAIN = 0.02  # seconds


class Ahead:
    """Processes that play cells, the last first or in their order; each is played once, here or there."""

    def __init__(self, plays: Sequence[Play], processes: int, last_first: bool = True) -> None:
        context = multiprocessing.get_context("fork")
        self._cells = forked.shared([len(plays)], torch.int64).zero_()
        self._lock: Any = context.Lock()
        self._order = range(len(plays))[:: -1 if last_first else 1]
        self.processes = [
            context.Process(target=self._work, args=(plays, os.getpid()), daemon=True) for _ in range(processes)
        ]
        self._before = torch.get_num_threads()
        self._limited = threadpool_limits(1)  # this process plays too: threads that wait would take the others' time
        torch.set_num_threads(1)
        self._beside = share_cores(1 + processes)
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
        self._limited.restore_original_limits()
        torch.set_num_threads(self._before)
        share_cores(self._beside)

    def _work(self, plays: Sequence[Play], parent: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and ends this one
        torch.set_num_threads(1)
        threadpool_limits(1)  # scikit-learn's: a pool of threads does not survive a fork
        warnings.simplefilter("ignore")  # said by the parent, who reads the summaries
        for cell in self._order:
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


def spare_cores(device: str = "cpu") -> int:
    """How many processes may play ahead of this one."""
    return cores() - 1 if device == "cpu" and forked.available() else 0


def cores_for(example: Result) -> int:
    """How many processes may play runs like this one beside this one: a core for each, and memory for all of them."""
    run, free = example.run, memory.available()
    if not isinstance(run.engine, LocalEngine):  # a cluster's workers are busy as it is
        return 0
    spare, there = spare_cores(run.problem.start.device.type), len(example.data)
    wanted = memory.Wanted.of(run.method, run.problem.start, there, *run.method.init(run.problem), run.cohort)
    each = wanted.memory(run.store is not None) + memory.of_data(example.data)
    return spare if free is None else min(spare, max(0, free // each - 1))


def in_order(calls: Sequence[Callable[[], Any]], processes: int) -> Generator[Any, None, None]:
    """What each call gives, one after the other, while other processes make the next. All that a call gives must be
    such that JSON can hold it."""
    if processes < 1 or len(calls) < 2:
        yield from (call() for call in calls)
        return
    with TemporaryDirectory() as folder:
        places = [Path(folder) / f"{number}.json" for number in range(len(calls))]
        plays = [partial(_write, call, place) for call, place in zip(calls, places, strict=True)]
        ahead, made = Ahead(plays, min(processes, len(calls) - 1), last_first=False), dict[int, Any]()
        try:
            for number, place in enumerate(places):
                for free in range(number, len(calls)):  # whoever would wait makes one of the next
                    if number in made or place.exists():
                        break
                    if ahead.take(free):
                        made[free] = _on_one_core(calls[free])
                if number not in made:
                    ahead.wait(number)
                    made[number] = json.loads(place.read_text()) if place.exists() else _on_one_core(calls[number])
                yield made.pop(number)
        finally:
            ahead.close()


def _on_one_core(call: Callable[[], Any]) -> Any:
    """As the other processes do it: the cores are taken, and no digit depends on who made it."""
    with threadpool_limits(1):
        return call()


def _write(call: Callable[[], Any], place: Path) -> Iterator[None]:
    write_text(place, json.dumps(call()), durable=False)  # a gap in scores is NaN, which `write_json` refuses
    yield
