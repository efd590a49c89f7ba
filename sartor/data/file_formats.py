"""Readers of the formats in which the known data sets come: idx, CIFAR's binary records, npz. None needs pickle."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import struct
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ..errors import SartorError, need

PACKED = 100  # times its own size that a packed file may have unpacked,
SMALL = 256 << 20  # or so many bytes
GZIP = b"\x1f\x8b"
# What the libraries raise for a damaged file; RuntimeError is for a flag that says "encrypted", or an unknown method.
DAMAGED = (
    *(OSError, EOFError, ValueError, KeyError, IndexError, TypeError, SyntaxError, OverflowError, RuntimeError),
    *(zlib.error, zipfile.BadZipFile, tarfile.TarError, struct.error, tokenize.TokenError),
)


def first_line(error: BaseException) -> str:
    """What an exception says, as one line."""
    return " ".join(str(error).split("\n")[0].split()) or type(error).__name__


def _damaged(path: Path, error: BaseException) -> SartorError:
    return SartorError(f"{path} is truncated or damaged ({first_line(error)}); delete it and load again.")


def check_unpacked(path: Path, packed: int, size: int) -> None:
    """Refuse a file whose packed bytes take far more room than they should: a few can stand for terabytes."""
    need(
        size <= max(SMALL, PACKED * packed),
        f"{path.name}: {packed:,} bytes unpack to {size:,}, over {PACKED} times as many: it is damaged, or made to "
        "fill the memory. If it is right, unpack it and give the .csv, or save it anew with np.savez.",
    )


def chunks(path: Path, content: bool) -> Iterator[bytes]:
    """The bytes of a file in pieces; with `content`, those inside the gzip wrapper if there is one."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP
    with gzip.open(path, "rb") if content and packed else path.open("rb") as file:
        while piece := file.read(1 << 20):
            yield piece


def check_digest(path: Path, digest: str, content: bool = True) -> None:
    """Refuse a file whose md5 or sha256 (told apart by length) is not `digest`.

    With `content` the digest is that of the uncompressed content: those who hand a file on often pack it anew.
    """
    kind = "md5" if len(digest) == 32 else "sha256"
    state = hashlib.new(kind, usedforsecurity=False)  # it guards against damage; the digests are the published ones
    try:
        for piece in chunks(path, content):
            state.update(piece)
    except DAMAGED as error:
        raise _damaged(path, error) from None
    if state.hexdigest() != digest:
        raise SartorError(
            f"{path} is not the published file: {kind} {digest} expected, {state.hexdigest()} got; "
            "delete it and load again."
        )


def read_idx(path: Path) -> np.ndarray:
    """The unsigned bytes in an idx file (.gz or plain): 0 0 8 ndim, the sizes as big-endian int32, the bytes."""
    try:
        data = b"".join(chunks(path, content=True))
    except DAMAGED as error:
        raise _damaged(path, error) from None
    good = len(data) >= 4 and data[:3] == b"\0\0\x08"
    need(good, f"{path} is not an idx file of unsigned bytes (it must begin with 00 00 08); delete it and load again.")
    start = 4 + 4 * data[3]
    shape = tuple(int(size) for size in np.frombuffer(data[4:start].ljust(4 * data[3], b"\0"), dtype=">i4"))
    expected = start + int(np.prod(shape))
    need(
        len(data) == expected,
        f"{path} is truncated or damaged: {expected} bytes expected for shape {shape}, {len(data)} got; "
        "delete it and load again.",
    )
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


def read_npz(path: Path, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an npz file (all, or those called `names`)."""
    try:
        with path.open("rb") as raw:  # opened here because np.load leaves a damaged file open
            _check_npz(path)
            file = np.load(raw, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise SartorError(f"{path} holds a single array; an .npz file with named arrays (x, y) is wanted.")
            return {name: file[name] for name in (file.files if names is None else names)}
    except SartorError:
        raise
    except KeyError as error:
        raise SartorError(f"{path} lacks an array: {first_line(error)}.") from None
    except DAMAGED as error:
        if "allow_pickle" in str(error):
            raise SartorError(
                f"{path} holds Python objects (pickle), which are not read because they can run code; "
                "save plain numbers or text (a column of text as dtype str, not object)."
            ) from None
        raise SartorError(f"{path} is truncated or not an .npz file ({first_line(error)}).") from None


def _check_npz(path: Path) -> None:
    """Refuse arrays that are larger than the file can hold, before there is memory for them."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as file:
        check_unpacked(path, path.stat().st_size, sum(entry.file_size for entry in file.infolist()))
        for entry in file.infolist():
            with file.open(entry) as array:
                if not entry.filename.endswith(".npy"):
                    continue
                major = np.lib.format.read_magic(array)[0]
                head = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
                shape, _, dtype = head(array)
                size = math.prod(shape) * dtype.itemsize
                need(dtype.hasobject or size <= entry.file_size, f"{path} is damaged: {entry.filename} is cut off.")


def read_har(path: Path) -> dict[str, np.ndarray]:
    """x [n, 9, 128], y 0..5 and subject of UCI's HAR archive, training and test people together; its outer archive may
    hold another one. Numbers are rounded to half precision."""
    try:
        with zipfile.ZipFile(path) as outer:
            inside = next((e for e in outer.infolist() if e.filename.endswith("HAR Dataset.zip")), None)
            if inside is None:
                return _har(path, outer)
            check_unpacked(path, path.stat().st_size, inside.file_size)
            with outer.open(inside) as packed, zipfile.ZipFile(io.BytesIO(packed.read())) as inner:
                return _har(path, inner)
    except SartorError:
        raise
    except DAMAGED as error:
        raise _damaged(path, error) from None


def _har(path: Path, archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    check_unpacked(path, path.stat().st_size, sum(entry.file_size for entry in archive.infolist()))
    top = next(name for name in archive.namelist() if name.endswith("train/y_train.txt")).removesuffix(
        "train/y_train.txt"
    )

    def table(part: str, name: str) -> np.ndarray:
        with archive.open(f"{top}{part}/{name}_{part}.txt") as file:
            return np.loadtxt(file, dtype=np.float32, ndmin=2)

    signals = [f"Inertial Signals/{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"]
    x = [np.stack([table(part, name) for name in signals], axis=1) for part in ("train", "test")]
    y, subject = (np.concatenate([table(part, name)[:, 0] for part in ("train", "test")]) for name in ("y", "subject"))
    return {"x": np.concatenate(x).astype(np.float16), "y": y.astype(np.int64) - 1, "subject": subject.astype(np.int64)}


def _records(path: Path, data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 3, 32, 32] and labels [n] of CIFAR-10's records: a label byte, then 1024 each of red, green, blue."""
    good = len(data) > 0 and len(data) % 3073 == 0
    need(good, f"{path} is truncated or damaged: CIFAR-10 records have 3073 bytes, got {len(data)} bytes.")
    table = np.frombuffer(data, dtype=np.uint8).reshape(-1, 3073)
    return table[:, 1:].reshape(-1, 3, 32, 32), table[:, 0].astype(np.int64)


def read_cifar(paths: Sequence[Path]) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR-10 from its binary batches, or from the one tar file that holds them (nothing is unpacked to disk)."""
    read = []
    try:
        if paths[0].name.endswith(".tar.gz"):
            with tarfile.open(paths[0], "r:gz") as tar:
                for member in sorted(tar.getmembers(), key=lambda m: m.name):
                    file = tar.extractfile(member) if member.name.endswith(".bin") else None
                    if file is not None:
                        read.append(_records(paths[0], file.read()))
        else:
            read = [_records(path, path.read_bytes()) for path in paths]
    except SartorError:
        raise
    except DAMAGED as error:
        raise _damaged(paths[0], error) from None
    need(len(read) > 0, f"{paths[0]} holds no .bin files; cifar-10-binary.tar.gz is wanted.")
    x, y = (np.concatenate(arrays) for arrays in zip(*read, strict=True))
    return x, y
