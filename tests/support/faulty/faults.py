"""One client that raises, or is slow, in one round, wherever it is computed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VARIABLE, MARKS = "SARTOR_TEST_FAULT", "SARTOR_TEST_MARKS"
ANYBODY = -1


@dataclass(frozen=True)
class Fault:
    """In round `round` (the first is 0) the client raises; with `seconds` it takes so much longer instead.

    Where the environment names a folder for marks, a file there has the number of the process in which it happens.
    """

    client: int
    round: int
    seconds: float | None = None

    def environment(self) -> dict[str, str]:
        """For a process that is to have it: Python reads sitecustomize.py of this folder before anything else."""
        path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
        return {VARIABLE: f"{self.client} {self.round} {self.seconds or ''}", "PYTHONPATH": path}

    @classmethod
    def of(cls, text: str) -> Fault:
        client, round, *seconds = text.split()
        return cls(int(client), int(round), float(seconds[0]) if seconds else None)


@contextmanager
def installed(fault: Fault) -> Iterator[None]:
    """Within, and in this process, the client has the fault."""
    from sartor.engines.local import LocalEngine

    stage_of = LocalEngine._stage

    def faulty(self: LocalEngine, stage: Any, round: int, ids: Any, *rest: Any) -> Any:
        if stage == "train" and round == fault.round and fault.client in (ANYBODY, *ids.tolist()):
            if MARKS in os.environ:
                Path(os.environ[MARKS], str(os.getpid())).touch()
            if fault.seconds is None:
                raise RuntimeError(f"the fault of client {fault.client}")
            time.sleep(fault.seconds)
        return stage_of(self, stage, round, ids, *rest)

    LocalEngine._stage = faulty  # type: ignore[method-assign]
    try:
        yield
    finally:
        LocalEngine._stage = stage_of  # type: ignore[method-assign]
