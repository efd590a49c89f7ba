"""A process that dies at one of its durable writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock


class Killed(BaseException):
    """The process is gone."""


@contextmanager
def killed_at(count: int, when: str) -> Iterator[list[str]]:
    """Die at the count-th durable write, just before or just after the file has its name."""
    replace_, done = os.replace, []

    def replacing(a: Any, b: Any) -> None:
        done.append(str(b))
        if len(done) == count + 1 and when == "before":
            raise Killed
        replace_(a, b)
        if len(done) == count + 1:
            raise Killed

    with mock.patch.object(os, "replace", replacing):
        yield done


class Mortal:
    """A site that is a new process for every request, so that nothing is in memory, and dies once: at the count-th of
    its writes."""

    def __init__(self, answer: Callable[[bytes], bytes], count: int, when: str) -> None:
        self.answer, self.left, self.when, self.deaths = answer, count, when, 0

    def __call__(self, data: bytes) -> bytes | None:
        done: list[str] = []
        try:
            with killed_at(self.left, self.when) as done:
                return self.answer(data)
        except Killed:
            self.deaths, self.left = self.deaths + 1, 10**9
            return None
        finally:
            self.left -= len(done)
