"""The two classes that a federation's job names: the only ones that kits allow."""

from __future__ import annotations

import time
from pathlib import Path

from ..errors import SartorError
from ..run.recipe import Recipe
from ..storage import read_json, write_text
from .kits import Kit
from .logs import EventLog
from .masks import Identity, authority_of
from .revocation import in_use
from .rounds.remote_engine import Transport, Waiting
from .server import Coordinator
from .site import Participant
from .site_config import SiteConfig
from .site_meter import SiteMeter
from .transports.nvflare import ServerSide, SiteSide
from .work_folder import LOG, RUN, STATUS, Speaker, patiently, play

__all__ = ["ERROR", "LOG", "OWN", "PLACE", "PLAN", "RUN", "STATUS", "ServerJob", "SiteJob"]

PLACE = "play"  # the folder in a kit that is ours
PLAN, OWN, ERROR = "plan.json", "own.json", "error.txt"


class ServerJob(ServerSide):
    """Leads the run in its kit, as `sartor server` has planned it."""

    def lead(self, kit: Path, transport: Transport) -> None:
        place = kit / PLACE
        about, plan, events = Kit.load(kit, "server"), read_json(place / PLAN), EventLog(place, "server")
        lead = Coordinator(
            name=about.federation,
            folder=place / RUN,
            recipe=Recipe.load(place / "recipe.toml"),
            sites=about.sites,
            transport=transport,
            waiting=Waiting(**plan["waiting"]),
            say=Speaker(place, events),
            joining=plan["joining"],
            authority=authority_of(kit),
            revoked=in_use(kit, authority_of(kit)),
        )
        try:
            play(lead, place, events)
        except SartorError as e:
            write_text(place / ERROR, str(e))  # the supervisor says it and stops: asking again would not help
            raise


class SiteJob(SiteSide):
    """Answers for the clients of its kit, whose data `sartor client` has named."""

    def begin(self, kit: Path, site: str) -> None:
        place = kit / PLACE
        self.place, say = place, Speaker(place)
        self.lock = patiently(place, "another process answers for this site")
        self.lock.__enter__()
        own, identity = SiteConfig.of(read_json(place / OWN)), Identity.load(kit, site)
        self.member = Participant(site, place, own, log=say, identity=identity)
        self.meter = SiteMeter(place, site)

    def answer(self, request: bytes) -> bytes:
        began = time.monotonic()
        reply = self.member.answer(request)
        self.meter.note(self.member, request, reply, time.monotonic() - began)
        return reply
