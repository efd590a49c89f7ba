"""A process that dies at one of its durable writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
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
