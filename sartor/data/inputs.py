"""How samples become what a model is given, and what its outputs mean: all that a prediction needs besides the model.

A run keeps it in inputs.json; a prediction, an export and a newcomer do exactly what training did.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..errors import SartorError
from .tables.columns import NUMBERS, Column, Statistics, feature_names, places, ready, words

Values = TypeVar("Values", Tensor, np.ndarray)
Scale = tuple[tuple[float, ...], tuple[float, ...]]  # means and standard deviations, of channels or of pixels


@dataclass(frozen=True, eq=False)
class Inputs:
    """Of a federation's samples: their shape, their columns or how images are scaled, their targets."""

    shape: tuple[int, ...]  # of a sample
    classes: int | None
    class_names: tuple[str, ...] = ()
    ends: tuple[float, float] | None = None  # where targets are two numbers (−1/+1)
    target: str | None = None  # the target's column
    images: Scale | None = None  # samples are uint8, and models are given (x/255 − mean)/std
    columns: tuple[Column, ...] = ()  # of a table; arrays have none
    how: str = "raw"  # own, pooled or raw
    names: tuple[str, ...] = ()  # the clients'
    statistics: Statistics | None = None  # of a table's numbers
    target_scale: tuple[float, float] = (0.0, 1.0)  # of numbers as targets: models learn (y − centre) / spread

    def ready(self, x: np.ndarray, client: int | None, dtype: torch.dtype) -> Tensor:
        """Samples as a client's model is given them; client None: one that took no part."""
        if self.images is not None:
            return scaled(x, self.images, dtype)
        samples = torch.from_numpy(np.require(x, requirements=["C", "W"])).to(dtype)
        if self.statistics is None:
            return samples
        return torch.from_numpy(ready(samples.numpy(), self.statistics.of(client)))

    def scaled_target(self, y: np.ndarray) -> np.ndarray:
        """Targets as models learn them: numbers to scale, classes as they are."""
        centre, spread = self.target_scale
        return y if self.target_scale == (0.0, 1.0) else (np.asarray(y, dtype=np.float64) - centre) / spread

    def in_units(self, output: Values) -> Values:
        """A model's numbers, or targets, in the units that the data have."""
        centre, spread = self.target_scale
        return output if self.target_scale == (0.0, 1.0) else output * spread + centre

    def with_own(self, statistics: Statistics) -> Inputs:
        """The same for one client with statistics of its own."""
        return replace(self, statistics=statistics, names=("",))

    def take(self, ids: Sequence[int] | np.ndarray) -> Inputs:
        """The same for some of the clients."""
        own = None if self.statistics is None else self.statistics.take(ids)
        return replace(self, names=tuple(self.names[int(i)] for i in ids), statistics=own)

    @property
    def features(self) -> tuple[str, ...]:
        """What a table's features are called."""
        return feature_names(self.columns)

    def words(self) -> list[str]:
        """A line for each column: what was done to it."""
        return words(self.columns, self.how)

    def labels(self) -> list[str]:
        """The classes by name."""
        return list(self.class_names) or [str(i) for i in range(self.classes or 0)]

    def plain(self) -> dict[str, Any]:
        """What inputs.json holds."""
        where, rows = places(self.columns), []
        for column, said in zip(self.columns, self.words(), strict=True):
            row = {**asdict(column), "texts": list(column.texts), "done": said}
            if column.kind in NUMBERS and self.statistics is not None:
                at, own = where[column.name], self.statistics
                row |= {k: getattr(own, k)[:, at].tolist() for k in ("fill", "centre", "spread")}
            rows.append(row)
        small = ("shape", "classes", "class_names", "ends", "target", "images", "how", "names", "target_scale")
        return {k: _listed(getattr(self, k)) for k in small} | {"columns": rows}

    @classmethod
    def of(cls, found: Mapping[str, Any], where: str) -> Inputs:
        """What `plain` gave."""
        try:
            return cls._of(found)
        except (KeyError, TypeError, ValueError, IndexError) as e:
            raise SartorError(f"{where} does not say how samples are read: {type(e).__name__} {e}.") from e

    @classmethod
    def _of(cls, found: Mapping[str, Any]) -> Inputs:
        rows = found["columns"]
        columns = tuple(
            Column(r["name"], r["kind"], tuple(r["texts"]), r["missing"], r.get("other", False)) for r in rows
        )
        where, k = places(columns), len(feature_names(columns))
        counted = [len(r["fill"]) for r in rows if "fill" in r]
        m, own = max(counted, default=1), None
        if columns:
            own = Statistics(np.zeros((m, k)), np.zeros((m, k)), np.ones((m, k)))
            for r in rows:
                for name in ("fill", "centre", "spread") if "fill" in r else ():
                    getattr(own, name)[:, where[r["name"]]] = r[name]
        if columns and (list(found["shape"]) != [k] or m not in (1, len(found["names"]))):
            raise ValueError(f"{k} features of {m} clients, but samples of shape {found['shape']}")
        images = found["images"] and (tuple(found["images"][0]), tuple(found["images"][1]))
        ends = found["ends"] and (float(found["ends"][0]), float(found["ends"][1]))
        names, shape = tuple(map(str, found["names"])), tuple(map(int, found["shape"]))
        if not 0 < math.prod(shape) < 2**31:
            raise ValueError(f"samples of shape {list(shape)}")
        classes, said = found["classes"], tuple(found["class_names"])
        centre, spread = map(float, found.get("target_scale", (0.0, 1.0)))  # older files: targets as they are
        if not (math.isfinite(centre) and 0 < spread < math.inf):
            raise ValueError(f"a target with centre {centre} and spread {spread}")
        how, scale = found["how"], (centre, spread)
        return cls(shape, classes, said, ends, found["target"], images, columns, how, names, own, scale)


def scaled(samples: np.ndarray, scale: Scale, dtype: torch.dtype) -> Tensor:
    """Images [n, channels, ...] of uint8 as (x/255 − mean)/std."""
    x = torch.from_numpy(np.require(samples, requirements=["C", "W"]))
    mean, std = (over_samples(s, tuple(x.shape[1:]), dtype) for s in scale)
    return x.to(dtype).div_(255).sub_(mean).div_(std)


def over_samples(values: tuple[float, ...], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A number for each channel, or for each pixel, in a form that fits samples of this shape."""
    each = len(values) == math.prod(shape)
    return torch.tensor(values, dtype=dtype).view(shape if each else (-1, *[1] * (len(shape) - 1)))


def _listed(value: Any) -> Any:
    return [_listed(v) for v in value] if isinstance(value, tuple) else value
