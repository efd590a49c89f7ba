"""The server's side: an Engine whose clients live at sites. It names, sends, waits, checks and counts.

It has no transport of its own, only something that can post bytes to a site and collect what came back.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ...core import Stage, State
from ...errors import Diverged, SartorError, Silent, need, positive, readable
from .masking import KEY, SECURE, SEED, SUM, ServerMasking, mean_scores
from .messages import Damaged, Message, Spec, decode, encode, packed, plain, size_of, unpacked
from .packing import CODES, ServerPacking, codes_in
from .remote_clients import GLOBAL, REASONS

STEPS = "steps"
_STEPS = 1 << 31  # that a client may say to have taken in a round
_PATIENCE = 16  # times in a round that a site is told the terms again, or is spoken of


class Transport(Protocol):
    """What an engine brings. Messages may be lost, doubled or late; the sender's name must be true."""

    def post(self, site: str, request: bytes) -> None:
        """Send a request to a site, in place of any that it has not yet answered; returns at once."""
        ...

    def collect(self, seconds: float) -> list[tuple[str, bytes]]:
        """What sites have answered since the last call, with the name of each; waits so long for the first."""
        ...


@dataclass(frozen=True)
class Waiting:
    """How long a server waits, and for whom."""

    seconds: float = 120.0  # for one round's answers
    clients: int = 1  # so many must answer; else the round waits as long again, and is skipped
    timeouts: int = 3  # after so many in a row a site is left out: still asked, not waited for
    again: float = 30.0  # a request that is not answered is sent again after so many seconds

    def __post_init__(self) -> None:
        positive("a server", seconds=self.seconds, again=self.again)
        need(self.clients >= 1, f"a server needs min-clients >= 1; got {self.clients}.")
        need(self.timeouts >= 1, f"a site is left out after at least 1 timeout; got {self.timeouts}.")


class RemoteEngine:
    """The clients of a federation, by site."""

    def __init__(
        self,
        run: str,
        agreement: str,
        roster: Mapping[str, Sequence[int]],  # which clients each site has
        specs: Mapping[str, Spec] | None,  # by stage: what an answer holds; none: a simulation, where all comes back
        transport: Transport,
        waiting: Waiting,
        say: Callable[[str], None],
        welcome: Mapping[str, bytes] | None = None,  # what a site that has not joined is told
        instance_ids: Mapping[str, str] | None = None,  # what each site said when it joined, and says with every answer
        ranges: Mapping[str, tuple[float, float]] | None = None,  # of scores, by the last word of their names
        packing: ServerPacking | None = None,  # none: models and messages go as they are
        masks: ServerMasking | None = None,  # none: single messages are seen
    ) -> None:
        self.packing, self.masks = packing, masks
        self.ranges = dict(ranges or {})
        self.instance_ids = dict(instance_ids or {})
        self.welcome = dict(welcome or {})
        self.run, self.agreement, self.specs = run, agreement, specs
        self.roster, self.transport, self.waiting, self.say = dict(roster), transport, waiting, say
        self.clients = sum(map(len, roster.values()))
        self.since = torch.full([self.clients], -1, dtype=torch.int64)
        self._owner = torch.full([self.clients], -1, dtype=torch.int64)  # client → place of its site in the roster
        for at, theirs in enumerate(self.roster.values()):
            self._owner[torch.tensor(theirs, dtype=torch.int64)] = at
        self.silent = dict.fromkeys(roster, 0)  # timeouts in a row
        self.gone: frozenset[str] = frozenset()  # sites that have left the federation since: they are not asked
        self.counts = {"answers": 0, "duplicate": 0, **dict.fromkeys(REASONS, 0)}
        self.refusals = dict.fromkeys(REASONS, 0)  # of our requests, by sites
        self._steps = 0
        self._patience: dict[str, int] = {}

    @property
    def steps(self) -> int:
        return self._steps

    def map(
        self, stage: Stage, round: int, ids: Tensor, down: State, shared: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Ask the sites. What a stage that is not training does not bring is NaN; personal models stay where they are,
        and diagnostics, which are of the size of a model, are not asked for: but in a simulation all comes back."""
        if stage == "diagnose" and self.specs is not None:
            return ids, {}
        asked = self._requests(stage, round, ids, down if shared is None else down | {GLOBAL: shared})
        if self.masks is not None and stage in ("train", "evaluate"):
            summed = self._summed(stage, round, asked, self.masks)
            return self._trained(round, summed) if stage == "train" else (ids, self._means(round, ids, summed))
        found = self._gather(stage, round, asked, self.waiting.clients if stage == "train" else 1)
        if stage == "train":
            return self._trained(round, found)
        if self.specs is None:
            return _joined(found)
        if stage == "personal":
            return ids, {}
        if not found:
            raise Silent(f"no site answered when asked to {stage} after round {round}.")
        out = {k: torch.full([len(ids), *s], torch.nan, dtype=t) for k, (t, s) in self.specs[stage].items()}
        for clients, values in found.values():
            for k, v in values.items():
                out[k][torch.isin(ids, torch.tensor(clients))] = v
        return ids, out

    @property
    def means_only(self) -> bool:
        """Whether scores are means over all clients, and nobody's own."""
        return self.masks is not None

    def _means(self, round: int, ids: Tensor, summed: dict[str, _Answer]) -> State:
        """Every client's scores as the server knows them: the mean over all that are in the sum."""
        assert self.specs is not None
        out = {k: torch.full([len(ids)], torch.nan, dtype=torch.float64) for k in self.specs["evaluate"]}
        heard = torch.tensor([c for clients, _ in summed.values() for c in clients], dtype=torch.int64)
        total = {k: torch.stack([rows[k].sum(0) for _, rows in summed.values()]).sum(0).numpy() for k in out if summed}
        try:
            found = {k: torch.tensor([v], dtype=torch.float64) for k, v in mean_scores(total, len(heard)).items()}
            check_scores(found, self.ranges)
        except Damaged as e:
            self.say(f"round {round}: a site sends false scores, and the sum hides which: {e}; none are taken")
            return out
        for k, v in found.items():
            out[k][torch.isin(ids, heard)] = v
        return out

    def _summed(self, stage: str, round: int, asked: dict[str, Message], masks: ServerMasking) -> dict[str, _Answer]:
        """Answers whose sum is that of the messages: of all sites that were asked or, where one does not answer, of the
        others, who are asked once more; none where too few are left."""
        sites = [s for s in asked if s in masks.keys and self.silent[s] < self.waiting.timeouts]
        while len(sites) >= masks.least:
            which = hashlib.sha256("\n".join(sites).encode()).hexdigest()[:16]
            told = {SECURE: masks.told(sites), SUM: f"{stage} {which}"}
            requests = {s: replace(asked[s], note=told) for s in sites}
            found = self._gather(stage, round, requests, self.waiting.clients if stage == "train" else 1)
            if found.keys() == requests.keys():
                unmask = {s: replace(m, kind="unmask", arrays={}) for s, m in requests.items()}
                seeds = self._gather("unmask", round, unmask, sum(len(m.clients) for m in unmask.values()))
                return {site: _opened(answer, seeds[site], masks) for site, answer in found.items()} if seeds else {}
            missing = [s for s in sites if s not in found]
            sites = [s for s in sites if s in found]
            if found:
                self.say(f"round {round + 1}: the sum lacks {', '.join(missing)}; it is taken of {', '.join(sites)}")
        self.say(f"round {round + 1}: {len(sites)} sites are left, and a sum needs {masks.least}; it is skipped")
        return {}

    def _trained(self, round: int, found: dict[str, _Answer]) -> tuple[Tensor, State]:
        ids, values = _joined(found)
        self.since[ids] = round
        self._steps += int(values.pop(STEPS).sum()) if found else 0
        notes = {} if self.packing is None else self.packing.heard(round, ids)
        return ids, {k.removeprefix("message/"): v for k, v in values.items()} | notes

    def _requests(self, stage: str, round: int, ids: Tensor, down: State) -> dict[str, Message]:
        """A request for each site that has any of these clients."""
        rising = ids.argsort()
        owner = self._owner[ids[rising]]
        out = {}
        for at, site in enumerate(self.roster):
            here = rising[owner == at]
            mine = ids[here].tolist()
            if not mine or site in self.gone:
                continue
            rows = {k: v[:1].expand(len(mine), *v.shape[1:]) if v.stride(0) == 0 else v[here] for k, v in down.items()}
            since = tuple(self.since[ids[here]].tolist())
            arrays = self._packed(stage, round, mine, rows)
            out[site] = Message(stage, self.run, self.agreement, round, tuple(mine), since, arrays)
        return out

    def _packed(self, stage: str, round: int, clients: list[int], rows: State) -> dict[str, np.ndarray]:
        """What the clients of one site are sent."""
        if self.packing is None:
            return packed(rows)
        codes = self.packing.down(stage, round, clients, {k: v for k, v in rows.items() if k != GLOBAL})
        if not self.packing.codes_down:
            return packed(rows)
        return packed({k: v for k, v in rows.items() if k == GLOBAL}) | {CODES: codes}

    def _gather(self, stage: str, round: int, asked: dict[str, Message], need_clients: int) -> dict[str, _Answer]:
        """Answers by site: of all, or of those that came in time; none where too few did."""
        found: dict[str, _Answer] = {}
        pending = dict(asked)
        enough = min(need_clients, sum(len(m.clients) for m in asked.values()))
        bytes_of = {site: encode(m) for site, m in asked.items()}
        self._post(bytes_of, asked)
        self._patience.clear()
        now = time.monotonic()
        deadline, repeat, waited = now + self.waiting.seconds, now + self.waiting.again, False
        while True:
            have = sum(len(ids) for ids, _ in found.values())
            if not any(self.silent[s] < self.waiting.timeouts for s in pending) and (have >= enough or not pending):
                break
            now = time.monotonic()
            if now >= deadline:
                if have >= enough or waited:
                    break
                waited, deadline = True, deadline + self.waiting.seconds
                self.say(f"round {round + 1}: {have} of at least {enough} clients have answered; waiting once more")
            if now >= repeat:
                repeat = now + self.waiting.again
                self._post(bytes_of, pending)
            for site, data in self.transport.collect(max(0.0, min(deadline, repeat) - now)):
                if self._take(stage, site, data, pending, found):
                    self._post(bytes_of, [site])
        self._count_silent(asked, pending)
        if sum(len(ids) for ids, _ in found.values()) < enough:
            self.say(f"round {round + 1}: fewer than {enough} clients answered in time; it is skipped")
            return {}
        return found

    def _post(self, bytes_of: Mapping[str, bytes], sites: Iterable[str]) -> None:
        for site in sites:
            self.transport.post(site, bytes_of[site])

    def _take(self, stage: str, site: str, data: bytes, pending: dict[str, Message], found: dict[str, _Answer]) -> bool:
        """One thing that arrived: an answer that was waited for, or something that is counted and changes nothing.

        True where the site should be asked once more: it has just joined.
        """
        request = pending.get(site)
        try:
            reply = decode(data, self._most(stage, request))
            if self._stranger(site, reply):
                self.counts["foreign"] += 1
                return False
            if reply.run == self.run and reply.kind in ("refused", "ready"):
                if reply.kind == "ready":
                    self._take_key(site, reply)
                    return request is not None and self._patient(site)
                return self._refused(site, reply, pending)
            why = self._wrong(site, reply, request, found)
            if why is not None or request is None:
                self.counts[why or "foreign"] += 1
                return False
            found[site] = reply.clients, self._values(stage, reply)
        except Damaged as e:
            self.counts["damaged"] += 1
            if pending.pop(site, None) is not None:
                self.say(f"an answer of site {site} was not taken: {e}")
            return False
        self.counts["answers"] += 1
        pending.pop(site)
        if self.silent[site] >= self.waiting.timeouts:
            self.say(f"site {site} answers again and is taken back")
        self.silent[site] = 0
        return False

    def _take_key(self, site: str, reply: Message) -> None:
        """The key of a site that has joined late."""
        if self.masks is not None:
            try:
                self.masks.take(site, reply.note.get(KEY))
            except SartorError as e:
                raise Damaged(str(e)) from e

    def _values(self, stage: str, reply: Message) -> State:
        """An answer's rows, checked against what was agreed on."""
        n = len(reply.clients)
        if self.specs is None:
            return plain(reply.arrays, n)
        arrays, coded = dict(reply.arrays), State()
        if stage == "train" and self.packing is not None and self.packing.codes_up:
            codes = codes_in(arrays.pop(CODES, None), n * self.packing.most_up(reply.round))
            coded = self.packing.up(reply.round, reply.clients, codes)
        found = unpacked(arrays, n, self.specs.get(stage, {}), stage != "train") | coded
        if stage == "evaluate" and self.masks is None:
            check_scores(found, self.ranges)
        elif stage == "train" and not bool(((found[STEPS] >= 0) & (found[STEPS] < _STEPS)).all()):
            raise Damaged("a number of steps is out of range")
        return found

    def _most(self, stage: str, request: Message | None) -> int | None:
        """The most bytes that what comes now may have: no answer is waited for, or one to this request is."""
        if self.specs is None:
            return None
        if request is None:
            return size_of({}, 0)
        clients, coded = len(request.clients), 0
        if stage == "train" and self.packing is not None and self.packing.codes_up:
            coded = clients * self.packing.most_up(request.round)
        return size_of(self.specs.get(stage, {}), clients) + coded

    def _patient(self, site: str) -> bool:
        """Whether a site that keeps asking for more is still given it in this round."""
        self._patience[site] = self._patience.get(site, _PATIENCE) - 1
        return self._patience[site] >= 0

    def _stranger(self, site: str, reply: Message) -> bool:
        """Whether a reply in this run comes from another copy of the site than the one that joined."""
        other = reply.run == self.run and reply.note.get("instance_id", "") != self.instance_ids.get(site, "")
        if other and self._patient(site):
            self.say(
                f"rejected an answer in the name of site {site} from another process. Is its kit in use elsewhere?"
            )
        return other

    def _refused(self, site: str, reply: Message, pending: dict[str, Message]) -> bool:
        """A site that has not joined (it was away, or is new on its disk) is told the terms; others have reasons."""
        why = str(reply.note.get("why"))
        why = why if why in REASONS else "damaged"
        self.refusals[why] += 1
        if self.specs is None:
            raise _error(why, reply.note)
        if why == "foreign" and site in pending and site in self.welcome and self._patient(site):
            self.transport.post(site, self.welcome[site])
        elif pending.pop(site, None) is not None:
            self.say(f"site {site} refused ({why}{_limit(reply)}); its log says more")
        return False

    def _wrong(self, site: str, reply: Message, asked: Message | None, found: Mapping[str, object]) -> str | None:
        """Why a reply is not the one that is waited for; None: it is."""
        if reply.kind != "answer" or reply.run != self.run or site not in self.roster:
            return "foreign"
        if reply.agreement != self.agreement:
            return "agreement"
        if asked is None:
            return "duplicate" if site in found else "foreign"
        if reply.round != asked.round:
            return "stale" if reply.round < asked.round else "early"
        if reply.note.get("stage") != asked.kind or reply.note.get(SUM) != asked.note.get(SUM):
            return "stale"
        return None if (reply.clients, reply.since) == (asked.clients, asked.since) else "foreign"

    def _count_silent(self, asked: Iterable[str], pending: Iterable[str]) -> None:
        late = set(pending)
        for site in asked:
            if site in late:
                self.silent[site] += 1
                if self.silent[site] == self.waiting.timeouts:
                    self.say(
                        f"site {site} did not answer {self.silent[site]} times: it is not waited for until it answers"
                    )

    def save(self) -> State:
        """After which round each client was last heard, and how long each site has been silent."""
        packing = {} if self.packing is None else {f"packing/{k}": v for k, v in self.packing.save().items()}
        return {"since": self.since.clone(), "silent": torch.tensor([self.silent[s] for s in self.roster])} | packing

    def restore(self, states: State) -> None:
        self.since.copy_(states["since"])
        self.silent = dict(zip(self.roster, states["silent"].tolist(), strict=True))
        if self.packing is not None:
            self.packing.restore({k.removeprefix("packing/"): v for k, v in states.items() if k.startswith("packing/")})

    def settle(self) -> None:
        """States are at the sites."""


_Answer = tuple[tuple[int, ...], State]


def _opened(answer: _Answer, seed: _Answer, masks: ServerMasking) -> _Answer:
    """A site's answer without its own mask."""
    clients, values = answer
    rows = {k: v.numpy() for k, v in values.items() if k != STEPS}
    return clients, values | {
        k: torch.from_numpy(v) for k, v in masks.opened(rows, seed[1][SEED][0].numpy().tobytes()).items()
    }


def _limit(reply: Message) -> str:
    """Which of a site's limits a refusal is about."""
    name = reply.note.get("limit")
    return f": {readable(name, 40).replace('_', '-')}" if isinstance(name, str) else ""


def check_scores(scores: State, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Refuse scores that no model can have. All scores of a model on a client's part are there, or none is."""
    missing: dict[str, Tensor] = {}
    for name, value in scores.items():
        gaps = torch.isnan(value)
        model, _, word = name.rpartition("/")
        if not torch.equal(missing.setdefault(model, gaps), gaps):
            raise Damaged(f"{model} has gaps")
        low, high = ranges.get(word, (-torch.inf, torch.inf))
        if not bool((gaps | ((value >= low) & (value <= high))).all()):
            raise Damaged(f"{name} is out of range")


def _joined(found: Mapping[str, _Answer]) -> tuple[Tensor, State]:
    """All sites' rows by rising client."""
    ids, order = torch.tensor([c for clients, _ in found.values() for c in clients], dtype=torch.int64).sort()
    values = [v for _, v in found.values()]
    together = {k: torch.cat([v[k] for v in values]) for k in (values[0] if values else ())}
    sorted_already = bool((order[1:] > order[:-1]).all())
    return ids, together if sorted_already else {k: v[order] for k, v in together.items()}


def _error(why: str, note: Mapping[str, object]) -> Exception:
    """In a simulation an error at a site is the run's error, in its own words."""
    text = str(note.get("text"))
    if why == "diverged":
        return Diverged(text)
    return SartorError(text) if note.get("own") else RuntimeError(f"at a site:\n{text}")
