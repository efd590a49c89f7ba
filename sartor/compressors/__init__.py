"""Compressors: messages in fewer bytes. One idea a file; `encode` writes what a client sends, `decode` reads it.

How a method's messages are compressed, and in which direction, is wrappers/compression.py.

    >>> less = st.Traffic(compress=st.compressors.TopK(k=0.05))
    >>> result = st.fit(st.Ditto(), model, clients, rounds=2, traffic=less)
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..core import State
from .base import Code, Compressor, Draws, Raw
from .common_grid import CommonGrid, Multiples
from .dgc import DGC
from .lbgm import LBGM, Recycled
from .projection import RandomProjection, Shadow
from .qsgd import QSGD, Levels
from .rounding import Float16, Grid4, Grid8, Halves, Int4, Int8
from .sketch import Sketch, SketchCode
from .top_k import Sparse, TopK
from .wire import HEADER, damaged, framed, frames, sound, unframed

NAMES: dict[str, type[Compressor]] = {
    "projection": RandomProjection,
    "sketch": Sketch,
    "qsgd": QSGD,
    "top-k": TopK,
    "dgc": DGC,
    "lbgm": LBGM,
    "int8": Int8,
    "int4": Int4,
    "float16": Float16,
    "grid": CommonGrid,
}
_KINDS: dict[int, type[Code]] = {
    code.kind: code for code in (Raw, Halves, Grid8, Grid4, Sparse, Levels, SketchCode, Shadow, Recycled, Multiples)
}


def encode(code: Code, row: int) -> bytes:
    """The bytes of one client's message."""
    return framed(code.frame(row))


def decode(data: bytes, size: int, last: Tensor | None = None) -> Tensor:
    """The vector [size] that `data` encodes. `last` is the last vector that this client sent whole (LBGM).

    Anything else than a sound message of that many numbers is refused with one line.
    """
    frame = unframed(data, size)
    if frame.kind not in _KINDS:
        raise damaged(f"there is no code of kind {frame.kind}")
    vector = _KINDS[frame.kind].read(frame, last).value()[0]
    sound(bool(torch.isfinite(vector).all()), "it holds NaN or Inf")
    return vector


def received(C: Compressor, data: bytes, size: int, memory: State) -> tuple[Tensor, State]:
    """What a receiver makes of one client's message [1, size], and what it remembers now: where messages may refer to
    the last whole one (LBGM), that one."""
    if not C.refers:
        return decode(data, size)[None], memory
    value = decode(data, size, memory["l"][0])[None]
    return value, {"l": value} if unframed(data, size).kind == Raw.kind else memory


def lengths(code: Code) -> Tensor:
    """[c] bytes of every client's message on the wire."""
    return (code.lengths() + HEADER).to(torch.float64)


__all__ = [
    "DGC",
    "HEADER",
    "LBGM",
    "NAMES",
    "QSGD",
    "Code",
    "CommonGrid",
    "Compressor",
    "Draws",
    "Float16",
    "Int4",
    "Int8",
    "RandomProjection",
    "Raw",
    "Sketch",
    "TopK",
    "decode",
    "encode",
    "frames",
    "lengths",
    "received",
]
