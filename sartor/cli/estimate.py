"""How long a recipe will take and how much memory, found by playing a few rounds of it with some of its clients."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..data import Clients
from ..run import memory
from ..run.assemble import Tasks, assemble
from ..run.complete import clients_of, complete
from ..run.lockstep import at_once, gaining, play_together
from ..run.play import play_recipe
from ..run.recipe import Recipe
from ..run.rounds import Run

_SOME = 64  # clients that are tried
_ENOUGH = 3.0  # seconds of trying
_MOST = 20  # rounds
_STACKED = 10  # runs that are tried in lockstep


def estimate(recipe: Recipe) -> dict[str, Any]:
    """Seconds (in all, to start, of a round, of an evaluation, of a run where several go together) and GiB of memory
    and disk.

    Every cost is taken to grow with the number of clients asked, which holds for all but FedAMP among very many.
    """
    loading = time.process_time()  # what it took to load Python's packages
    began = time.perf_counter()
    clients = clients_of(recipe)
    full = complete(recipe, clients)
    preparing = loading + time.perf_counter() - began
    m, cohort = len(clients), full.cohort or len(clients)
    some = _some(clients)
    tried = full.replace(
        **{"clients": len(some), "cohort": len(some), "store": "memory", "attack": "none", "attackers": 0.0}
        | {"unseen": 0.0}
    )
    run = assemble(tried, some).run
    stacks = full.store == "memory" and at_once(run.engine) > 1
    together = gaining(m, run.problem.start.numel()) if stacks else 1
    began = time.perf_counter()
    run.step()  # the first has everything to set up
    first = time.perf_counter() - began
    asked = m if run.method.train_all else cohort
    of_round = _seconds(run.step) * asked / len(some)
    of_look = _seconds(lambda: run.evaluate(full.diagnostics)) * m / len(some)
    looks = -(-full.rounds // full.evaluate_every)
    needed = _memory(full, clients, run)
    on_disk = full.store == "disk"
    tables = 0 if not on_disk else needed["tables"] / memory.GIB
    return {
        "seconds": preparing + max(0.0, first - of_round) + full.rounds * of_round + looks * of_look,
        "seconds_to_start": preparing,
        "seconds_per_round": of_round,
        "seconds_per_evaluation": of_look,
        "rounds": full.rounds,
        "runs_together": together,
        "seconds_per_run_together": None if together == 1 else _of_many(tried, some, min(together, _STACKED)),
        "memory_gib": needed["all"] / memory.GIB,
        "free_memory_gib": None if (free := memory.available()) is None else free / memory.GIB,
        "disk_gib": tables,
    }


def words(found: dict[str, Any]) -> str:
    """The estimate as a line to read."""
    free = "" if found["free_memory_gib"] is None else f" ({found['free_memory_gib']:.1f} free)"
    disk = f", {found['disk_gib']:.1f} GiB of disk" if found["disk_gib"] else ""
    many = ""
    if found["runs_together"] > 1:
        many = (
            f" Of runs with other seeds or settings (compare, tune) {found['runs_together']} go together: then about "
            f"{_duration(found['seconds_per_run_together'])} each."
        )
    return (
        f"about {_duration(found['seconds'])}: {found['rounds']} rounds of {_duration(found['seconds_per_round'])}, "
        f"each evaluation {_duration(found['seconds_per_evaluation'])}; {found['memory_gib']:.1f} GiB of memory{free}"
        f"{disk}.{many} Other work on the machine makes it longer."
    )


def _some(clients: Clients) -> Clients:
    """A sample of the clients, one in every so many by size."""
    by_size = np.argsort(clients.counts("train"), kind="stable")
    count = min(len(clients), _SOME)
    ids = by_size[((np.arange(count) + 0.5) * len(clients) / count).astype(int)]
    return clients.take(ids)


def _seconds(work: Callable[[], object]) -> float:
    """The median time of a few calls."""
    times: list[float] = []
    while len(times) < _MOST and sum(times) < _ENOUGH:
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _of_many(tried: Recipe, some: Clients, runs: int) -> float:
    """Seconds of a run when so many are played in lockstep: with one evaluation in up to 20 rounds."""
    rounds = min(tried.rounds, _MOST)
    short = tried.replace(rounds=rounds, evaluate_every=rounds)
    tasks: Tasks = {}
    began = time.perf_counter()
    for _ in play_together([play_recipe(short.replace(seed=seed), some, None, tasks=tasks) for seed in range(runs)]):
        pass
    return (time.perf_counter() - began) / runs * tried.rounds / rounds


def _memory(full: Recipe, clients: Clients, run: Run) -> dict[str, int]:
    """Bytes of all there is, and of the clients' tables."""
    server, start = run.method.init(run.problem)
    wanted = memory.Wanted.of(run.method, run.problem.start, len(clients), server, start, full.cohort or len(clients))
    data = 2 * memory.of_data(clients)  # as they were read, and dealt out
    return {"all": data + wanted.memory(full.store == "disk"), "tables": wanted.tables}


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
