"""Loops compiled by Numba where it is installed (the extra `fast`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from types import FunctionType
from typing import Any


@lru_cache
def available() -> bool:
    """Whether Numba is installed; asked at every solve, looked up once."""
    return find_spec("numba") is not None


@lru_cache
def compiled(
    loop: Callable[..., None], fast_math: frozenset[str] = frozenset(), calls: tuple[Callable[..., None], ...] = ()
) -> Callable[..., None]:
    """The loop, and the functions of its module that it and they call, as machine code, kept on disk where there is a
    place for it. Other threads may run beside it."""
    assert isinstance(loop, FunctionType)
    import numba

    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": set(fast_math)}
    names = dict(loop.__globals__) if calls else loop.__globals__
    for f in calls:
        assert isinstance(f, FunctionType)
        names[f.__name__] = numba.njit(**options)(FunctionType(f.__code__, names, f.__name__))
    outer = FunctionType(loop.__code__, names, loop.__name__) if calls else loop
    try:
        made: Callable[..., None] = numba.njit(cache=True, **options)(outer)
    except RuntimeError:  # nowhere to keep what was compiled
        made = numba.njit(**options)(outer)
    return made
