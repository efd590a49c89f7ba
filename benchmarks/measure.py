"""How everything here is measured: programs take turns in one process or run, and medians are compared.

Absolute times say little on a machine that others use too; the ratio of medians of interleaved repeats says more.
"""

from __future__ import annotations

import json
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

AT_LEAST, AT_MOST = ">=", "<="
_QUIET = 0.05  # seconds after which threads of the program before no longer spin, waiting for more of its work


def seconds(program: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    program()
    return time.perf_counter() - began


def processor_seconds(program: Callable[[], object]) -> float:
    """How long one call keeps this process's cores busy: others on the machine matter little."""
    began = time.process_time()
    program()
    return time.process_time() - began


def take_turns(programs: Mapping[str, Callable[[], object]], repeats: int, warm_up: int = 1) -> dict[str, float]:
    """The median time of each program over `repeats` calls: A, B, A, B, ...; the first `warm_up` turns do not count.

    PyTorch's threads go on spinning for some milliseconds after an operation. Unless all wait a little before each
    turn, a short program pays for the threads of the one before.
    """
    times: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(warm_up + repeats):
        for name, program in programs.items():
            time.sleep(_QUIET)
            spent = seconds(program)
            if turn >= warm_up:
                times[name].append(spent)
    return {name: statistics.median(spent) for name, spent in times.items()}


def difference(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> float:
    """The largest absolute difference between tensors of the same name."""
    if ours.keys() != theirs.keys():
        raise ValueError(f"nothing to compare: {sorted(ours)} against {sorted(theirs)}.")
    return max(float((ours[k].double() - theirs[k].double()).abs().max()) for k in ours)


def peak_mebibytes() -> float:
    """The largest resident memory that this process has had (ru_maxrss would begin with its parent's)."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / (1 << 10)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)  # bytes on macOS


def emit(part: str, case: str, **facts: object) -> None:
    """One result as a line of JSON. Known facts: see table.py."""
    print(json.dumps({"part": part, "case": case, **facts}), flush=True)


def emit_pair(
    part: str,
    case: str,
    ours: float,
    theirs: float,
    *,
    target: float | None = None,
    difference: float | None = None,
    tolerance: float | None = None,
    **facts: object,
) -> None:
    """A pair of programs: how many times as long theirs takes, and whether both reach the same numbers."""
    same = None if difference is None or tolerance is None else difference <= tolerance
    emit(
        part,
        case,
        ours=ours,
        theirs=theirs,
        ratio=theirs / ours,
        target=target,
        sense=AT_LEAST,
        difference=difference,
        same=same,
        **facts,
    )


class Threads:
    """For as long as it lasts, PyTorch computes with so many threads."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __enter__(self) -> None:
        self.before = torch.get_num_threads()
        torch.set_num_threads(self.count)

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self.before)
