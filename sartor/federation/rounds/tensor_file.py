"""Single rows of the tensors in a safetensors file, which is otherwise left unread."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...core import State
from ...errors import SartorError, reason


class TensorFile:
    """Rows of the tensors [n, ...] in a file of `save_tensors`, without reading the others."""

    _TYPES: ClassVar[dict[str, str]] = {
        "F64": "<f8",
        "F32": "<f4",
        "F16": "<f2",
        "I64": "<i8",
        "I32": "<i4",
        "I16": "<i2",
        "I8": "i1",
        "U8": "u1",
        "BOOL": "?",
    }

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._telling(), path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            self._places = {
                name: (self._TYPES[one["dtype"]], tuple(one["shape"]), 8 + length + one["data_offsets"][0])
                for name, one in header.items()
            }

    def rows(self, which: Tensor | None = None, prefix: str = "") -> State:
        """Copies of the rows `which` (all) of the tensors whose names begin with `prefix`."""
        with self._telling():
            data = np.memmap(self.path, mode="r")
            out = {}
            for name, (dtype, shape, at) in self._places.items():
                if name.startswith(prefix):
                    whole = np.ndarray(shape, dtype, data.data, at)
                    out[name] = torch.from_numpy(np.array(whole if which is None else whole[which.numpy()]))
            return out

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise SartorError(f"cannot read {self.path}: {reason(e)}. It was cut off or changed.") from e
