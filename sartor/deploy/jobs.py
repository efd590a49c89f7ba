"""The two classes that a federation's job names: the only ones that kits allow."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ..engines.nvflare import ServerSide, SiteSide
from ..errors import SartorError
from ..federation.hub import Transport, Waiting
from ..federation.store import alone
from ..recipe import Recipe
from ..storage import read_json, write_json, write_text
from .kits import Kit
from .lead import Lead
from .member import Member, Own

PLACE = "play"  # the folder in a kit that is ours
STATUS, PLAN, OWN, ERROR, LOG = "status.json", "plan.json", "own.json", "error.txt", "log.txt"
RUN = "run"
_LOCK = 60.0  # seconds to wait for the process of an earlier job to go


class Server(ServerSide):
    """Leads the run in its kit, as `sartor server` has planned it."""

    def lead(self, kit: Path, transport: Transport) -> None:
        place = kit / PLACE
        about, plan = Kit.load(kit, "server"), read_json(place / PLAN)
        recipe = Recipe.load(place / "recipe.toml")
        say = Speaker(place)
        status: dict[str, Any] = {"state": "joining", "round": 0, "rounds": recipe.rounds, "silent": {}}
        write_json(place / STATUS, status)
        lead = Lead(
            name=about.federation,
            folder=place / RUN,
            recipe=recipe,
            sites=about.sites,
            transport=transport,
            waiting=Waiting(**plan["waiting"]),
            say=say,
            joining=plan["joining"],
        )
        try:
            with patiently(place, "another process leads this run"):
                for result in lead.play():
                    assert lead.hub is not None
                    status |= {"state": "playing", "round": result.run.round, "silent": lead.hub.silent}
                    status |= {"counts": lead.hub.counts, "refusals": lead.hub.refusals, "time": time.time()}
                    write_json(place / STATUS, status)
                    if result.run.round:
                        say(f"round {result.run.round} of {recipe.rounds}")
            write_json(place / STATUS, status | {"state": "finished"})
        except SartorError as e:
            write_text(place / ERROR, str(e))  # the supervisor says it and stops: asking again would not help
            raise


class Site(SiteSide):
    """Answers for the clients of its kit, whose data `sartor client` has named."""

    def begin(self, kit: Path, site: str) -> None:
        place = kit / PLACE
        self.place, self.say = place, Speaker(place)
        self.lock = patiently(place, "another process answers for this site")
        self.lock.__enter__()
        self.member = Member(site, place, Own(**read_json(place / OWN)), log=self.say)
        self.told = ""

    def answer(self, request: bytes) -> bytes:
        reply = self.member.answer(request)
        site = self.member.site
        state = "finished" if self.member.finished else "playing" if site else "joining"
        status: dict[str, Any] = {"state": state, "counts": site.counts if site else {}, "time": time.time()}
        write_json(self.place / STATUS, status)
        return reply


def patiently(place: Path, busy: str) -> Any:
    """Hold the folder; a process that is about to end may hold it a little longer."""
    until = time.monotonic() + _LOCK
    while True:
        try:
            held = alone(place, busy)
            held.__enter__()
            return _Entered(held)
        except SartorError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


class _Entered:
    """A context that has begun."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        self.context.__exit__(*error)


class Speaker:
    """Adds a line to the kit's own log, which `sartor server` and `sartor client` show."""

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.path = place / LOG

    def __call__(self, text: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(time.strftime("%H:%M:%S ") + " ".join(text.split()) + "\n")
