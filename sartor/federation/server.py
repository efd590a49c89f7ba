"""The server of a federation: sites join, the terms are settled, and the one round loop is played over a hub."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data import Clients
from ..errors import SartorError, Silent, need
from ..run.assemble import TYPES, assemble, complete
from ..run.play import CHECKPOINT, play_recipe
from ..run.recipe import Recipe
from ..run.result import Result
from ..storage import read_json, write_json
from . import table_schema
from .rounds.agreement import check
from .rounds.messages import Damaged, Message, Spec, decode, encode, spec_of
from .rounds.remote_clients import GLOBAL
from .rounds.remote_engine import STEPS, RemoteEngine, Transport, Waiting
from .site import agreed
from .terms import downlinks, shared, terms

ROSTER = "roster.json"


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
    instance_ids: dict[str, str] = field(default_factory=dict)

    def play(self) -> Iterator[Result]:
        """Play to the end, from the last checkpoint if there is one. Yields after every round."""
        recipe = shared(self.recipe)
        roster = self._roster(recipe)
        self.instance_ids = {site: v["instance_id"] for site, v in roster["sites"].items()}
        clients = self._clients(roster, recipe)
        note = self._terms(recipe, clients, roster)
        told = {
            s: Message("welcome", roster["run"], note=note | {"first": v["first"]}) for s, v in roster["sites"].items()
        }
        begun = (self.folder / CHECKPOINT).exists()  # then a site that is away is not waited for longer than in a round
        patience = min(self.joining, self.waiting.seconds) if begun else self.joining
        self._ask(told, list(told), patience, self.waiting.clients)
        sites = {s: range(v["first"], v["first"] + len(v["counts"])) for s, v in roster["sites"].items()}
        probe = _answers(recipe, table_schema.stand_in(clients))
        welcome = {site: encode(m) for site, m in told.items()}
        terms = (roster["run"], agreed(note))
        self.hub = RemoteEngine(
            *terms, sites, probe, self.transport, self.waiting, self.say, welcome, self.instance_ids
        )
        yield from play_recipe(recipe, clients, self.folder, self.hub)
        self._ask(Message("done", roster["run"]), list(sites), 10.0, enough=len(sites))

    # --- joining ------------------------------------------------------------------------------------------------------

    def _roster(self, recipe: Recipe) -> dict[str, Any]:
        """Who takes part: settled once, before the first round, and kept."""
        place = self.folder / ROSTER
        if place.exists():
            found: dict[str, Any] = read_json(place)
            return found
        run = secrets.token_hex(16)
        hello = Message("hello", run, note={"recipe": recipe.values()})
        replies = self._ask(hello, self.sites, self.joining, self.waiting.clients)
        joined = {site: replies[site].note for site in sorted(replies)}
        agreed_on = table_schema.agree({site: note["schema"] for site, note in joined.items()})
        sites, first = {}, 0
        for site, note in joined.items():
            sites[site] = {"first": first, "counts": note["counts"], "instance_id": str(note["instance_id"])}
            first += len(note["counts"])
        roster = {"run": run, "federation": self.name, "sites": sites, "schema": agreed_on}
        write_json(place, roster)
        self.say(f"{len(sites)} sites with {first} clients: {', '.join(sites)}")
        return roster

    def _clients(self, roster: dict[str, Any], recipe: Recipe) -> Clients:
        counts = [row for site in roster["sites"].values() for row in site["counts"]]
        names = [
            site if len(v["counts"]) == 1 else f"{site}/{i}"
            for site, v in roster["sites"].items()
            for i in range(len(v["counts"]))
        ]
        about: dict[str, object] = {"source": self.name, "partition": {"name": "natural", "text": "natural"}}
        table = np.array(counts, dtype=np.int64)
        need(table.ndim == 2 and table.shape[1] == 3 and bool((table[:, 0] > 0).all()), "a site sent no sample counts.")
        return table_schema.unseen(roster["schema"], table, names, TYPES[str(recipe.dtype)], about)

    def _terms(self, recipe: Recipe, clients: Clients, roster: dict[str, Any]) -> dict[str, Any]:
        """What every site is told and must agree to."""
        count = clients.counts("train")
        note = {
            "recipe": complete(recipe, clients).values(),
            "terms": terms(recipe, clients),
            "schema": roster["schema"],
            "clients": len(clients),
            "total": int(count.sum()),
            "largest": int(count.max()),
        }
        if "terms" in roster:
            check(roster["terms"], note["terms"], "the run in this folder")
        else:
            write_json(self.folder / ROSTER, roster | {"terms": note["terms"]})
        return note

    def _ask(
        self, what: Message | dict[str, Message], sites: Sequence[str], seconds: float, enough: int
    ) -> dict[str, Message]:
        """Replies of all sites; after `seconds` of those that came, if they are enough. A refusal ends it."""
        messages = what if isinstance(what, dict) else dict.fromkeys(sites, what)
        wanted = {"hello": "joined", "welcome": "ready", "done": "noted"}[next(iter(messages.values())).kind]
        found: dict[str, Message] = {}
        began = time.monotonic()
        asked = began - self.again
        while len(found) < len(sites):
            now = time.monotonic()
            if now - began >= seconds:
                if len(found) >= enough or wanted == "noted":
                    break
                raise Silent(
                    f"only {len(found)} of at least {enough} sites were there after {seconds:.0f} s "
                    f"(missing: {', '.join(s for s in sites if s not in found)}). Start them, or lower --min-clients."
                )
            if now - asked >= self.again:
                asked = now
                for site in sites:
                    if site not in found:
                        self.transport.post(site, encode(messages[site]))
            for site, data in self.transport.collect(min(1.0, max(0.0, began + seconds - now))):
                reply = self._read(data)
                if reply is None or site not in messages or reply.kind not in (wanted, "refused"):
                    continue
                if reply.kind == "refused" and wanted != "noted":
                    text = reply.note.get("text") or "its own log says why"
                    raise SartorError(f"site {site} refused: {text}")
                if wanted == "ready" and reply.note.get("instance_id") != self.instance_ids[site]:
                    self.say(f"somebody else joins in the name of site {site}: not taken. Is its kit in use elsewhere?")
                elif reply.run == messages[site].run or wanted == "noted":
                    found[site] = reply
        return found

    def _read(self, data: bytes) -> Message | None:
        try:
            return decode(data)
        except Damaged as e:
            self.say(f"rejected a message: {e}")
            return None


def _answers(recipe: Recipe, clients: Clients) -> dict[str, Spec]:
    """By stage: what a client's answer holds, found by playing one round of one client with samples of zeros."""
    result = assemble(recipe.replace(engine="serial"), clients)
    one, sent = torch.zeros(1, dtype=torch.int64), downlinks(result)
    _, message = result.run.engine.map("train", 0, one, sent["train"])
    trained = {f"message/{k}": v for k, v in message.items()} | {STEPS: torch.zeros(1, dtype=torch.int64)}
    _, scores = result.run.engine.map("evaluate", 0, one, sent["train"], sent["evaluate"].get(GLOBAL))
    return {"train": spec_of(trained), "evaluate": spec_of(scores), "personal": {}}
