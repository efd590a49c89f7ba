"""Processes of their own that are there at once: they are forked from one that has imported Sartor and done nothing."""

from __future__ import annotations

import functools
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any
from unittest import mock

import waiting

HEAVY = ["torch", "sartor.cli", "sartor.run.play", "sartor.study.compare", "sartor.report", "sartor.federation.site"]


@functools.cache
def _context() -> ForkServerContext:
    from multiprocessing.forkserver import ensure_running

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(HEAVY)
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), OMP_NUM_THREADS="1"):
        ensure_running()
    return context


def start(function: Callable[..., None], *arguments: Any) -> ForkServerProcess:
    """A process that calls a function of a module."""
    process = _context().Process(target=function, args=arguments)
    process.start()
    return process


def run(lines: str) -> subprocess.CompletedProcess[str]:
    """Python lines to their end."""
    with tempfile.TemporaryDirectory() as folder:
        said = [Path(folder, name) for name in ("out", "err")]
        process = start(_run, lines, said, dict(os.environ))
        assert process.pid is not None
        pid = process.pid
        waiting.until(lambda: not process.is_alive(), lambda: [pid], lambda: "".join(p.read_text() for p in said))
        process.join()
        return subprocess.CompletedProcess(lines, process.exitcode or 0, *(p.read_text() for p in said))


def _run(lines: str, said: list[Path], environment: dict[str, str]) -> None:
    for number, path in enumerate(said, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    exec(lines, {"__name__": "__main__"})
