"""A site of a federation: what it answers a server, before the first round and in each. Engines hand it requests."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..data.tables.moments import Moments
from ..errors import Refused, SartorError, need
from ..run import versions
from ..storage import read_json, write_json
from . import masked_scale, pooled_scale, table_schema
from .audit_log import AuditLog, entry_of
from .limits import OverLimit
from .masks import SiteMasks
from .rounds.agreement import check, digest
from .rounds.masking import KEY, SECURE, SEED, SUM, SumOf
from .rounds.messages import JOINING, Damaged, Message, decode, encode
from .rounds.remote_clients import RemoteClients
from .site_runs import SiteRuns, Told, agreed, count, told

CURRENT = "run.json"  # which run a site takes part in
WELCOME = "welcome.json"  # of a run: the terms that this site took
MEASURED = "measured.json"  # of a run: which rows its statistics were told of


@dataclass
class Participant(SiteRuns):
    """Answers everything that a server may ask of this site."""

    site: RemoteClients | None = None
    finished: bool = False
    _audit: AuditLog | None = field(default=None, repr=False)
    _said: bytes = field(default=b"", repr=False)

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
        except Told as e:
            return self._refuse(run, "agreement", str(e), {"text": str(e)})
        except Refused as e:
            return self._refuse(run, e.why, str(e), {"limit": e.limit} if e.limit else None)
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
            self.identity = told(lambda: identity.told(text, self.log))

    def _check_version(self, note: Mapping[str, Any]) -> None:
        """Before anything else: another version may mean other things by the same words."""
        theirs = note.get("sartor", versions.UNMARKED)
        told(lambda: versions.check_same(theirs, "the server", f"site {self.name}"))

    # --- joining ------------------------------------------------------------------------------------------------------

    def _join(self, request: Message) -> Message:
        """What the server must know of this site before it can say who is who: columns and numbers of samples."""
        self._check_version(request.note)
        recipe = self.recipe(request.note)
        own = self.split(recipe, self.table)
        self.check_terms(request.run, recipe, own)
        note = {
            "schema": table_schema.of(self.table),
            "counts": np.diff(own.bounds, axis=1).tolist(),
            "instance_id": self.instance_id,
            "sartor": versions.VERSION,
        }
        return Message("joined", request.run, note=note)

    def _measure(self, request: Message) -> Message:
        """Statistics of this site's training rows, for a common scale. They are told once in a run: of other rows they
        would tell the difference."""
        note, recipe = request.note, self.recipe(request.note)
        schema, first = table_schema.checked(note["schema"]), count(note["first"])
        place = self._place(request.run).with_name(MEASURED)
        asked = {"asked": digest({"recipe": recipe.values(), "schema": schema, "first": first})}
        before = read_json(place) if place.exists() else {}
        if note.get("part") == masked_scale.APART:
            asked["scale"] = digest({"scale": note.get("scale")})
        if any(before.get(k, v) != v for k, v in asked.items()):
            raise OverLimit("measured", "the server asks for statistics of other rows than before in the same run")
        table = self.fitted(recipe, schema, 1)
        self.check_terms(request.run, recipe, self.split(recipe, table, first))
        each = pooled_scale.measured(table, recipe, schema, first, self.own.limits.least_rows)
        masks = self._masks(request.run, recipe)
        said: dict[str, Any] = {"instance_id": self.instance_id}
        if masks is None:
            arrays = each._asdict()
        else:
            said |= {SUM: str(note.get(SUM))[:64]}
            arrays = self._summed(masks, request, each, asked, before)
            said |= {KEY: list(masks.signed_key())} if note.get("part") == masked_scale.KEYS else {}
        told = sorted({*before.get("told", []), str(note.get("part"))})
        write_json(place, before | asked | {"schema": schema, "first": first, "told": told})
        write_json(self.folder / CURRENT, {"run": request.run, "start": self.own.start})
        return Message("measured", request.run, arrays=arrays, note=said)

    def _summed(
        self, masks: SiteMasks, request: Message, each: Moments, asked: dict[str, str], before: dict[str, Any]
    ) -> dict[str, np.ndarray]:
        """The statistics under masks; or what opens their sum, once they were told."""
        note, part = request.note, request.note.get("part")
        if part == masked_scale.KEYS:
            return {}
        need(part in (masked_scale.SUMS, masked_scale.APART), "statistics are summed as sums or apart.")
        of = SumOf(0, str(part), digest(asked))
        if note.get("open") is True:
            need(part in before.get("told", []), "a sum is not opened before this site has answered.")
            return {SEED: np.frombuffer(masks.opened(of, note.get(SECURE)), np.uint8)[None]}
        recipe, schema = self.recipe(note), table_schema.checked(note["schema"])
        arrays = masked_scale.statistics(str(part), each, recipe, schema, note.get("scale"))
        return masks.masked(of, note.get(SECURE), arrays)

    def _enter(self, request: Message) -> Message:
        """Take the server's terms, once: they are kept with the run, and a run's terms do not change."""
        self._check_version(request.note["terms"])
        place = self._place(request.run)
        site = self.build(request.run, request.note)
        if (measured := place.with_name(MEASURED)).exists():
            before = read_json(measured)
            same = all(request.note[k] == before[k] for k in ("schema", "first"))
            need(same, "the run's columns or clients are not those of which this site told statistics.")
        if place.exists():
            before = read_json(place)
            before["terms"] = versions.continued(before["terms"], f"the run in {place.parent}")
            told(lambda: check(request.note["terms"], before["terms"], "the server"))
            good = agreed(before) == site.agreement and before["first"] == request.note["first"]
            need(good, "the run's clients or columns are not those that this site agreed on.")
            self.own.limits.check_longer(self.recipe(request.note), self.recipe(before))
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
        self.site = self.build(run, note) if same else None

    def _place(self, run: str) -> Path:
        good = len(run) == 32 and all(c in "0123456789abcdef" for c in run)
        need(good, "a run's name is 32 hexadecimal digits.")
        return self.folder / run / WELCOME

    _joining: ClassVar[Mapping[str, Callable[[Participant, Message], Message]]] = {
        "hello": _join,
        "measure": _measure,
        "welcome": _enter,
    }
