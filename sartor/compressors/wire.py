"""The wire: a frame around each encoded vector, whole numbers in as few bits as they need. Little-endian, no pickle.

    frame = "SZ" | version u8 | kind u8 (+128: float64) | size u32 | payload bytes u32 | CRC-32 u32 | payload

`size` is how many numbers the vector has, the checksum is over everything else. Who reads a frame says how many numbers
it expects, so nothing is ever allocated that a sender alone has declared. What is read is checked; all that can be
wrong is one line.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from ..errors import SartorError, need

MAGIC, VERSION = b"SZ", 1
_HEADER = struct.Struct("<2sBBIII")
HEADER = _HEADER.size
_DOUBLE = 128
_MOST = 2**32 - 1


class Frame(NamedTuple):
    """What is inside a frame: which kind of code, of how many numbers, in which precision."""

    kind: int
    size: int
    dtype: torch.dtype
    payload: bytes


def damaged(what: str) -> SartorError:
    """An encoded message that cannot be read."""
    return SartorError(f"the encoded message is damaged: {what}. Have it sent again.")


def sound(condition: bool, what: str) -> None:
    """Refuse an encoded message unless `condition` holds."""
    if not condition:
        raise damaged(what)


def framed(frame: Frame) -> bytes:
    """The bytes of a frame."""
    for what, count in (("numbers", frame.size), ("bytes", len(frame.payload))):
        need(count <= _MOST, f"a frame holds at most {_MOST} {what}; got {count}. Send the vector in parts.")
    kind = frame.kind + (_DOUBLE if frame.dtype == torch.float64 else 0)
    head = _HEADER.pack(MAGIC, VERSION, kind, frame.size, len(frame.payload), 0)
    check = zlib.crc32(frame.payload, zlib.crc32(head))
    return head[:-4] + struct.pack("<I", check) + frame.payload


def unframed(data: bytes, size: int) -> Frame:
    """The one frame in `data`, which must be of a vector of `size` numbers."""
    sound(len(data) >= HEADER, f"{len(data)} bytes are no frame, which begins with {HEADER}")
    magic, version, kind, declared, length, check = _HEADER.unpack_from(data)
    sound(magic == MAGIC, f"it begins with {bytes(magic)!r} and not with {MAGIC!r}")
    sound(version == VERSION, f"it is of version {version}, and version {VERSION} is known")
    sound(declared == size, f"it is of a vector of {declared} numbers, and {size} are expected")
    sound(length == len(data) - HEADER, f"it declares {length} bytes, and {len(data) - HEADER} came")
    payload = bytes(data[HEADER:])
    right = zlib.crc32(payload, zlib.crc32(bytes(data[: HEADER - 4]) + bytes(4)))
    sound(check == right, "its checksum is wrong")
    return Frame(kind % _DOUBLE, size, torch.float64 if kind & _DOUBLE else torch.float32, payload)


def frames(data: bytes) -> Iterator[bytes]:
    """The frames that stand one after another in `data`, each to be read by `unframed`."""
    at = 0
    while left := len(data) - at:
        sound(left >= HEADER, f"{left} bytes are no frame, which begins with {HEADER}")
        end = HEADER + _HEADER.unpack_from(data, at)[4]
        sound(end <= left, f"a frame declares {end} bytes, and {left} came")
        yield data[at : at + end]
        at += end


def numbers(values: torch.Tensor) -> bytes:
    """Floating-point numbers as they are."""
    kind = {2: "<f2", 4: "<f4", 8: "<f8"}[values.element_size()]
    return values.detach().cpu().numpy().astype(kind).tobytes()


def read_numbers(payload: bytes, dtype: torch.dtype) -> torch.Tensor:
    """What `numbers` wrote; refuses NaN and Inf."""
    kind = {torch.float16: "<f2", torch.float32: "<f4", torch.float64: "<f8"}[dtype]
    sound(len(payload) % dtype.itemsize == 0, f"{len(payload)} bytes are no numbers of {dtype.itemsize} bytes")
    values = np.frombuffer(payload, dtype=kind)
    sound(bool(np.isfinite(values).all()), "it holds NaN or Inf")
    return torch.from_numpy(values.astype(values.dtype.newbyteorder("=")))


def bits_for(count: int) -> int:
    """How many bits tell `count` things apart."""
    return max(0, count - 1).bit_length()


def packed_length(count: int, bits: int) -> int:
    """The bytes of `count` numbers of so many bits each."""
    return -(-count * bits // 8)


def packed(values: np.ndarray, bits: int) -> bytes:
    """Whole numbers below 2^bits, one after another without a gap, lowest bit first."""
    planes, whole = np.empty((len(values), bits), dtype=np.uint8), values.astype(np.int64)
    for bit in range(bits):
        planes[:, bit] = (whole >> bit) & 1
    return np.packbits(planes.reshape(-1), bitorder="little").tobytes()


def unpacked(payload: bytes, count: int, bits: int) -> np.ndarray:
    """What `packed` wrote; the bits that fill the last byte must be 0."""
    wanted = packed_length(count, bits)
    sound(len(payload) == wanted, f"{count} numbers of {bits} bits take {wanted} bytes, and {len(payload)} came")
    planes = np.unpackbits(np.frombuffer(payload, dtype=np.uint8), bitorder="little")
    sound(not planes[count * bits :].any(), "bits beyond its end are set")
    values = np.zeros(count, dtype=np.int64)
    for bit in range(bits):
        values |= planes[bit : count * bits : bits].astype(np.int64) << bit
    return values
