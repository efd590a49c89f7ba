"""A recipe: every setting of a run, checked, as a TOML file and back. What the command line fills in and a run folder keeps."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import tomli_w
import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from . import data, models
from .data import Clients, Dataset
from .errors import SartorError, need, unknown
from .fit import prepare
from .result import Result
from .settings import aggregator, method_from, to_table
from .storage import write_text


class Recipe(BaseModel):
    """One run. Fields have the names of the command line's options."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    method: str = "flame"
    settings: dict[str, Any] = {}  # the method's own fields
    solver: dict[str, Any] = {}  # kind, lr, epochs, steps, batch, ...: in place of the method's default solver's
    data: str = "digits"
    target: str | None = None  # of a user's own table
    client_key: str | None = None
    partition: str = "hybrid"
    clients: int | None = None  # none: 10, or every natural client
    minimum: int = 10  # samples that each client has at least
    parts: list[float] = [0.72, 0.08, 0.20]  # train, validation, test
    model: str = "auto"  # mlp; linear for regression, svm for targets −1/+1
    loss: str | None = None  # none: what fits the data
    rounds: int = 50
    cohort: int | None = None  # none: everyone
    sampling: str = "uniform"
    aggregator: str = "mean"
    seed: int = 0
    engine: str = "local"
    chunk: int | None = None
    dtype: str = "float32"
    device: str = "cpu"
    evaluate_every: int = 10
    checkpoint_every: int = 10
    diagnostics: bool = True

    def dataset(self) -> Dataset:
        """The data, before they are split."""
        options = {k: v for k, v in (("target", self.target), ("client_key", self.client_key)) if v is not None}
        return data.load(self.data, **options)

    def split(self, dataset: Dataset) -> Clients:
        """The clients."""
        return dataset.split(self.partition, self.clients, self.seed, tuple(self.parts), self.minimum)

    def start(self, clients: Clients) -> Result:
        """The run, ready to play."""
        method = method_from(self.method, self._settings(), self.solver)
        torch_types = {"float32": torch.float32, "float64": torch.float64}
        if self.dtype not in torch_types:
            raise unknown("dtype", self.dtype, torch_types)
        name = self.model
        if name == "auto":
            name = "linear" if clients.classes is None else "svm" if clients.y.is_floating_point() else "mlp"
        need(not (name == "svm" and not clients.y.is_floating_point()), f"svm needs targets -1/+1; {self.data} has classes. Use softmax.")
        outputs = 1 if clients.classes is None or clients.y.is_floating_point() else clients.classes
        model = models.build(name, tuple(clients.x.shape[1:]), outputs)
        about = {"method": self.method, "data": self.data, "partition": self.partition, "model": name, "seed": self.seed}
        return prepare(
            method, model, clients, seed=self.seed, loss=self.loss or models.LOSS.get(name), cohort=self.cohort,
            sampling=self.sampling, engine=self.engine, chunk=self.chunk, dtype=torch_types[self.dtype], device=self.device,
            settings=about)

    def _settings(self) -> dict[str, Any]:
        aggregator(self.aggregator)
        return self.settings if self.aggregator == "mean" else self.settings | {"aggregate": self.aggregator}

    def resolved(self) -> Recipe:
        """The same run with every setting of its method written out."""
        method = method_from(self.method, self._settings(), self.solver)
        return self.model_copy(update={"settings": to_table(method), "solver": {}, "aggregator": "mean"})

    def toml(self) -> str:
        """The text of recipe.toml."""
        values = {k: v for k, v in self.model_dump().items() if v is not None and v != {}}
        tables = {k: v for k, v in values.items() if isinstance(v, dict)}
        return tomli_w.dumps({k: v for k, v in values.items() if k not in tables} | tables)

    def fingerprint(self) -> str:
        """What a checkpoint must agree with to be continued: all settings but how long, and how often one looks."""
        free = {"rounds", "evaluate_every", "checkpoint_every", "engine", "chunk", "diagnostics"}
        kept = {k: v for k, v in self.resolved().model_dump().items() if k not in free}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()

    def save(self, folder: Path) -> None:
        """Write recipe.toml."""
        write_text(folder / "recipe.toml", self.resolved().toml())

    @classmethod
    def of(cls, values: dict[str, Any], where: str = "the recipe") -> Recipe:
        """A recipe from plain values; one clear line for the first thing that is wrong."""
        for key in values:
            if key not in cls.model_fields:
                raise unknown(f"key in {where}", key, cls.model_fields)
        try:
            return cls(**values)
        except ValidationError as e:
            first = e.errors()[0]
            raise SartorError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}; got {first['input']!r}.") from e

    @classmethod
    def load(cls, path: Path) -> Recipe:
        """Read a recipe.toml."""
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as e:
            raise SartorError(f"cannot read {path}: {e.strerror}. A run folder has a recipe.toml; is this one?") from e
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
            raise SartorError(f"{path} is not valid TOML: {e}.") from e
        return cls.of(values, str(path))
