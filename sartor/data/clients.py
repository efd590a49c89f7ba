"""The Clients container: all samples of a federation in two tensors, and who owns which rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..errors import SartorError, need
from .inputs import Inputs

PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Clients:
    """Every client's samples, contiguous and in three parts.

    Client i's training samples are rows bounds[i, 0]:bounds[i, 1] of `x` and `y`, its validation samples
    bounds[i, 1]:bounds[i, 2], its test samples bounds[i, 2]:bounds[i, 3].

        >>> len(clients), clients.x.shape[1]
        (6, 64)
        >>> begin, end = clients.bounds[0, :2]
        >>> bool(len(clients.x[begin:end]) > 0)
        True
        >>> clients
        <6 Clients, 1443 samples of shape (64,)>
    """

    x: Tensor  # [n, ...] float
    y: Tensor  # [n] int64 class labels, or float targets (−1/+1 for a linear SVM); [n, t] int64 tokens, −1 is padding
    bounds: np.ndarray  # [m, 4] int64
    names: list[str]  # what each client is called: "0", "writer 17", "St. Mary's"
    classes: int | None  # number of classes; None for regression
    about: dict[str, object] = field(default_factory=dict)  # source, partition and the measures of the skew, JSON-ready
    inputs: Inputs | None = None  # how later samples are made ready for the models; None: that is not known

    def __len__(self) -> int:
        return len(self.bounds)

    def __repr__(self) -> str:  # in a notebook or at a prompt the fields would be pages of numbers
        samples = int(np.diff(self.bounds[:, [0, 3]], axis=1).sum())
        return f"<{len(self)} Clients, {samples} samples of shape {tuple(self.x.shape[1:])}>"

    def rows(self, client: int, part: str) -> slice:
        """The rows of one client's part."""
        k = PARTS.index(part)
        return slice(int(self.bounds[client, k]), int(self.bounds[client, k + 1]))

    def counts(self, part: str) -> np.ndarray:
        """[m] the number of samples in a part of each client; not to be changed."""
        counts: np.ndarray = self._counts[PARTS.index(part)]
        return counts

    @cached_property
    def _counts(self) -> np.ndarray:
        """[3, m], once: every chunk of every round asks, and there may be a million clients."""
        counts: np.ndarray = np.ascontiguousarray(np.diff(self.bounds, axis=1).T)
        counts.flags.writeable = False
        return counts

    @property
    def steps(self) -> int:
        """Of a sample that is a sequence; 1 where samples are none."""
        return self.x.shape[-1] if self.x.dim() == 3 or self.y.dim() == 2 else 1

    @cached_property
    def trained_on(self) -> int:
        """How many training samples all clients have together."""
        return int(self.counts("train").sum())

    def take(self, ids: Sequence[int] | np.ndarray) -> Clients:
        """Some of the clients, in this order; the samples are not copied."""
        names = [self.names[int(i)] for i in ids]
        inputs = None if self.inputs is None else self.inputs.take(ids)
        return replace(self, bounds=self.bounds[np.asarray(ids)], names=names, inputs=inputs)

    def holding(self, ids: Sequence[int] | np.ndarray) -> Clients:
        """The same federation with only these clients' samples: of the others it is known how many they have."""
        at, bounds, rows = 0, self.bounds - self.bounds[:, :1], []
        for i in ids:
            rows.append(slice(int(self.bounds[i, 0]), int(self.bounds[i, 3])))
            bounds[i] += at
            at += rows[-1].stop - rows[-1].start
        others = np.setdiff1d(np.arange(len(self)), np.asarray(ids))
        bounds[others] += at  # beyond the end
        x, y = (torch.cat([v[here] for here in rows]) for v in (self.x, self.y))
        return Clients(x, y, bounds, self.names, self.classes, self.about)

    def to(self, device: str | torch.device | None = None, dtype: torch.dtype | None = None) -> Clients:
        """The same clients on another device or in another floating-point type."""
        x, y = self.x.to(device, dtype), self.y.to(device, dtype if self.y.is_floating_point() else None)
        same = x is self.x and y is self.y  # then what was counted is not counted again
        return self if same else replace(self, x=x, y=y)

    @classmethod
    def from_parts(
        cls, parts: Sequence[dict[str, tuple[np.ndarray, np.ndarray]]], classes: int | None = None
    ) -> Clients:
        """Build from arrays: one dict per client with the keys "train" and, if there are such, "validation", "test"."""
        need(len(parts) > 0, "Clients need at least one client; got none.")
        xs: list[np.ndarray] = []
        ys: list[np.ndarray] = []
        bounds = np.zeros((len(parts), 4), dtype=np.int64)
        at = 0
        for i, client in enumerate(parts):
            for name in client:
                if name not in PARTS:
                    raise SartorError(f"a client's part is one of {', '.join(PARTS)}; got {name!r} for client {i}.")
            need("train" in client and len(client["train"][0]) > 0, f"client {i} has no training samples.")
            for k, part in enumerate(PARTS):
                bounds[i, k] = at
                if part in client:
                    x, y = map(np.asarray, client[part])
                    need(len(x) == len(y), f"client {i}, {part}: {len(x)} rows of x but {len(y)} of y.")
                    xs.append(x)
                    ys.append(y)
                    at += len(x)
            bounds[i, 3] = at
        x, y = np.concatenate(xs), np.concatenate(ys)
        need(bool(np.isfinite(x).all()), "the data hold NaN or Inf; clean or impute them first.")
        target = torch.as_tensor(y)
        if target.is_floating_point():
            need(bool(np.isfinite(y).all()), "the targets hold NaN or Inf; clean or impute them first.")
        else:
            target = target.long()
            classes = classes if classes is not None else int(target.max()) + 1
            low, high = int(target.min()), int(target.max())
            low += target.dim() == 2 and low == -1  # padding
            need(low >= 0 and high < classes, f"labels must lie in 0..{classes - 1}; got {low}..{high}.")
        features = torch.as_tensor(x)
        features = features if features.is_floating_point() else features.float()
        return cls(features, target, bounds, [str(i) for i in range(len(parts))], classes)
