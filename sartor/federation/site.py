"""A site of a federation: its file, what it agreed to, and its clients once it has joined. Engines hand it requests."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..core import State
from ..data import Clients, Dataset, load
from ..data.dataset import Agreed
from ..engines.local import LocalEngine
from ..engines.stateless import StatelessEngine
from ..errors import SartorError, need, one_of
from ..run import versions
from ..run.assemble import TYPES, assemble, columns_of, parameters, privacy, samples_of, target_of
from ..run.privacy_account import Samples
from ..run.recipe import Recipe
from ..run.result import Result
from ..storage import read_json, save_tensors, write_json
from ..wrappers.compression import Compressed
from ..wrappers.privacy import NoiseSource
from . import os_noise, pooled_scale, table_schema
from .audit_log import AuditLog, entry_of
from .coded_rounds import Coded, SiteCodes
from .limits import SHARES, OverLimit, SiteLimits
from .masks import Identity, SiteMasks
from .privacy_ledger import PrivacyLedger
from .released_scores import released
from .rounds.agreement import check, digest
from .rounds.client_store import ClientStore, Looks
from .rounds.masking import KEY
from .rounds.messages import JOINING, Damaged, Message, decode, encode, spec_of
from .rounds.remote_clients import GLOBAL, RemoteClients
from .terms import downlinks, frozen_terms, shared, terms

CURRENT = "run.json"  # which run a site takes part in
SEAT = "seat.json"  # the secret that names this copy of a site
WELCOME = "welcome.json"  # of a run: the terms that this site took
MEASURED = "measured.json"  # of a run: which rows its statistics were told of


@dataclass(frozen=True)
class SiteConfig:
    """A site's own choices: its file, what may leave, and what it lets a server ask."""

    data: str
    target: str | None = None
    client_key: str | None = None  # none: the whole file is one client
    share: str = "each"
    recipe: str | None = None  # play this recipe and no other
    leave_out: tuple[str, ...] = ()  # columns that are not looked at
    text: tuple[str, ...] = ()  # columns of free text, which are embedded here
    limits: SiteLimits = SiteLimits()
    task: str = "auto"  # classification or regression, where the target does not show it
    start: str = ""  # names this start of the site by its owner: each start lets it join one new run

    def __post_init__(self) -> None:
        one_of("a site", "share metrics", self.share, SHARES)
        need(
            self.share == "none" or not self.limits.private,
            "a site that limits epsilon sends no scores, as they have no noise: start it with --share metrics=none.",
        )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> SiteConfig:
        """From plain values, as `asdict` gives them."""
        columns = {name: tuple(values.get(name, ())) for name in ("leave_out", "text")}
        return cls(**{**values, **columns, "limits": SiteLimits(**values["limits"])})

    @property
    def mine(self) -> Recipe | None:
        """The site's own recipe, as a federation plays it."""
        return None if self.recipe is None else shared(Recipe.load(Path(self.recipe)))

    def read(self) -> Dataset:
        """The table."""
        given = {
            "target": self.target,
            "client_key": self.client_key,
            "task": None if self.task == "auto" else self.task,
            "drop": list(self.leave_out) or None,
            "text": list(self.text) or None,
        }
        options = {k: v for k, v in given.items() if v is not None}
        need(Path(self.data).exists(), f"there is no file {self.data}.")
        found = load(self.data, **options)
        return found if found.keys is not None else replace(found, keys=np.zeros(len(found), dtype=np.int64))


@dataclass
class Participant:
    """Answers everything that a server may ask of this site."""

    name: str
    folder: Path  # its own: states, models
    own: SiteConfig
    log: Callable[[str], None] = lambda text: None
    noise: NoiseSource = os_noise.standard_normal  # tests hand in what a simulation draws
    identity: Identity | None = None  # the kit's certificate: needed for secure aggregation
    site: RemoteClients | None = None
    finished: bool = False
    ledger: PrivacyLedger | None = None  # of the run that this site takes part in, where it is private
    _table: Dataset | None = field(default=None, repr=False)
    _audit: AuditLog | None = field(default=None, repr=False)
    _said: bytes = field(default=b"", repr=False)

    @property
    def table(self) -> Dataset:
        """The site's data, read once."""
        self._table = self._table or self.own.read()
        return self._table

    @property
    def instance_id(self) -> str:
        """A secret of this folder, drawn once: a copy of the kit elsewhere does not have it."""
        place = self.folder / SEAT
        if not place.exists():
            write_json(place, secrets.token_hex(16))
        return str(read_json(place))

    def answer(self, data: bytes) -> bytes:
        """The reply to a request of any kind, once both are in the audit log."""
        reply = self._answer(data)
        self._audit = self._audit or AuditLog(self.folder)
        said = hashlib.sha256(data).digest() + hashlib.sha256(reply).digest()
        if said != self._said:  # what is asked and said again, word for word, stands there already
            try:
                self._audit.add(entry_of(data, reply) | self._spent())
            except SartorError as e:
                return self._refuse("", "disk", str(e))
        self._said = said
        return reply

    def _spent(self) -> dict[str, float]:
        """ε of the client that has spent most, in all runs, where this one is private."""
        if self.ledger is None:
            return {}
        total = self.ledger.most()[1]
        return {"epsilon": total} if math.isfinite(total) else {}

    def _answer(self, data: bytes) -> bytes:
        """Of what goes wrong, only names of settings and columns are sent."""
        try:
            request = decode(data, max(JOINING, 0 if self.site is None else self.site.most))
        except Damaged as e:
            return self._refuse("", "damaged", str(e))
        run = request.run
        try:
            if (step := self._joining.get(request.kind)) is not None:
                self._check_free(run)
                self._take_revoked(request)
                return encode(step(self, request))
            if self.site is None or self.site.run != run:
                self._again(run)
            if self.site is not None and request.kind == "done":
                self.finished = True
                if self.ledger is not None:
                    self.log(f"the run is over; it has spent {self.ledger.words()}")
                return encode(Message("noted", run))
        except _Told as e:
            return self._refuse(run, "agreement", str(e), {"text": str(e)})
        except OverLimit as e:
            return self._refuse(run, "limit", str(e), {"limit": e.limit})
        except Exception as e:  # also what an absurd request brings about in a library: a refusal, not the site's end
            return self._refuse(run, "failed", f"{type(e).__name__}: {e}")
        if self.site is None:
            text = "a run that this site has not joined; if it is new, it can take part in the next one"
            return self._refuse(run, "foreign", text)
        return self.site.answer(data)

    def _refuse(self, run: str, why: str, text: str, note: dict[str, Any] | None = None) -> bytes:
        self.log(f"refused ({why}): {text}")
        return encode(Message("refused", run, note={"why": why, "instance_id": self.instance_id} | (note or {})))

    # --- one run at a time --------------------------------------------------------------------------------------------

    def _current(self) -> dict[str, Any]:
        """The run that this site takes part in, and the start of the site at which it joined."""
        place = self.folder / CURRENT
        found: dict[str, Any] = read_json(place) if place.exists() else {}
        return found

    def _check_free(self, run: str) -> None:
        """Refuse a second run: one server could ask in the name of many."""
        now = self._current()
        busy = bool(now) and now["run"] != run and now["start"] == self.own.start
        if busy:
            raise OverLimit(
                "one_run",
                f"the server asks for run {run[:8]}, and this site takes part in run {now['run'][:8]}. To join another "
                "one, start sartor client again (over Flower: give the node another folder)",
            )

    def _take_revoked(self, request: Message) -> None:
        """The server's list of revoked certificates, if it is newer than this site's."""
        text = request.note.get("revoked")
        if self.identity is not None and isinstance(text, str):
            identity = self.identity
            self.identity = _told(lambda: identity.told(text, self.log))

    # --- joining ------------------------------------------------------------------------------------------------------

    def _join(self, request: Message) -> Message:
        """What the server must know of this site before it can say who is who: columns and numbers of samples."""
        self._check_version(request.note)
        recipe = self._recipe(request.note)
        own = self._split(recipe, self.table)
        self._check_terms(request.run, recipe, own)
        note = {
            "schema": table_schema.of(self.table),
            "counts": np.diff(own.bounds, axis=1).tolist(),
            "instance_id": self.instance_id,
            "sartor": versions.VERSION,
        }
        return Message("joined", request.run, note=note)

    def _check_version(self, note: Mapping[str, Any]) -> None:
        """Before anything else: another version may mean other things by the same words."""
        theirs = note.get("sartor", versions.UNMARKED)
        _told(lambda: versions.check_same(theirs, "the server", f"site {self.name}"))

    def _recipe(self, note: dict[str, Any]) -> Recipe:
        """The server's recipe, as a federation plays it."""
        recipe: Recipe = _told(lambda: shared(Recipe.of(note["recipe"], "the server's recipe")))
        return recipe

    def _check_terms(self, run: str, recipe: Recipe, own: Clients) -> None:
        """Hold the server to this site's own recipe, and to its limits."""
        mine, limits = self.own.mine, self.own.limits
        if mine is not None:
            _told(lambda: check(terms(recipe, own), terms(mine, own), "the server"))
        limits.check_recipe(recipe, mine)
        limits.check_rows(own)
        limits.check_model(self._parameters(recipe, own), own)
        asked = privacy(recipe)
        if limits.private and (asked is None or asked.noise is not None):  # an epsilon becomes noise in the welcome
            samples = None if asked is None else samples_of(recipe, own)
            self._ledger(run, None if asked is None else asked.noise, own, samples, 0).check_first()

    def _parameters(self, recipe: Recipe, own: Clients) -> int:
        try:
            return parameters(recipe, own)
        except (SartorError, RuntimeError, OverflowError, TypeError) as e:
            raise OverLimit("most_parameters", f"the server asks for a model that cannot be built: {e}") from e

    def _split(self, recipe: Recipe, table: Dataset, first: int = 0, agreed: Agreed | None = None) -> Clients:
        dtype, parts = TYPES[str(recipe.dtype)], tuple(recipe.parts)
        how = {"columns": columns_of(recipe), "target": target_of(recipe)}
        return table.split("natural", None, recipe.seed, parts, recipe.minimum, dtype, first, agreed=agreed, **how)

    def _measure(self, request: Message) -> Message:
        """Statistics of this site's training rows, for a common scale. They are told once in a run: of other rows they
        would tell the difference."""
        note, recipe = request.note, self._recipe(request.note)
        schema, first = table_schema.checked(note["schema"]), _count(note["first"])
        place = self._place(request.run).with_name(MEASURED)
        asked = digest({"recipe": recipe.values(), "schema": schema, "first": first})
        if place.exists() and read_json(place)["asked"] != asked:
            raise OverLimit("measured", "the server asks for statistics of other rows than before in the same run")
        table = self._fitted(recipe, schema, 1)
        self._check_terms(request.run, recipe, self._split(recipe, table, first))
        arrays = pooled_scale.measured(table, recipe, schema, first, self.own.limits.least_rows)
        write_json(place, {"asked": asked, "schema": schema, "first": first})
        write_json(self.folder / CURRENT, {"run": request.run, "start": self.own.start})
        return Message("measured", request.run, arrays=arrays, note={"instance_id": self.instance_id})

    def _fitted(self, recipe: Recipe, schema: table_schema.Schema, clients: int) -> Dataset:
        """This site's table with the agreed columns, if there is room for it."""
        features = table_schema.width(schema)
        self.own.limits.check_size(clients, len(self.table), features, TYPES[str(recipe.dtype)].itemsize)
        table: Dataset = _told(lambda: table_schema.fitted(self.table, schema, f"site {self.name}"))
        return table

    def _enter(self, request: Message) -> Message:
        """Take the server's terms, once: they are kept with the run, and a run's terms do not change."""
        self._check_version(request.note["terms"])
        place = self._place(request.run)
        site = self._build(request.run, request.note)
        if (told := place.with_name(MEASURED)).exists():
            before = read_json(told)
            same = all(request.note[k] == before[k] for k in ("schema", "first"))
            need(same, "the run's columns or clients are not those of which this site told statistics.")
        if place.exists():
            before = read_json(place)
            before["terms"] = versions.continued(before["terms"], f"the run in {place.parent}")
            _told(lambda: check(request.note["terms"], before["terms"], "the server"))
            good = agreed(before) == site.agreement and before["first"] == request.note["first"]
            need(good, "the run's clients or columns are not those that this site agreed on.")
            self.own.limits.check_longer(self._recipe(request.note), self._recipe(before))
        self.site = site
        write_json(place, request.note)
        write_json(self.folder / CURRENT, {"run": request.run, "start": self.own.start})
        self.finished = False
        self.log(f"joined run {request.run[:8]} with {len(self.site.ids)} clients")
        note: dict[str, Any] = {"instance_id": self.instance_id}
        if isinstance(self.site.masks, SiteMasks):
            note[KEY] = list(self.site.masks.signed_key())
        return Message("ready", request.run, self.site.agreement, note=note)

    def _again(self, run: str) -> None:
        """A run that this site joined before it was last started. With another version it is welcomed anew."""
        joined = self._current().get("run") == run and self._place(run).exists()
        note = read_json(self._place(run)) if joined else {"terms": {}}
        same = note["terms"].get("sartor") == versions.VERSION
        self.site = self._build(run, note) if same else None

    def _place(self, run: str) -> Path:
        good = len(run) == 32 and all(c in "0123456789abcdef" for c in run)
        need(good, "a run's name is 32 hexadecimal digits.")
        return self.folder / run / WELCOME

    def _build(self, run: str, note: dict[str, Any]) -> RemoteClients:
        recipe, limits = self._recipe(note), self.own.limits
        first, m, total, largest = (_count(note[k]) for k in ("first", "clients", "total", "largest"))
        schema = table_schema.checked(note["schema"])
        table = self._fitted(recipe, schema, m)
        scale = pooled_scale.given(recipe, schema, note.get("scale"))
        own = self._split(recipe, table, first, scale)
        finite = bool(torch.isfinite(own.x).all()) and bool(torch.isfinite(own.y.double()).all())
        need(finite, "the server's scale makes numbers of this site too large to compute with.")
        self._check_terms(run, recipe, own)
        clients = table_schema.among(own, first, m, total, largest)
        ours = _told(lambda: terms(recipe, clients) | frozen_terms(recipe, clients))
        _told(lambda: check(note["terms"], ours, "the server"))
        result = assemble(recipe, clients, noise=self.noise)
        limits.check_batches(result.run.method, own)
        engine = result.run.engine
        assert isinstance(engine, LocalEngine)
        engine.most_steps = limits.most_steps
        specs = {stage: spec_of(down) for stage, down in downlinks(result).items()}
        packing, method = None, result.run.method
        if isinstance(method, Compressed):
            packing = SiteCodes(method, specs["train"])
            engine.method = Coded(method)
            if packing.codes_down:
                specs = {stage: {k: v for k, v in spec.items() if k == GLOBAL} for stage, spec in specs.items()}
        bench = StatelessEngine(engine)
        self.ledger = None
        if result.private is not None:
            self.ledger = self._ledger(run, result.private.noise, own, result.samples, first)
        rows = {part: torch.from_numpy(clients.counts(part).copy()) for part in ("validation", "test")}

        def release(ids: Tensor, scores: State) -> State:
            here = {part: count[ids] for part, count in rows.items()}
            return released(scores, here, self.own.share, limits.least_scored, limits.score_digits)

        return RemoteClients(
            run=run,
            agreement=agreed(note),
            rounds=recipe.rounds,
            ids=range(first, first + len(own)),
            down=specs,
            packing=packing,
            masks=self._masks(run, recipe),
            spend=None if self.ledger is None else self._spend(self.ledger, first),
            bench=bench,
            store=ClientStore(self.folder / run, run, bench.start),
            keep=lambda round, ids, models: self._keep(result, own, first, round, ids, models),
            instance_id=self.instance_id,
            log=self.log,
            scored=lambda round: scheduled(recipe, round),
            looks=Looks(self.folder / run),
            release=release,
        )

    def _masks(self, run: str, recipe: Recipe) -> SiteMasks | None:
        """This site's half of secure aggregation, where it was asked for."""
        if not recipe.secure_aggregation:
            return None
        good = self.identity is not None
        _told(lambda: need(good, f"secure aggregation needs a kit's certificate, and site {self.name} has none."))
        assert self.identity is not None
        return SiteMasks(self.folder / run, run, self.identity, recipe.secure_sites)

    def _ledger(
        self, run: str, noise: float | None, own: Clients, samples: Samples | None, first: int
    ) -> PrivacyLedger:
        """The account of this site's clients, of which `first` is the first in `samples`."""
        place, limits = self.folder, self.own.limits
        if samples is None:
            return PrivacyLedger(place, run, noise, own.names, limits)
        rates = samples.rates[first : first + len(own)].tolist()
        return PrivacyLedger(place, run, noise, own.names, limits, rates, samples.steps)

    def _spend(self, ledger: PrivacyLedger, first: int) -> Callable[[int, Sequence[int]], None]:
        """What is entered before messages with noise are made."""
        return lambda round, clients: ledger.enter(round, [client - first for client in clients])

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

    _joining: ClassVar[Mapping[str, Callable[[Participant, Message], Message]]] = {
        "hello": _join,
        "measure": _measure,
        "welcome": _enter,
    }


class _Told(SartorError):
    """A refusal whose text holds settings or columns only, and may be sent."""


def _told(step: Callable[[], Any]) -> Any:
    try:
        return step()
    except SartorError as e:
        raise _Told(str(e)) from e


def scheduled(recipe: Recipe, round: int) -> bool:
    """Whether a run of this recipe is scored after so many rounds. A run with a budget may end after any of them."""
    last = round == recipe.rounds or recipe.budget is not None
    return round >= 1 and (last or round % recipe.evaluate_every == 0)


def _count(value: Any) -> int:
    need(type(value) is int and 0 <= value < 1 << 31, "a number in the server's welcome is no count.")
    return int(value)


def agreed(note: dict[str, Any]) -> str:
    """The hash of all that was agreed on in a welcome."""
    return digest({k: note.get(k) for k in ("terms", "schema", "scale", "clients", "total", "largest")})
