"""A recipe: every setting of a run, checked, as TOML and back. The command line fills it in, a run folder keeps it."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .. import compressors, data, models, spelling
from ..data import Clients, Dataset
from ..data.tables.client_keys import SPELLINGS
from ..data.tables.columns import WAYS
from ..errors import SartorError, need, one_of, unknown
from ..storage import write_text
from ..tasks import task
from ..wrappers import Privacy, attacks, check_attackers
from . import privacy_account
from .absences import Failures
from .assemble import natural_loss, prepare
from .bytes import Goal, parse_bytes
from .newcomers import held_out, hold_out
from .result import Result
from .settings import aggregator, attack, compressor, method_from, to_table

TYPES = {"float32": torch.float32, "float64": torch.float64}
# What may change when a run goes on.
FREE = (
    *("rounds", "evaluate_every", "checkpoint_every", "engine", "chunk", "workers", "address"),
    *("diagnostics", "oracle", "patience", "budget", "target_accuracy"),
)


class Recipe(BaseModel):
    """One run. Fields have the names of the command line's options."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    method: str = "flame"
    settings: dict[str, Any] = {}  # the method's own fields
    solver: dict[str, Any] = {}  # kind, lr, epochs, steps, batch, ...: in place of the method's default solver's
    data: str = "digits"
    target: str | None = None  # of a user's own table
    client_key: str | None = None
    leave_out: list[str] = []  # columns of a table that are not looked at
    columns: str = "own"  # a table's numbers: to scale by each client's own statistics, by pooled ones, or raw
    spellings: str = "refuse"  # clients whose names differ in spelling only: refuse, apart or together
    partition: str = "auto"  # natural where the data say whose each sample is, else hybrid
    clients: int | None = None  # none: 10, or every natural client
    minimum: int = 10  # samples that each client has at least
    parts: list[float] = [0.72, 0.08, 0.20]  # train, validation, test
    model: str = "auto"  # mlp; linear for regression, svm for targets −1/+1
    loss: str | None = None  # none: what fits the data
    rounds: int = Field(50, ge=1)
    cohort: int | None = None  # none: everyone
    sampling: str = "uniform"
    aggregator: str = "mean"
    attack: str = "none"
    attackers: float | None = None  # the share of clients that attacks; none: 0.2 where there is an attack, else 0
    drop: float = 0.0  # the share of clients that is not reached in a round
    stragglers: float = 0.0  # the share that answers a round late
    stale: str = "use"  # late answers; or discard
    patience: int = 10  # rounds without an answer after which the run stops
    unseen: float = 0.0  # the share of clients that takes no part and is served when training is over
    unseen_steps: int = 10  # with so many visits of each
    dp_noise: float | None = None  # differential privacy: the noise, a multiple of the clip; none: not private ...
    dp_epsilon: float | None = None  # ... or the ε for which the noise is to be found
    dp_clip: float | None = None  # none: 1
    dp_delta: float | None = None  # none: 1e-5
    dp_where: str | None = None  # server (also none) or client
    dp_accountant: str | None = None  # rdp (also none) or prv
    compress: str = "none"  # how messages are compressed
    compress_down: str = "none"  # and what the server sends
    budget: str | None = None  # bytes up and down that a run may take, as in 4MB; none: any
    target_accuracy: float | None = None  # the mean validation accuracy that ends a run
    seed: int = Field(0, ge=0, lt=2**63)
    engine: str = "local"
    chunk: int | None = None
    workers: int | None = None
    address: str | None = None  # of a Ray cluster: auto or HOST:PORT; none: the engine ray starts its own
    store: str = "memory"  # or disk: client states in the run's folder, for federations larger than memory
    dtype: str = "float32"
    device: str = "cpu"
    evaluate_every: int = Field(10, ge=1)
    checkpoint_every: int = Field(10, ge=1)
    diagnostics: bool = True
    report: str = "last"  # or best: the scores and models of the round that was best on validation data
    oracle: bool = False  # score the choice between personal and global on test data, too: to compare with papers

    def dataset(self) -> Dataset:
        """The data, before they are split."""
        given = {"target": self.target, "client_key": self.client_key, "drop": self.leave_out or None}
        given |= {"spellings": None if self.spellings == "refuse" else self.spellings}
        return data.load(self.data, **{k: v for k, v in given.items() if v is not None})

    def split(self, dataset: Dataset) -> Clients:
        """The clients."""
        return dataset.split(
            self.dealt(dataset),
            self.clients,
            self.seed,
            tuple(self.parts),
            self.minimum,
            TYPES.get(self.dtype, torch.float32),
            columns=self.columns,
        )

    def dealt(self, dataset: Dataset) -> str:
        """How the data are dealt out."""
        if self.partition != "auto":
            return self.partition
        return "hybrid" if dataset.keys is None else "natural"

    def start(self, clients: Clients, folder: Path | None = None) -> Result:
        """The run, ready to play. All that can be refused is refused here."""
        full = self.complete(clients)
        if self.dtype not in TYPES:
            raise unknown("dtype", self.dtype, TYPES)
        need(
            self.device == "cpu" or (self.device.startswith("cuda") and torch.cuda.is_available()),
            f"device is cpu, or cuda where there is one; got {self.device!r}.",
        )
        exact = [k for k, v in full.settings.items() if isinstance(v, dict) and v.get("kind") == "exact"]
        need(
            not exact or (full.model == "linear" and full.loss == "squared"),
            f"the exact solver needs linear with squared loss; got {full.model} with {full.loss}. Use sgd or inexact.",
        )
        outputs = 1 if clients.classes is None or clients.y.is_floating_point() else clients.classes
        model = models.build(full.model, tuple(clients.x.shape[1:]), outputs)
        seen, unseen = hold_out(clients, self.unseen, self.seed)
        about = {k: getattr(full, k) for k in ("method", "data", "partition", "model", "seed")}
        return prepare(
            method_from(self.method, self._settings(), self.solver),
            model,
            seen,
            seed=self.seed,
            loss=full.loss,
            cohort=full.cohort,
            sampling=self.sampling,
            engine=self.engine,
            chunk=self.chunk,
            workers=self.workers,
            store=None if self.store == "memory" or folder is None else folder / "state" / "rows",
            address=self.address,
            folder=None if folder is None else folder / "state" / "ray",
            attack=attack(full.attack),
            attackers=full.attackers or 0.0,
            failures=self._failures(),
            compress=compressor(self.compress),
            compress_down=compressor(self.compress_down),
            goal=self._goal(),
            dtype=TYPES[self.dtype],
            device=self.device,
            report=self.report,
            oracle=self.oracle,
            privacy=full.privacy(),
            rounds=self.rounds,
            unseen=unseen,
            unseen_steps=self.unseen_steps,
            settings=about,
        )

    def complete(self, clients: Clients) -> Recipe:
        """The same run with everything written out that was left to the method or to the data."""
        loss = natural_loss(clients)
        model = {"squared": "linear", "hinge": "svm"}.get(loss, "mlp") if self.model == "auto" else self.model
        given = self.loss or models.LOSS.get(model) or loss
        if given not in task.LOSSES:
            raise unknown("loss", given, task.LOSSES)
        fits = given == loss or (given == "squared" and loss == "hinge")  # least squares on −1/+1 is a classifier too
        what = {"squared": "numbers", "hinge": "-1/+1"}.get(loss, f"{clients.classes} classes")
        need(
            fits,
            f"{model} with {given} loss does not fit {self.data}, whose targets are {what}; "
            f"use {'softmax or mlp' if loss == 'cross-entropy' else 'linear' if loss == 'squared' else 'svm'}.",
        )
        seen = len(clients) - held_out(len(clients), self.unseen)
        cohort = seen if self.cohort is None else self.cohort
        known: dict[str, Any] = {"model": model, "loss": given, "clients": len(clients), "cohort": cohort}
        if self.partition == "auto":
            made = clients.about.get("partition")
            known["partition"] = made["name"] if isinstance(made, dict) else "natural"
        return self.resolved().model_copy(update=known | self._noise(seen, cohort))

    def privacy(self) -> Privacy | None:
        """How private the run is; None where it is not."""
        given = {
            k.removeprefix("dp_"): v for k, v in self.model_dump().items() if k.startswith("dp_") and v is not None
        }
        if self.dp_noise is None and self.dp_epsilon is None:
            need(
                not given, f"dp_{next(iter(given), '')} does nothing without dp_noise or dp_epsilon; give one of them."
            )
            return None
        return Privacy(**given)

    def _noise(self, clients: int, cohort: int) -> dict[str, Any]:
        """The noise for an ε that was asked for. A run that goes on keeps its noise, and spends more."""
        asked = self.privacy()
        if self.dp_epsilon is None or asked is None or not 1 <= cohort <= clients:
            return {}
        draws = privacy_account.CohortDraws(clients, cohort, self.sampling, self.seed)
        return {"dp_epsilon": None, "dp_noise": privacy_account.with_noise(asked, draws, self.rounds).noise}

    def _settings(self) -> dict[str, Any]:
        aggregator(self.aggregator)
        return self.settings if self.aggregator == "mean" else self.settings | {"aggregate": self.aggregator}

    def resolved(self) -> Recipe:
        """The same run with every setting of its method written out; refuses what no data could mend."""
        method = method_from(self.method, self._settings(), self.solver)
        if self.partition != "auto":
            data.parse(self.partition)
        one_of("a run", "store", self.store, ["memory", "disk"])
        one_of("a run", "columns", self.columns, WAYS)
        one_of("a run", "spellings", self.spellings, SPELLINGS)
        self._failures()
        self._goal()
        wanted = attack(self.attack)
        share = (0.0 if wanted is None else 0.2) if self.attackers is None else self.attackers
        check_attackers(share)
        known: dict[str, Any] = {
            "attack": "none" if wanted is None else spelling.write(attacks.NAMES, wanted),
            "attackers": share,
        }
        if (asked := self.privacy()) is not None:
            own = ("clip", "delta", "where", "accountant")
            known |= {f"dp_{k}": getattr(asked, k) for k in own}
        for way in ("compress", "compress_down"):
            made = compressor(getattr(self, way))
            known[way] = "none" if made is None else spelling.write(compressors.NAMES, made)
        known |= {"settings": to_table(method), "solver": {}, "aggregator": "mean"}
        return self.model_copy(update=known)

    def _goal(self) -> Goal:
        return Goal(None if self.budget is None else parse_bytes(self.budget), self.target_accuracy)

    def _failures(self) -> Failures:
        return Failures(self.drop, self.stragglers, self.stale, self.patience)

    def toml(self) -> str:
        """The text of recipe.toml."""
        values = {k: v for k, v in self.model_dump().items() if v is not None and v != {}}
        tables = {k: v for k, v in values.items() if isinstance(v, dict)}
        return tomli_w.dumps({k: v for k, v in values.items() if k not in tables} | tables)

    def fingerprint(self, clients: Clients) -> str:
        """What a checkpoint must agree with to be continued: the data, and all settings that are not free."""
        kept = {k: v for k, v in self.complete(clients).model_dump().items() if k not in FREE}
        found = hashlib.sha256(json.dumps(kept, sort_keys=True).encode())
        for array in (clients.x.cpu().numpy(), clients.y.cpu().numpy(), clients.bounds):
            found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()

    def save(self, folder: Path) -> None:
        """Write recipe.toml."""
        write_text(folder / "recipe.toml", self.toml())

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
            place = ".".join(map(str, first["loc"]))
            raise SartorError(f"{where}: {place}: {first['msg']}; got {first['input']!r}.") from e

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
