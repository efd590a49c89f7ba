"""A data set before it is split: features, targets and, where nature made clients, their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ..errors import need, one_of
from ..seeds import stream
from .clients import PARTS, Clients
from .inputs import Inputs, Scale
from .measures import measure
from .partitions import name_of, parse, settings, spell
from .partitions.assignment import Assignment, Partition, held, whole
from .tables.columns import WAYS, Column, columns_moments, learn, of_pooled, ready
from .tables.columns import feature_names as names_of
from .tables.disguise import disguised
from .tables.moments import Moments, moments, pooled
from .tables.summed_moments import pooled_of, sums_of
from .tables.too_little import too_little

_PIECE = 1 << 16  # rows that are looked at together


def cut_sizes(n: int, parts: Sequence[float]) -> tuple[int, int, int]:
    """How many of a client's n samples are for training, validation and test.

    Test and validation get their shares rounded to the nearest whole number (halves up), but at least one sample each
    while n allows it: with n = 1 all is training, from n = 2 on there is a test sample, from n = 3 on a validation
    sample (of parts above zero). Training gets what is left, at least one sample; if need be, validation and then test
    give one up.
    """
    _, share_validation, share_test = parts
    # Rounding to nine digits first keeps 0.15 * 10 = 1.5 from turning into 1.4999...
    test = max(int(round(share_test * n, 9) + 0.5), int(share_test > 0 and n >= 2))
    validation = max(int(round(share_validation * n, 9) + 0.5), int(share_validation > 0 and n >= 3))
    validation = max(0, min(validation, n - 1 - test))
    test = min(test, n - 1)
    return n - validation - test, validation, test


@dataclass(frozen=True, eq=False)
class Agreed:
    """What the clients of a federation agreed on: how numbers and targets are put to scale."""

    mean: np.ndarray  # [c] of the columns that hold numbers, in order
    spread: np.ndarray  # [c]
    target: tuple[float, float] = (0.0, 1.0)  # centre and spread


@dataclass(frozen=True, eq=False)
class Dataset:
    """n samples with their targets. Images stay uint8 until `split`, which gives (x/255 − mean)/std.

    For example:

        >>> data = st.data.load("digits")
        >>> clients = data.split("labels=2", clients=5, seed=0)
        >>> clients.names
        ['0', '1', '2', '3', '4']
    """

    x: np.ndarray  # [n, ...] uint8 (images, channels first) or float
    y: np.ndarray  # [n] int64 labels 0..C−1, or float targets (−1/+1 for a linear SVM); [n, t] tokens, −1 is padding
    classes: int | None  # number of classes; None for regression
    name: str = "data"
    keys: np.ndarray | None = None  # [n] the natural client of each sample: writer, device, hospital
    scale: Scale = ((0.0,), (1.0,))  # (mean, std) per channel or per pixel of x/255; for uint8 only
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()  # of a table: `split` fills missing numbers (NaN) and puts numbers to scale
    key_names: tuple[str, ...] = ()  # where keys are numbers of names
    target: str | None = None  # the target's column

    def __post_init__(self) -> None:
        n = len(self.x)
        if self.columns:
            object.__setattr__(self, "feature_names", names_of(self.columns))
        need(n > 0, f"{self.name}: there are no samples.")
        need(len(self.y) == n, f"{self.name}: {n} rows of x but {len(self.y)} of y.")
        tokens = self.y.ndim == 2 and self.y.shape == self.x.shape and self.y.dtype.kind == "i" and self.y.shape[1] > 1
        need(self.y.ndim == 1 or tokens, f"{self.name}: y must be one number per sample; got shape {self.y.shape}.")
        kind = self.x.dtype
        need(kind.kind == "f" or kind == np.uint8, f"{self.name}: x must be float or uint8; got {kind}.")
        for what, values in (("data", self.x), ("targets", self.y)):
            finite = values.dtype.kind != "f" or _finite(values, gaps=bool(self.columns) and what == "data")
            need(finite, f"{self.name}: the {what} hold NaN or Inf; drop or fill them first.")
        if self.keys is not None:
            need(len(self.keys) == n, f"{self.name}: {n} samples but {len(self.keys)} client keys.")
        self._check_targets()

    def _check_targets(self) -> None:
        if self.classes is None:
            need(self.y.dtype.kind == "f", f"{self.name}: targets without classes must be float; got {self.y.dtype}.")
        elif self.y.dtype.kind == "f":
            distinct = len(np.unique(self.y))
            need(distinct <= self.classes, f"{self.name}: {distinct} distinct targets but classes={self.classes}.")
        else:
            low, high = int(self.y.min()), int(self.y.max())
            good = low >= -(self.y.ndim == 2) and high < self.classes
            need(good, f"{self.name}: labels must lie in 0..{self.classes - 1}; got {low}..{high}.")

    def __len__(self) -> int:
        return len(self.x)

    @property
    def labels(self) -> np.ndarray:
        """[n] class numbers 0..C−1, also where targets are −1/+1; the targets themselves for regression; of sequences
        the first token."""
        if self.classes is None or self.y.dtype.kind != "f":
            return self.y if self.y.ndim == 1 else self.y[:, 0]
        numbers: np.ndarray = np.unique(self.y, return_inverse=True)[1]
        return numbers

    def split(
        self,
        partition: Partition | str,
        clients: int | None = None,
        seed: int = 0,
        parts: Sequence[float] = (0.72, 0.08, 0.20),
        minimum: int = 10,
        dtype: torch.dtype = torch.float32,
        first: int = 0,
        columns: str = "auto",
        target: str = "pooled",
        agreed: Agreed | None = None,
        summed: bool = False,
    ) -> Clients:
        """Deal the samples out to clients and cut each client's samples, shuffled, into train, validation and test.

        `clients=None` means 10, or for `Natural` every key; each client gets at least `minimum` samples. No sample is
        in two clients or in two parts, unless the partition has overlap=True: then one client's test sample may be
        another's training sample. `cut_sizes` says how shares become whole numbers. Where these are only some clients
        of a federation, `first` is the first one's number in it: what is drawn for a client is drawn for its number.
        A table's numbers are put to scale by all clients' training samples ("pooled"), by each client's "own" or not at
        all ("raw"); the same for what takes the place of missing ones. Targets that are numbers are put to scale by all
        clients' training samples, whatever the columns are, so that differences between clients stay; or not at all
        (target="raw"). In a federation other clients' samples are elsewhere, and `agreed` holds what "pooled" means.
        `summed`: pooled statistics are those that secure aggregation gives, of sums alone (tables/summed_moments.py).
        """
        partition = parse(partition) if isinstance(partition, str) else partition
        columns = "pooled" if columns == "auto" else columns
        one_of("split", "columns", columns, WAYS)
        one_of("split", "target", target, ("pooled", "raw"))
        assignment, order, bounds = self.deal(partition, clients, seed, parts, minimum, first)
        names = self._named(assignment.names) or [str(i) for i in range(len(bounds))]
        x, inputs = self._ready(order, bounds, names, dtype, columns, agreed, summed)
        if assignment.noise is not None:
            _add_noise(x, bounds, assignment.noise, seed)
        if self.classes is None and target == "pooled":
            found = agreed.target if agreed else self._target_scale(order, bounds, summed)
            inputs = replace(inputs, target_scale=found)
        y = torch.from_numpy(inputs.scaled_target(self.y[order]))
        y = y.to(dtype) if y.is_floating_point() else y.long()
        about = self._about(partition, assignment, seed, parts)
        about |= self._warnings(order, bounds, names) if agreed is None else {}  # a site does not see the others
        out = Clients(x, y, bounds, names, self.classes, about, inputs)
        about["sizes"] = {part: int(out.counts(part).sum()) for part in PARTS}
        about["measures"] = measure(out)
        return out

    def deal(
        self,
        partition: Partition,
        clients: int | None,
        seed: int,
        parts: Sequence[float],
        minimum: int,
        first: int = 0,
    ) -> tuple[Assignment, np.ndarray, np.ndarray]:
        """Who holds which rows; all rows in the clients' order [n]; where each client's parts begin and end [m, 4]."""
        _check_parts(parts)
        whole("split", minimum=minimum)
        need(isinstance(seed, int), f"split needs seed to be a whole number; got {seed!r}.")
        assignment = partition.assign(self.labels, self.classes, self.keys, clients, seed, minimum)
        _check_assignment(spell(partition), assignment, len(self), minimum)
        return assignment, *_cut(assignment.rows, parts, seed, first, assignment.test)

    def _named(self, keys: list[str] | None) -> list[str] | None:
        return [self.key_names[int(key)] for key in keys] if keys and self.key_names else keys

    def _ready(
        self,
        order: np.ndarray,
        bounds: np.ndarray,
        names: list[str],
        dtype: torch.dtype,
        how: str,
        agreed: Agreed | None,
        summed: bool,
    ) -> tuple[torch.Tensor, Inputs]:
        """The samples as clients get them: images as (x/255 − mean)/std, a table's numbers to scale, others as they
        are; and how that is done again for later ones."""
        image, two = self.x.dtype == np.uint8, self.classes is not None and self.y.dtype.kind == "f"
        inputs = Inputs(
            tuple(self.x.shape[1:]),
            self.classes,
            self.class_names,
            (float(self.y.min()), float(self.y.max())) if two else None,
            self.target,
            self.scale if image else None,
            self.columns,
            how if self.columns else "raw",
            tuple(names),
        )
        if not self.columns:
            return inputs.ready(self.x[order], None, dtype), inputs
        x = self.x[order]
        if how == "pooled" and agreed is not None:
            own = of_pooled(agreed.mean, agreed.spread, self.columns)
        else:
            own = learn(x, _training(bounds), self.columns, how, self.name, summed)
        out = torch.from_numpy(x).to(dtype)
        for i, (low, high) in enumerate(bounds[:, [0, 3]]):
            out[low:high] = torch.from_numpy(ready(out[low:high].numpy(), own.of(i)))
        return out, replace(inputs, statistics=own)

    def target_moments(self, order: np.ndarray, bounds: np.ndarray) -> Moments:
        """The moments [m, 1] of each client's training targets, which are numbers."""
        return Moments.joined([moments(self.y[order[part]][:, None]) for part in _training(bounds)])

    def column_moments(self, order: np.ndarray, bounds: np.ndarray) -> Moments:
        """The moments [m, c] of the numbers in each client's training samples."""
        return columns_moments(self.x[order], _training(bounds), self.columns)

    def _target_scale(self, order: np.ndarray, bounds: np.ndarray, summed: bool) -> tuple[float, float]:
        each = self.target_moments(order, bounds)
        mean, spread = pooled_of(sums_of(each)) if summed else pooled(each)
        return float(mean[0]), float(spread[0])

    def _warnings(self, order: np.ndarray, bounds: np.ndarray, names: Sequence[str]) -> dict[str, object]:
        """What to look at before a result is believed."""
        if not self.columns:
            return {}
        rows, called = [order[part] for part in _training(bounds)], self.class_names
        classes = None if self.classes is None else called or [str(k) for k in range(self.classes)]
        lines = list(disguised(self.x, self.labels, np.concatenate(rows), self.classes, self.columns))
        lines += too_little(self.x, self.labels, rows, classes, self.columns, names)
        return {"warnings": [f"{self.name}: {line}" for line in lines]} if lines else {}

    def _about(
        self, partition: Partition, assignment: Assignment, seed: int, parts: Sequence[float]
    ) -> dict[str, object]:
        about: dict[str, object] = {
            "source": self.name,
            "partition": {"name": name_of(partition), "settings": settings(partition), "text": spell(partition)},
            "seed": seed,
            "parts": list(parts),
            "overlap": assignment.overlap,
        }
        optional = {
            "left_out": assignment.left_out,
            "too_small": self._named(assignment.too_small) or [],
            "noise_std": [] if assignment.noise is None else [float(std) for std in assignment.noise],
            "class_names": list(self.class_names),
            "feature_names": list(self.feature_names),
        }
        return about | {name: value for name, value in optional.items() if value}


def _training(bounds: np.ndarray) -> list[slice]:
    """Each client's training samples."""
    return [slice(int(low), int(high)) for low, high in bounds[:, :2]]


def _finite(values: np.ndarray, gaps: bool) -> bool:
    """Whether no value is Inf, or NaN where there may be no gaps; piece by piece, as there may be many."""
    pieces = (values[i : i + _PIECE] for i in range(0, len(values), _PIECE))
    return all(not bool((np.isinf(piece) if gaps else ~np.isfinite(piece)).any()) for piece in pieces)


def _check_parts(parts: Sequence[float]) -> None:
    good = len(parts) == 3 and parts[0] > 0 and min(parts) >= 0 and abs(sum(parts) - 1) < 1e-6
    need(
        good,
        "parts are the shares of training, validation and test samples: three numbers that sum to 1, the first above "
        "0; "
        f"got {tuple(parts)}.",
    )


def _check_assignment(owner: str, assignment: Assignment, n: int, minimum: int) -> None:
    """What every partition promises, checked here as well because a partition may be the user's own."""
    need(len(assignment.rows) > 0, f"{owner} made no clients.")
    held(owner, assignment.rows, minimum)
    for i, rows in enumerate(assignment.rows):
        need(rows.min() >= 0 and rows.max() < n, f"{owner}: client {i} has rows outside 0..{n - 1}.")
        need(len(np.unique(rows)) == len(rows), f"{owner}: client {i} holds a sample twice.")
    if not assignment.overlap:
        shared = int((np.bincount(np.concatenate(assignment.rows)) > 1).sum())
        need(shared == 0, f"{owner}: {shared} samples belong to two clients; set overlap=True if that is meant.")


def _cut(
    rows: Sequence[np.ndarray], parts: Sequence[float], seed: int, first: int, test: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """All rows, client after client and part after part, and where the parts begin and end."""
    shuffled = [stream(seed, "split", 0, i).permutation(r) for i, r in enumerate(rows, first)]
    counts = np.array([_sizes(len(r), parts, test) for r in rows], dtype=np.int64)
    ends = np.cumsum(counts).reshape(-1, 3)
    return np.concatenate(shuffled), np.column_stack([ends[:, 0] - counts[:, 0], ends])


def _sizes(n: int, parts: Sequence[float], test: int | None) -> tuple[int, int, int]:
    """`cut_sizes`, or so many test samples and of the rest the other parts in their proportion."""
    if test is None:
        return cut_sizes(n, parts)
    training, validation, _ = parts
    rest = training + validation
    return *cut_sizes(n - test, (training / rest, validation / rest, 0.0))[:2], test


def _add_noise(x: torch.Tensor, bounds: np.ndarray, noise: np.ndarray, seed: int) -> None:
    for i, (low, high) in enumerate(bounds[:, [0, 3]]):
        draw = stream(seed, "noise", 0, i).standard_normal(tuple(x[low:high].shape), dtype=np.float32)
        x[low:high] += float(noise[i]) * torch.from_numpy(draw).to(x.dtype)
