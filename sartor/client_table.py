"""Rows: a table with one row per client, of which a round touches few; in memory, or on disk where it is larger.

Used purely: `rows[ids]` reads, `rows.replaced(ids, values)` is a new table and the old one stays as it was. What was
replaced waits in memory until `settle` writes it to the base. A base on disk is a plain .npy file that is settled only
after a checkpoint holds the same rows, so a crash at any moment loses nothing: the checkpoint's rows are written again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from .core import State
from .errors import SartorError, reason

Empty = Callable[..., Tensor]  # (shape, dtype=..., device=...) → a tensor
Blocks = tuple[tuple[Tensor, Tensor], ...]


class Base(Protocol):
    """Where settled rows are."""

    def read(self, ids: Tensor) -> Tensor: ...

    def write(self, ids: Tensor, values: Tensor) -> None: ...


class Memory:
    """All rows in one tensor, which takes no memory before the first is written."""

    def __init__(self, count: int, start: Tensor, empty: Empty) -> None:
        self.rows = start.expand(count, *start.shape)
        self.fresh, self.empty = True, empty

    def read(self, ids: Tensor) -> Tensor:
        return self.rows[span(ids)]

    def write(self, ids: Tensor, values: Tensor) -> None:
        self.lay_out()
        self.rows[span(ids)] = values

    def move(self, rows: Tensor) -> None:
        """Be in this tensor from now on."""
        self.rows, self.fresh = rows.copy_(self.rows), False

    def lay_out(self) -> None:
        """Take the memory. To be called before several threads write their rows."""
        if self.fresh:
            rows = self.empty(self.rows.shape, dtype=self.rows.dtype, device=self.rows.device)
            self.rows, self.fresh = rows.copy_(self.rows), False


def span(ids: Tensor) -> slice | Tensor:
    """Neighbouring clients as a slice, which needs no copy."""
    at = ids.numpy()
    n = len(at)
    together = n > 0 and int(at[-1] - at[0]) == n - 1 and bool((at[1:] - at[:-1] == 1).all())
    return slice(int(at[0]), int(at[-1]) + 1) if together else ids


def rows_of(tensors: State, here: Tensor) -> State:
    """The rows `here` of each; a row that is common to all (an expanded view, or the only one) stays one row."""
    return {k: row_of(v, here) for k, v in tensors.items()}


def row_of(value: Tensor, here: Tensor) -> Tensor:
    """The rows `here` of one."""
    if len(value) == 1 or value.stride(0) == 0:
        return value[:1].expand(len(here), *value.shape[1:])
    return value[span(here)]


class Disk:
    """Rows in .npy files, sparse until written; a row that was never written is the start.

    They are read through a memory map but written as a file is: on a full disk a write says so, a map would crash.
    """

    def __init__(self, count: int, start: Tensor, folder: Path, name: str) -> None:
        self.start, self.folder = start, folder
        with self._telling():
            folder.mkdir(parents=True, exist_ok=True)
            self.rows = _mapped(folder / f"{name}.npy", (count, *start.shape), start.numpy().dtype)
            self.known = _mapped(folder / f"{name}.known.npy", (count,), np.dtype(bool))
            self.files = folder / f"{name}.npy", folder / f"{name}.known.npy"

    def read(self, ids: Tensor) -> Tensor:
        at = ids.numpy()
        known = np.flatnonzero(self.known[at])
        out = self.start.expand(len(at), *self.start.shape).clone()
        out[torch.from_numpy(known)] = torch.from_numpy(self.rows[at[known]])  # holes of the file are not touched
        return out

    def write(self, ids: Tensor, values: Tensor) -> None:
        size = self.start.numel() * self.start.element_size()
        with self._telling(), _opened(self.files[0]) as rows, _opened(self.files[1]) as known:
            for i, row in zip(ids.tolist(), values.contiguous().numpy(), strict=True):
                _write(rows, row.tobytes(), self.rows.offset + i * size)
            for i in ids.tolist():
                _write(known, b"\x01", self.known.offset + i)

    def flush(self) -> None:
        """See to it that what was written is on the disk, before the checkpoint that holds it is replaced."""
        with self._telling():
            for path in self.files:
                with _opened(path) as file:
                    os.fsync(file)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as e:
            raise SartorError(
                f"cannot keep the clients' states in {self.folder}: {reason(e)}. What the last checkpoint holds is "
                "unharmed; free some space and go on with --resume, or use --store memory."
            ) from e


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_WRONLY)
    try:
        yield file
    finally:
        os.close(file)


def _write(file: int, data: bytes, at: int) -> None:
    """All of the data; a disk that takes only a part of it is full."""
    if os.pwrite(file, data, at) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _mapped(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> np.memmap:
    if path.exists():
        held = np.lib.format.open_memmap(path, mode="r+")
        if held.shape != shape or held.dtype != dtype:
            raise ValueError(f"{path.name} holds {held.shape} {held.dtype}, not {shape} {dtype}")
        return held
    return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)


class Rows:
    """One row per client. Without a base, every row is the start until it is replaced."""

    def __init__(self, count: int, start: Tensor, base: Base | None = None, waiting: Blocks = ()) -> None:
        self.count, self.start, self.base, self.waiting = count, start, base, waiting

    def __len__(self) -> int:
        return self.count

    def at(self, folder: Path | None, name: str, empty: Empty = torch.empty) -> Rows:
        """The same rows with a base: in memory that `empty` gives, or in files of `folder`."""
        base = Memory(self.count, self.start, empty) if folder is None else Disk(self.count, self.start, folder, name)
        return Rows(self.count, self.start, base, self.waiting)

    def __getitem__(self, ids: Tensor) -> Tensor:
        """[c, ...] the rows of the clients `ids`, to be read at once and not changed: it may be a view of the base."""
        out = self.start.expand(len(ids), *self.start.shape) if self.base is None else self.base.read(ids)
        out = out.clone() if self.waiting else out
        for theirs, values in self.waiting:
            _, here, there = np.intersect1d(ids.numpy(), theirs.numpy(), return_indices=True)
            out[torch.from_numpy(here)] = values[torch.from_numpy(there)]
        return out

    def whole(self) -> Tensor:
        """[m, ...] all rows, a copy."""
        return self[torch.arange(self.count)].clone()

    def replaced(self, ids: Tensor, values: Tensor) -> Rows:
        """A table in which the clients `ids` have the rows `values`."""
        return Rows(self.count, self.start, self.base, (*self.waiting, (ids, values)))

    @property
    def memory(self) -> Memory | None:
        """The base, where it is in memory and nothing waits: its rows may be written at once."""
        return self.base if isinstance(self.base, Memory) and not self.waiting else None

    def settle(self) -> Rows:
        """Write what waits to the base."""
        assert self.base is not None
        for ids, values in self.waiting:  # in order: of two rows of one client the later one stays
            self.base.write(ids, values)
        return Rows(self.count, self.start, self.base)

    def _touched(self) -> Tensor:
        """The clients whose rows wait, each once."""
        ids = np.unique(np.concatenate([ids.numpy() for ids, _ in self.waiting] or [np.zeros(0, dtype=np.int64)]))
        return torch.from_numpy(ids)

    def saved(self, name: str) -> State:
        """What a checkpoint must hold: all rows, or of a base on disk those that are not yet in it."""
        if self.memory is not None:  # as they are: a checkpoint is written before anything changes them
            return {name: self.memory.rows}
        if not isinstance(self.base, Disk):
            return {name: self.whole()}
        self.base.flush()
        ids = self._touched()
        return {f"{name}/ids": ids, f"{name}/rows": self[ids]}

    def restored(self, name: str, held: State) -> Rows:
        """These rows as a checkpoint held them."""
        assert self.base is not None
        if isinstance(self.base, Disk):
            self.base.write(held[f"{name}/ids"], held[f"{name}/rows"])
        else:
            self.base.write(torch.arange(self.count), held[name])
        return Rows(self.count, self.start, self.base)
