"""The wire format: a short JSON header and plain arrays. What is read is checked before anything large is made of it.

    "SARTOR1\\n"   length of the header (4 bytes)   header (JSON)   the arrays' bytes, one after the other

The header says what the message is (kind, run, agreement, round, clients) and name, type and shape of each array. The
arrays must fill the rest exactly, so a declared size is never believed: it is compared with the bytes that are there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import __version__
from ...core import State
from ...errors import SartorError

MAGIC = b"SARTOR1\n"
_HEADER = 1 << 24  # bytes of a header: ids of a million clients
_KINDS = (
    *(
        "hello",
        "joined",
        "measure",
        "measured",
        "welcome",
        "ready",
        "done",
        "noted",
    ),  # before the first round, and after the last
    *("train", "unmask", "evaluate", "personal", "answer", "refused"),
    *("training", "diagnose", "states"),  # in a simulation, where everything may come back
)
_TYPES = {
    t.name: t
    for t in map(np.dtype, ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"))
}
_MOST = 1 << 31  # rounds, client numbers
_CLIENT = 32  # bytes of a client in a header: its number, and a round
_PLAIN = 1 << 16  # bytes of a header besides
JOINING = 1 << 24  # bytes of a message before the first round: columns, texts, numbers of samples, statistics
Spec = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]  # name → type and shape of one client's row


class Damaged(SartorError):
    """A message that cannot be used; the text says why, and never what was in it."""


@dataclass(frozen=True)
class Message:
    """What travels. Arrays have a row for each client, or one row that is common to all."""

    kind: str
    run: str = ""
    agreement: str = ""
    round: int = 0
    clients: tuple[int, ...] = ()
    since: tuple[int, ...] = ()  # for each client the round after which the server last heard it; −1: never
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    note: dict[str, Any] = field(default_factory=dict)


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    arrays = {k: np.asarray(v, order="C") for k, v in message.arrays.items()}
    header = {
        "kind": message.kind,
        "run": message.run,
        "agreement": message.agreement,
        "round": message.round,
        "clients": list(message.clients),
        "since": list(message.since),
        "arrays": [[k, v.dtype.name, list(v.shape)] for k, v in arrays.items()],
        "note": message.note,
    }
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    little = [np.ascontiguousarray(v, v.dtype.newbyteorder("<")).data for v in arrays.values()]  # copied once, by join
    return b"".join([MAGIC, len(text).to_bytes(4, "little"), text, *little])


def decode(data: bytes, most: int | None = None) -> Message:
    """The message in `data`; Damaged where it is none, or has more than `most` bytes. The arrays are views of `data`:
    nothing is copied yet."""
    head = len(MAGIC) + 4
    if most is not None and len(data) > most:
        raise Damaged("larger than anything that was agreed on")
    if isinstance(data, bytes) and data[:6] == MAGIC[:6] and data[: len(MAGIC)] != MAGIC:
        raise Damaged(f"in another wire format than Sartor {__version__} has; install the same version at both")
    if not isinstance(data, bytes) or len(data) < head or data[: len(MAGIC)] != MAGIC:
        raise Damaged("not a message of this version")
    length = int.from_bytes(data[len(MAGIC) : head], "little")
    if length > min(_HEADER, len(data) - head):
        raise Damaged("truncated header")
    try:
        header = json.loads(data[head : head + length], parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as e:
        raise Damaged("the header is not JSON") from e
    if not isinstance(header, dict) or header.keys() != _FIELDS:
        raise Damaged("the header has other fields")
    note = header["note"]
    if header["kind"] not in _KINDS or not isinstance(note, dict):
        raise Damaged("unknown kind")
    if not all(isinstance(header[k], str) and len(header[k]) <= 64 for k in ("run", "agreement")):
        raise Damaged("run or agreement is no name")
    clients, since = _numbers(header["clients"], 0), _numbers(header["since"], -1)
    if sorted(set(clients)) != list(clients):
        raise Damaged("clients are not in rising order")
    (number,) = _numbers([header["round"]], 0)
    arrays = _arrays(header["arrays"], data, head + length)
    return Message(header["kind"], header["run"], header["agreement"], number, clients, since, arrays, note)


_FIELDS = {"kind", "run", "agreement", "round", "clients", "since", "arrays", "note"}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} in the header")


def _numbers(found: Any, low: int) -> tuple[int, ...]:
    if not isinstance(found, list) or not all(type(v) is int and low <= v < _MOST for v in found):
        raise Damaged("a number is out of range")
    return tuple(found)


def _arrays(found: Any, data: bytes, at: int) -> dict[str, np.ndarray]:
    if not isinstance(found, list):
        raise Damaged("the arrays are not listed")
    arrays: dict[str, np.ndarray] = {}
    for entry in found:
        if not isinstance(entry, list) or len(entry) != 3:
            raise Damaged("an array is not described")
        name, kind, shape = entry
        if not isinstance(name, str) or len(name) > 200 or name in arrays:
            raise Damaged("an array has no name of its own")
        if not isinstance(kind, str) or kind not in _TYPES:
            raise Damaged("an array has another type")
        if len(_numbers(shape, 0)) > 8:
            raise Damaged("an array has too many axes")
        dtype, count = _TYPES[kind], math.prod(shape)  # Python's whole numbers do not overflow
        if at + count * dtype.itemsize > len(data):
            raise Damaged("an array is declared larger than the message")
        view = np.frombuffer(data, np.uint8 if kind == "bool" else dtype.newbyteorder("<"), count, at)
        if kind == "bool":
            if count and view.max() > 1:
                raise Damaged("a truth value is neither 0 nor 1")
            view = view.view(bool)
        arrays[name] = view.reshape(shape)
        at += count * dtype.itemsize
    if at != len(data):
        raise Damaged("there are more bytes than the arrays need")
    return arrays


def size_of(spec: Spec, rows: int) -> int:
    """The most bytes that a message about so many clients may have: its arrays, and a header that names them."""
    row = sum(dtype.itemsize * math.prod(shape) for dtype, shape in spec.values())
    return rows * (row + _CLIENT) + _PLAIN


def packed(tensors: State) -> dict[str, np.ndarray]:
    """Rows to send: of one that is common to all clients (an expanded view) only one."""
    out = {}
    for k, v in tensors.items():
        common = len(v) > 1 and v.stride(0) == 0
        out[k] = (v[:1] if common else v).detach().cpu().contiguous().numpy()
    return out


def unpacked(arrays: Mapping[str, np.ndarray], rows: int, spec: Spec, numbers: bool = False) -> State:
    """Received arrays as tensors [rows, ...], after a check against what was agreed: names, types, shapes, and that
    they can be computed with.

    With `numbers` they are scores, where NaN says that a client has no such samples. Damaged otherwise.
    """
    if arrays.keys() != spec.keys():
        raise Damaged("other arrays than agreed")
    out: State = {}
    for k, (dtype, shape) in spec.items():
        found = arrays[k]
        if str(found.dtype) != str(dtype).removeprefix("torch."):
            raise Damaged(f"{k} has another type than agreed")
        if found.shape not in ((rows, *shape), (1, *shape)):
            raise Damaged(f"{k} has another shape than agreed")
        if found.dtype.kind == "f":
            with np.errstate(all="ignore"):
                good = np.isnan(found) | (np.abs(found) <= 1e100) if numbers else np.isfinite(found)
            if not good.all():
                raise Damaged(f"{k} holds NaN or Inf")
        value = _own(found)
        out[k] = value if len(value) == rows else value.expand(rows, *shape)
    return out


def _own(array: np.ndarray) -> Tensor:
    """A copy in memory of PyTorch's own, which begins where vector instructions like it: NumPy's begins anywhere, and a
    product's last bit must not depend on an address."""
    kind = torch.from_numpy(np.empty(0, dtype=array.dtype.newbyteorder("="))).dtype
    found = torch.empty(array.shape, dtype=kind)
    np.copyto(found.numpy(), array)
    return found


def plain(arrays: Mapping[str, np.ndarray], rows: int) -> State:
    """Received arrays as tensors [rows, ...] as they are: in a simulation also NaN, which an attacker may send."""
    found = {k: _own(v) for k, v in arrays.items()}
    return {k: v if len(v) == rows else v.expand(rows, *v.shape[1:]) for k, v in found.items()}


def spec_of(tensors: State) -> Spec:
    """What messages like these look like."""
    return {k: (v.dtype, tuple(v.shape[1:])) for k, v in tensors.items()}
