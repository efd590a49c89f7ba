"""What a site makes of a server's recipe: its own rows as that run's clients, held to the site's limits.

Everything that decides what a run may compute here is in this file; site.py answers the server.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core import State
from ..data import Clients, Dataset
from ..data.dataset import Agreed
from ..engines.local import LocalEngine
from ..engines.stateless import StatelessEngine
from ..errors import SartorError, need
from ..run.assemble import assemble
from ..run.complete import TYPES, columns_of, parameters, privacy, samples_of, target_of
from ..run.privacy_account import Samples
from ..run.recipe import Recipe
from ..run.result import Result
from ..storage import read_json, save_tensors, write_json
from ..wrappers.compression import Compressed
from ..wrappers.privacy import NoiseSource
from . import os_noise, pooled_scale, table_schema
from .coded_rounds import Coded, SiteCodes
from .limits import OverLimit
from .masks import Identity, SiteMasks
from .privacy_ledger import PrivacyLedger
from .released_scores import released
from .rounds.agreement import check, digest
from .rounds.client_store import ClientStore, Looks
from .rounds.messages import spec_of
from .rounds.remote_clients import GLOBAL, RemoteClients
from .site_config import SiteConfig
from .terms import downlinks, frozen_terms, shared, terms

SEAT = "seat.json"  # the secret that names this copy of a site


@dataclass
class SiteRuns:
    """A site's table, and the runs that are made of it."""

    name: str
    folder: Path  # its own: states, models
    own: SiteConfig
    log: Callable[[str], None] = lambda text: None
    noise: NoiseSource = os_noise.standard_normal  # tests hand in what a simulation draws
    identity: Identity | None = None  # the kit's certificate: needed for secure aggregation
    ledger: PrivacyLedger | None = None  # of the run that this site takes part in, where it is private
    _table: Dataset | None = field(default=None, repr=False)

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

    def recipe(self, note: dict[str, Any]) -> Recipe:
        """The server's recipe, as a federation plays it."""
        recipe: Recipe = told(lambda: shared(Recipe.of(note["recipe"], "the server's recipe")))
        return recipe

    def check_terms(self, run: str, recipe: Recipe, own: Clients) -> None:
        """Hold the server to this site's own recipe, and to its limits."""
        mine, limits = self.own.mine, self.own.limits
        if mine is not None:
            told(lambda: check(terms(recipe, own), terms(mine, own), "the server"))
        limits.check_recipe(recipe, mine)
        limits.check_rows(own)
        limits.check_model(self._parameters(recipe, own), own)
        asked = privacy(recipe)
        samples = samples_of(recipe, own) if limits.private else None
        # An epsilon of clients becomes noise in the welcome; of samples, each site finds its own.
        if limits.private and (asked is None or asked.noise is not None or samples is not None):
            self._ledger(run, None if asked is None else asked.noise, own, samples, 0).check_first()

    def _parameters(self, recipe: Recipe, own: Clients) -> int:
        try:
            return parameters(recipe, own)
        except (SartorError, RuntimeError, OverflowError, TypeError) as e:
            raise OverLimit("most_parameters", f"the server asks for a model that cannot be built: {e}") from e

    def split(self, recipe: Recipe, table: Dataset, first: int = 0, agreed: Agreed | None = None) -> Clients:
        dtype, parts = TYPES[str(recipe.dtype)], tuple(recipe.parts)
        dealt = ("natural", None, recipe.seed, parts, recipe.minimum, dtype, first)
        return table.split(*dealt, columns=columns_of(recipe), target=target_of(recipe), agreed=agreed)

    def fitted(self, recipe: Recipe, schema: table_schema.Schema, clients: int) -> Dataset:
        """This site's table with the agreed columns, if there is room for it."""
        features = table_schema.width(schema)
        self.own.limits.check_size(clients, len(self.table), features, TYPES[str(recipe.dtype)].itemsize)
        table: Dataset = told(lambda: table_schema.fitted(self.table, schema, f"site {self.name}"))
        return table

    def build(self, run: str, note: dict[str, Any]) -> RemoteClients:
        recipe, limits = self.recipe(note), self.own.limits
        first, m, total, largest = (count(note[k]) for k in ("first", "clients", "total", "largest"))
        schema = table_schema.checked(note["schema"])
        table = self.fitted(recipe, schema, m)
        scale = pooled_scale.given(recipe, schema, note.get("scale"))
        own = self.split(recipe, table, first, scale)
        finite = bool(torch.isfinite(own.x).all()) and bool(torch.isfinite(own.y.double()).all())
        need(finite, "the server's scale makes numbers of this site too large to compute with.")
        self.check_terms(run, recipe, own)
        clients = table_schema.among(own, first, m, total, largest)
        ours = told(lambda: terms(recipe, clients) | frozen_terms(recipe, clients))
        told(lambda: check(note["terms"], ours, "the server"))
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
            share = "each" if recipe.secure_aggregation and self.own.share == "mean" else self.own.share  # of all sites
            return released(scores, here, share, limits.least_scored, limits.score_digits)

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
        told(lambda: need(good, f"secure aggregation needs a kit's certificate, and site {self.name} has none."))
        assert self.identity is not None
        return SiteMasks(self.folder / run, run, self.identity, recipe.secure_sites)

    def _ledger(
        self, run: str, noise: float | None, own: Clients, samples: Samples | None, first: int
    ) -> PrivacyLedger:
        """The account of this site's clients, of which `first` is the first in `samples`."""
        place, limits = self.folder, self.own.limits
        if samples is None:
            return PrivacyLedger(place, run, [noise] * len(own), own.names, limits)
        here = slice(first, first + len(own))
        noises, rates = samples.noise[here].tolist(), samples.rates[here].tolist()
        return PrivacyLedger(place, run, noises, own.names, limits, rates, samples.steps)

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


class Told(SartorError):
    """A refusal whose text holds settings or columns only, and may be sent."""


def told(step: Callable[[], Any]) -> Any:
    try:
        return step()
    except SartorError as e:
        raise Told(str(e)) from e


def scheduled(recipe: Recipe, round: int) -> bool:
    """Whether a run of this recipe is scored after so many rounds. A run with a budget may end after any of them."""
    last = round == recipe.rounds or recipe.budget is not None
    return round >= 1 and (last or round % recipe.evaluate_every == 0)


def count(value: Any) -> int:
    need(type(value) is int and 0 <= value < 1 << 31, "a number in the server's welcome is no count.")
    return int(value)


def agreed(note: dict[str, Any]) -> str:
    """The hash of all that was agreed on in a welcome."""
    return digest({k: note.get(k) for k in ("terms", "schema", "scale", "clients", "total", "largest")})
