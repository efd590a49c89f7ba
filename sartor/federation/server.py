"""The server of a federation: sites join, the terms are settled, and the one round loop is played over a hub."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cryptography.x509 import Certificate

from ..data import Clients
from ..data.tables.moments import Moments
from ..engines.local import LocalEngine
from ..errors import SartorError, Silent, need, readable
from ..judge.metrics import score_ranges
from ..run import versions
from ..run.assemble import assemble
from ..run.complete import TYPES, complete
from ..run.play import CHECKPOINT, play_recipe
from ..run.recipe import Recipe
from ..run.result import Result
from ..storage import read_json, write_json
from ..wrappers.compression import DOWN, UP, Compressed
from . import pooled_scale, table_schema
from .coded_rounds import ServerCodes
from .masked_scale import MaskedScale
from .masks import ServerMasks
from .revocation import NOBODY, Revoked
from .rounds.agreement import check
from .rounds.masking import KEY, SEED, SEED_BYTES, SUM, scores_spec
from .rounds.messages import JOINING, Damaged, Message, Spec, decode, encode, size_of, spec_of
from .rounds.remote_clients import GLOBAL
from .rounds.remote_engine import STEPS, RemoteEngine, Transport, Waiting
from .site_runs import agreed
from .terms import downlinks, frozen_terms, shared, terms

ROSTER = "roster.json"
_CLIENTS = 100_000  # of one site
_SAMPLES = 1 << 31  # of one client


def _nothing(site: str, reply: Message) -> None:
    """Of a reply that only has to come."""


@dataclass
class Coordinator:
    """One run of a federation, in a folder of the server's own."""

    name: str
    folder: Path
    recipe: Recipe
    sites: Sequence[str]
    transport: Transport
    waiting: Waiting
    say: Callable[[str], None]
    joining: float = 600.0  # seconds to wait for all sites; then those that are there begin, if they are enough
    again: float = 5.0  # seconds after which a site that has not yet joined is asked again
    hub: RemoteEngine | None = None
    authority: Certificate | None = None  # who signs the sites' certificates: needed for secure aggregation
    revoked: Revoked = NOBODY  # which of them are no longer accepted
    instance_ids: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # sites that do not take part, and why

    def play(self) -> Iterator[Result]:
        """Play to the end, from the last checkpoint if there is one. Yields after every round."""
        recipe = shared(self.recipe)
        roster = self._roster(recipe)
        self._compare_members(roster)
        self.instance_ids = {site: v["instance_id"] for site, v in roster["sites"].items()}
        clients = self._clients(roster, recipe)
        masks = self._masks(recipe, roster)
        roster = self._scaled(recipe, roster, masks)
        inputs = pooled_scale.inputs(roster["scale"], recipe, roster["schema"], clients.names)
        clients = replace(clients, inputs=inputs)
        note = self._terms(recipe, clients, roster)
        told = {
            s: Message("welcome", roster["run"], note=note | {"first": v["first"], "revoked": self.revoked.text})
            for s, v in roster["sites"].items()
        }
        begun = (self.folder / CHECKPOINT).exists()  # then a site that is away is not waited for longer than in a round
        patience = min(self.joining, self.waiting.seconds) if begun else self.joining
        read = _nothing if masks is None else self._read_key(masks)
        enough = self.waiting.clients if begun or masks is None else max(self.waiting.clients, masks.least)
        self._ask(told, list(told), patience, enough, read)
        sites = {s: range(v["first"], v["first"] + len(v["counts"])) for s, v in roster["sites"].items()}
        probe, packing = _answers(recipe, table_schema.stand_in(clients), len(clients))
        welcome = {site: encode(m) for site, m in told.items() if site not in self.left_out}
        terms = (roster["run"], agreed(note))
        ranges = score_ranges(clients.classes is not None)
        self.hub = RemoteEngine(
            *terms,
            sites,
            probe,
            self.transport,
            self.waiting,
            self.say,
            welcome,
            self.instance_ids,
            ranges,
            packing,
            masks,
        )
        self.hub.gone = frozenset(sites) - frozenset(self.sites)
        yield from play_recipe(recipe, clients, self.folder, self.hub)
        self._ask(Message("done", roster["run"]), list(sites), 10.0, enough=0)

    def _masks(self, recipe: Recipe, roster: dict[str, Any]) -> ServerMasks | None:
        """The server's half of secure aggregation, where it was asked for."""
        if not recipe.secure_aggregation:
            return None
        need(self.authority is not None, "secure aggregation needs the certificates of kits; none are known here.")
        least, sites = recipe.secure_sites, len(roster["sites"])
        text = f"secure aggregation needs at least {least} sites, as the sum of two tells each the other's message"
        need(sites >= least, f"{text}; got {sites}.")
        assert self.authority is not None
        return ServerMasks(roster["run"], least, self.authority, self.revoked)

    def _read_key(self, masks: ServerMasks) -> Callable[[str, Message], object]:
        def read(site: str, reply: Message) -> None:
            try:
                masks.take(site, reply.note.get(KEY))
            except SartorError as e:
                raise Damaged(str(e)) from e

        return read

    # --- joining ------------------------------------------------------------------------------------------------------

    def _roster(self, recipe: Recipe) -> dict[str, Any]:
        """Who takes part: settled once, before the first round, and kept."""
        place = self.folder / ROSTER
        if place.exists():
            found: dict[str, Any] = read_json(place)
            return found
        run = secrets.token_hex(16)
        note = {"recipe": recipe.values(), "sartor": versions.VERSION, "revoked": self.revoked.text}
        hello = Message("hello", run, note=note)
        replies = self._ask(
            hello, self.sites, self.joining, self.waiting.clients, lambda site, reply: Joined.of(reply.note)
        )
        joined = {site: Joined.of(replies[site].note) for site in sorted(replies)}
        for site in [site for site, own in joined.items() if own.version != versions.VERSION]:
            has = readable(joined.pop(site).version, 32)
            self._leave_out(site, f"it has Sartor {has} and the server {versions.VERSION}: install the same at both")
        self._enough(len(joined), self.waiting.clients)
        agreed_on, others = table_schema.agree({site: own.schema for site, own in joined.items()})
        for site, why in others.items():
            self._leave_out(site, why)
        self._enough(len(joined) - len(others), self.waiting.clients)
        sites, first = {}, 0
        for site, own in joined.items():
            if site not in others:
                sites[site] = {"first": first, "counts": own.counts, "instance_id": own.instance_id}
                first += len(own.counts)
        roster = {"run": run, "federation": self.name, "sites": sites, "schema": agreed_on}
        write_json(place, roster)
        self.say(f"{len(sites)} sites with {first} clients: {', '.join(sites)}")
        return roster

    def _compare_members(self, roster: dict[str, Any]) -> None:
        """Hold the list of sites against the run's own, which is settled: who left takes no part any more, and who is
        new takes part in the next run."""
        for site in roster["sites"]:
            if site not in self.sites:
                self._leave_out(site, "it is no longer on the server's list")
        for site in self.sites:
            if site not in roster["sites"] and site not in self.left_out:
                self.say(f"site {site} is not in this run, which began without it; it can take part in the next one")
                self.transport.post(site, encode(Message("done", roster["run"])))

    def _scaled(self, recipe: Recipe, roster: dict[str, Any], masks: ServerMasks | None) -> dict[str, Any]:
        """The roster with one scale for all: settled once, of what the sites say of their training rows, and kept. A
        site that is silent, or has too few rows to say anything, takes the others'. One that sent nonsense keeps its
        numbers of clients, as they are settled, and takes no part."""
        if "scale" in roster:
            self.left_out = roster["left_out"] | self.left_out
            return roster
        schema, scale = roster["schema"], None
        if pooled_scale.needed(recipe, schema):
            told = {
                site: {"recipe": recipe.values(), "schema": schema, "first": v["first"]}
                for site, v in roster["sites"].items()
            }
            rows = {site: [row[0] for row in v["counts"]] for site, v in roster["sites"].items()}
            scale = (
                self._measured(roster["run"], recipe, schema, told, rows)
                if masks is None
                else MaskedScale(
                    roster["run"], recipe, schema, told, rows, masks, self._asking, self.folder, self.say
                ).settled()
            )
        refused = {s: why for s, why in self.left_out.items() if s in roster["sites"] and s in self.sites}
        roster = roster | {"scale": scale, "left_out": refused}
        write_json(self.folder / ROSTER, roster)
        return roster

    def _measured(
        self,
        run: str,
        recipe: Recipe,
        schema: table_schema.Schema,
        told: dict[str, dict[str, Any]],
        rows: dict[str, list[int]],
    ) -> pooled_scale.Scale:
        """The scale of what each site tells of its clients."""
        ask = {site: Message("measure", run, note=note) for site, note in told.items()}

        def read(site: str, reply: Message) -> Moments:
            return pooled_scale.checked(reply.arrays, recipe, schema, rows[site])

        replies = self._ask(ask, list(ask), self.joining, self.waiting.clients, read)
        return pooled_scale.settled([read(site, replies[site]) for site in told if site in replies], recipe, schema)

    def _asking(
        self, messages: Mapping[str, Message], enough: int, read: Callable[[str, Message], object]
    ) -> dict[str, Message]:
        return self._ask(dict(messages), list(messages), self.joining, enough, read)

    def _leave_out(self, site: str, why: str) -> None:
        """A site that cannot or will not take part keeps nobody else from it."""
        self.left_out[site] = why
        self.say(f"site {site} is left out: {why}")

    def _enough(self, there: int, enough: int, missing: Sequence[str] = (), seconds: float = 0.0) -> None:
        """Stop where too few sites are left, with the reasons."""
        if there >= enough:
            return
        why = [f"site {site} is left out: {text}" for site, text in self.left_out.items()]
        if missing:
            why.append(f"missing after {seconds:.0f} s: {', '.join(missing)}. Start them, or lower --min-clients.")
        kind = Silent if missing else SartorError
        raise kind(f"only {there} of at least {enough} sites can take part; {' '.join(why)}")

    def _clients(self, roster: dict[str, Any], recipe: Recipe) -> Clients:
        counts = [row for site in roster["sites"].values() for row in site["counts"]]
        names = [
            site if len(v["counts"]) == 1 else f"{site}/{i}"
            for site, v in roster["sites"].items()
            for i in range(len(v["counts"]))
        ]
        about: dict[str, object] = {"source": self.name, "partition": {"name": "natural", "text": "natural"}}
        table = np.array(counts, dtype=np.int64)
        return table_schema.unseen(roster["schema"], table, names, TYPES[str(recipe.dtype)], about)

    def _terms(self, recipe: Recipe, clients: Clients, roster: dict[str, Any]) -> dict[str, Any]:
        """What every site is told and must agree to."""
        count = clients.counts("train")
        note = {
            "recipe": complete(recipe, clients).values(),
            "terms": terms(recipe, clients) | frozen_terms(recipe, clients),
            "schema": roster["schema"],
            "scale": roster["scale"],
            "clients": len(clients),
            "total": int(count.sum()),
            "largest": int(count.max()),
        }
        if "terms" in roster:
            before = versions.continued(roster["terms"], f"the run in {self.folder}")
            check(before, note["terms"], "the run in this folder")
        if roster.get("terms") != note["terms"]:
            write_json(self.folder / ROSTER, roster | {"terms": note["terms"]})
        return note

    def _ask(
        self,
        what: Message | dict[str, Message],
        sites: Sequence[str],
        seconds: float,
        enough: int,
        read: Callable[[str, Message], object] = _nothing,
    ) -> dict[str, Message]:
        """Replies of all sites but those that are left out; after `seconds` of those that came, if they are enough.
        `read` is what will be made of a reply: a site whose reply is Damaged is left out."""
        messages = what if isinstance(what, dict) else dict.fromkeys(sites, what)
        wanted = {"hello": "joined", "measure": "measured", "welcome": "ready", "done": "noted"}[
            next(iter(messages.values())).kind
        ]
        found: dict[str, Message] = {}
        began = time.monotonic()
        asked = -math.inf
        while missing := [s for s in sites if s not in found and s not in self.left_out]:
            now = time.monotonic()
            if now - began >= seconds:
                break
            if now - asked >= self.again:
                asked = now
                for site in missing:
                    self.transport.post(site, encode(messages[site]))
            for site, data in self.transport.collect(min(1.0, max(0.0, began + seconds - now))):
                if site in missing and (reply := self._reply(site, data, wanted, messages[site], read)) is not None:
                    found[site] = reply
        if wanted != "noted":
            self._enough(len(found), enough, missing, seconds)
        return found

    def _reply(
        self, site: str, data: bytes, wanted: str, asked: Message, read: Callable[[str, Message], object]
    ) -> Message | None:
        """What a site says to a question before or after the rounds; None where it is not the answer."""
        run, summed = asked.run, asked.note.get(SUM)
        try:
            reply = decode(data, JOINING if wanted in ("joined", "measured") else size_of({}, 0))
            if reply.kind == "refused" and reply.run in ("", run) and wanted != "noted":
                self._refused(site, reply, wanted)
            if reply.kind != wanted or reply.run != run or reply.note.get(SUM) != summed:
                return None
            if wanted in ("ready", "measured") and self._stranger(site, reply):
                return None
            read(site, reply)
        except Damaged as e:
            self._leave_out(site, f"it sent what nobody can use: {e}")
            return None
        return reply

    def _refused(self, site: str, reply: Message, wanted: str) -> None:
        if wanted == "joined" or not self._stranger(site, reply):
            text = reply.note.get("text") or f"{reply.note.get('why')} {reply.note.get('limit', '')}".strip()
            self._leave_out(site, f"it refused ({readable(str(text), 300)}); its own log says more")

    def _stranger(self, site: str, reply: Message) -> bool:
        """Whether a reply comes from another copy of the site than the one that joined."""
        other = reply.note.get("instance_id") != self.instance_ids[site]
        if other:
            self.say(f"somebody else joins in the name of site {site}: not taken. Is its kit in use elsewhere?")
        return other


@dataclass(frozen=True)
class Joined:
    """What a site says of itself before the first round."""

    schema: dict[str, Any]
    counts: list[list[int]]  # training, validation and test samples of each client
    instance_id: str
    version: str = versions.UNMARKED

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> Joined:
        """Read a site's words; Damaged where they are not what was asked for."""
        counts, name, version = note.get("counts"), note.get("instance_id"), note.get("sartor", versions.UNMARKED)
        if not isinstance(counts, list) or not 1 <= len(counts) <= _CLIENTS or not all(map(_three, counts)):
            raise Damaged("no numbers of samples")
        if not isinstance(name, str) or not 1 <= len(name) <= 64 or not name.isalnum():
            raise Damaged("no instance id")
        return cls(table_schema.checked(note.get("schema")), counts, name, str(version))


def _three(row: Any) -> bool:
    """Whether these are a client's numbers of samples."""
    return (
        isinstance(row, list)
        and len(row) == 3
        and all(type(n) is int and 0 <= n < _SAMPLES for n in row)
        and row[0] > 0
    )


def _answers(recipe: Recipe, clients: Clients, count: int) -> tuple[dict[str, Spec], ServerCodes | None]:
    """By stage: what a client's answer holds, found by playing one round of one client with samples of zeros; and how
    answers of `count` clients are coded."""
    result = assemble(recipe.replace(engine="serial"), clients)
    assert isinstance(result.run.engine, LocalEngine)
    one, sent = torch.zeros(1, dtype=torch.int64), downlinks(result)
    _, message = result.run.engine.map("train", 0, one, sent["train"])
    message = {k: v for k, v in message.items() if k not in (UP, DOWN)}
    method, packing = result.run.method, None
    if isinstance(method, Compressed):
        start = {k: rows.start for k, rows in result.run.engine.states.items()}
        packing = ServerCodes(method, start, count, spec_of(sent["train"]), spec_of(message))
    trained = {STEPS: torch.zeros(1, dtype=torch.int64)}
    if packing is None or not packing.codes_up:
        trained |= {f"message/{k}": v for k, v in message.items()}
    _, scores = result.run.engine.map("evaluate", 0, one, sent["train"], sent["evaluate"].get(GLOBAL))
    seed: Spec = {SEED: (torch.uint8, (SEED_BYTES,))}
    scored = scores_spec(spec_of(scores)) if recipe.secure_aggregation else spec_of(scores)
    return {"train": spec_of(trained), "unmask": seed, "evaluate": scored, "personal": {}}, packing
