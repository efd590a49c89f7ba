"""A site of a federation: its file, what it agreed to, and its clients once it has joined. Engines hand it requests."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ..core import State
from ..data import Clients, Dataset, load
from ..engines.local import LocalEngine
from ..engines.stateless import StatelessEngine
from ..errors import SartorError, need, one_of
from ..run.assemble import TYPES, assemble
from ..run.recipe import Recipe
from ..run.result import Result
from ..storage import read_json, save_tensors, write_json
from . import table_schema
from .rounds.agreement import check, digest
from .rounds.client_store import ClientStore
from .rounds.messages import Damaged, Message, decode, encode, spec_of
from .rounds.remote_clients import SHARES, RemoteClients
from .terms import downlinks, shared, terms


@dataclass(frozen=True)
class SiteConfig:
    """A site's own choices: its file, and what may leave."""

    data: str
    target: str | None = None
    client_key: str | None = None  # none: the whole file is one client
    share: str = "each"
    recipe: str | None = None  # play this recipe and no other
    leave_out: tuple[str, ...] = ()  # columns that are not looked at

    def __post_init__(self) -> None:
        one_of("a site", "share metrics", self.share, SHARES)

    def read(self) -> Dataset:
        """The table."""
        options = {k: v for k, v in (("target", self.target), ("client_key", self.client_key)) if v is not None}
        need(Path(self.data).exists(), f"there is no file {self.data}.")
        found = load(self.data, **options, **({"drop": list(self.leave_out)} if self.leave_out else {}))
        return found if found.keys is not None else replace(found, keys=np.zeros(len(found), dtype=np.int64))


@dataclass
class Participant:
    """Answers everything that a server may ask of this site."""

    name: str
    folder: Path  # its own: states, models
    own: SiteConfig
    log: Callable[[str], None] = lambda text: None
    site: RemoteClients | None = None
    finished: bool = False
    _table: Dataset | None = field(default=None, repr=False)

    @property
    def table(self) -> Dataset:
        """The site's data, read once."""
        self._table = self._table or self.own.read()
        return self._table

    @property
    def instance_id(self) -> str:
        """A secret of this folder, drawn once: a copy of the kit elsewhere does not have it."""
        place = self.folder / "seat.json"
        if not place.exists():
            write_json(place, secrets.token_hex(16))
        return str(read_json(place))

    def answer(self, data: bytes) -> bytes:
        """The reply to a request of any kind. Of what goes wrong, only names of settings and columns are sent."""
        try:
            request = decode(data)
        except Damaged as e:
            return self._refuse("", "damaged", str(e))
        run = request.run
        try:
            if request.kind == "hello":
                return encode(self._join(request))
            if request.kind == "welcome":
                return encode(self._enter(request))
            if request.kind == "done":
                self.finished = True
                return encode(Message("noted", request.run))
            if self.site is None or self.site.run != request.run:
                self._again(request.run)
        except _Told as e:
            return self._refuse(run, "agreement", str(e), {"text": str(e)})
        except (SartorError, OSError, KeyError, TypeError, ValueError) as e:
            return self._refuse(run, "failed", f"{type(e).__name__}: {e}")
        if self.site is None:
            return self._refuse(run, "foreign", "a run that this site has not joined")
        return self.site.answer(data)

    def _refuse(self, run: str, why: str, text: str, note: dict[str, Any] | None = None) -> bytes:
        self.log(f"refused ({why}): {text}")
        return encode(Message("refused", run, note={"why": why, "instance_id": self.instance_id} | (note or {})))

    # --- joining ------------------------------------------------------------------------------------------------------

    def _join(self, request: Message) -> Message:
        """What the server must know of this site before it can say who is who: columns and numbers of samples."""
        recipe = _told(lambda: Recipe.of(request.note["recipe"], "the server's recipe"))
        if self.own.recipe is not None:
            mine = shared(Recipe.load(Path(self.own.recipe)))
            clients = self._split(recipe, self.table)
            _told(lambda: check(terms(recipe, clients), terms(mine, clients), "the server"))
        counts = self._split(recipe, self.table).bounds
        note = {
            "schema": table_schema.of(self.table),
            "counts": np.diff(counts, axis=1).tolist(),
            "instance_id": self.instance_id,
        }
        return Message("joined", request.run, note=note)

    def _split(self, recipe: Recipe, table: Dataset, first: int = 0) -> Clients:
        dtype = TYPES[str(recipe.dtype)]
        parts, how = tuple(recipe.parts), recipe.columns
        return table.split("natural", None, recipe.seed, parts, recipe.minimum, dtype, first, how)

    def _enter(self, request: Message) -> Message:
        """Take the server's terms, once: they are kept with the run, and a run's terms do not change."""
        place = self._place(request.run)
        self.site = self._build(request.run, request.note)
        if place.exists():
            _told(lambda: check(request.note["terms"], read_json(place)["terms"], "the server"))
        write_json(place, request.note)
        self.finished = False
        self.log(f"joined run {request.run[:8]} with {len(self.site.ids)} clients")
        return Message("ready", request.run, self.site.agreement, note={"instance_id": self.instance_id})

    def _again(self, run: str) -> None:
        """A run that this site joined before it was last started."""
        place = self._place(run)
        self.site = self._build(run, read_json(place)) if place.exists() else None

    def _place(self, run: str) -> Path:
        good = len(run) == 32 and all(c in "0123456789abcdef" for c in run)
        need(good, "a run's name is 32 hexadecimal digits.")
        return self.folder / run / "welcome.json"

    def _build(self, run: str, note: dict[str, Any]) -> RemoteClients:
        recipe = _told(lambda: shared(Recipe.of(note["recipe"], "the server's recipe")))
        first, m = int(note["first"]), int(note["clients"])
        table = _told(lambda: table_schema.fitted(self.table, note["schema"], f"site {self.name}"))
        own = self._split(recipe, table, first)
        clients = table_schema.among(own, first, m, int(note["total"]), int(note["largest"]))
        _told(lambda: check(note["terms"], terms(recipe, clients), "the server"))
        result = assemble(recipe, clients)
        engine = result.run.engine
        assert isinstance(engine, LocalEngine)
        bench = StatelessEngine(engine)
        return RemoteClients(
            run=run,
            agreement=agreed(note),
            rounds=recipe.rounds,
            ids=range(first, first + len(own)),
            down={stage: spec_of(down) for stage, down in downlinks(result).items()},
            bench=bench,
            store=ClientStore(self.folder / run, run, bench.start),
            keep=lambda round, ids, models: self._keep(result, own, first, round, ids, models),
            instance_id=self.instance_id,
            share=self.own.share,
            log=self.log,
        )

    def _keep(self, result: Result, own: Clients, first: int, round: int, ids: Tensor, models: State) -> None:
        """Personal models of this site's clients, with their names and how their samples are read; they never leave."""
        if "personal" not in models:
            return
        for at, client in enumerate(ids.tolist()):
            theta = dict(zip(result.task.names, result.task.unflatten(models["personal"][at]), strict=True))
            extra = {k: v[at] for k, v in models.items() if k != "personal"}
            assert own.inputs is not None
            inputs = own.inputs.take([client - first]).plain()
            about = {"client": own.names[client - first], "round": round, "inputs": inputs}
            place = self.folder / "models" / f"personal-{client - first}.safetensors"
            save_tensors(place, {k: v.clone() for k, v in (theta | extra).items()}, about, sealed=True)


class _Told(SartorError):
    """A refusal whose text holds settings or columns only, and may be sent."""


def _told(step: Callable[[], Any]) -> Any:
    try:
        return step()
    except SartorError as e:
        raise _Told(str(e)) from e


def agreed(note: dict[str, Any]) -> str:
    """The hash of all that was agreed on in a welcome."""
    return digest({k: note[k] for k in ("terms", "schema", "clients", "total", "largest")})
