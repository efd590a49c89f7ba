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
    names = loop.__globals__ | {"soon": _soon()} if calls else loop.__globals__
    for f in calls:
        assert isinstance(f, FunctionType)
        names[f.__name__] = numba.njit(**options)(FunctionType(f.__code__, names, f.__name__))
    outer = FunctionType(loop.__code__, names, loop.__name__) if calls else loop
    try:
        made: Callable[..., None] = numba.njit(cache=True, **options)(outer)
    except RuntimeError:  # nowhere to keep what was compiled
        made = numba.njit(**options)(outer)
    return made


def soon(X: Any, i: int, j: int) -> None:
    """X[i, j] will be wanted soon: in a compiled loop a hint to the processor, which brings it nearer meanwhile."""


@lru_cache
def _soon() -> Any:
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    def hint(_: Any, X: Any, i: Any, j: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array, number, byte = context.make_array(X)(context, builder, arguments[0]), ir.IntType(32), ir.IntType(8)
            at = cgutils.get_item_pointer(context, builder, X, array, arguments[1:], wraparound=False)
            shape = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), number, number, number])
            prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte.as_pointer()], shape)
            to_read, second_level, data = number(0), number(2), number(1)
            builder.call(prefetch, [builder.bitcast(at, byte.as_pointer()), to_read, second_level, data])
            return context.get_dummy_value()

        return types.void(X, types.intp, types.intp), emit

    return intrinsic(hint)
