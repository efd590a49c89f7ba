"""What a site has done since it was started: counted for its status, with a line among its events for each request."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from ..errors import SartorError
from ..storage import read_json, write_json
from .audit_log import entry_of
from .logs import EventLog
from .site import Participant
from .work_folder import STATUS


class SiteMeter:
    """The counts of one site. They outlive the processes of its jobs: `sartor client` begins them anew."""

    def __init__(self, place: Path, site: str) -> None:
        self.path, self.events = place / STATUS, EventLog(place, site)
        self.totals: dict[str, Any] = {"round": 0, "rounds": 0, "seconds": 0.0, "bytes_sent": 0, "bytes_received": 0}
        self.totals |= {"counts": {}, "refusals": {}}
        with contextlib.suppress(SartorError):
            found = read_json(self.path)
            self.totals |= {k: found[k] for k in self.totals if k in found}

    def note(self, member: Participant, request: bytes, reply: bytes, seconds: float) -> None:
        """One request and its answer. Where the disk is full the status stays behind, and nothing else happens."""
        entry, site = entry_of(request, reply), member.site
        asked, left = entry["asked"], entry["left"]
        counts = self.totals["counts"]
        if left["what"] == "refused":
            why = left.get("why", "damaged")
            self.totals["refusals"][why] = self.totals["refusals"].get(why, 0) + 1
        else:
            counts["answered"] = counts.get("answered", 0) + 1
        if asked["what"] == "train":
            self.totals["round"] = max(self.totals["round"], asked["round"] + 1)
        if site is not None:
            self.totals["rounds"], counts["repeated"] = site.rounds, site.counts["repeated"]
        self.totals["seconds"] += seconds
        self.totals["bytes_sent"] += len(reply)
        self.totals["bytes_received"] += len(request)
        state = "finished" if member.finished else "playing" if site else "joining"
        with contextlib.suppress(SartorError):
            write_json(self.path, {"state": state, **self.totals, "time": time.time()})
        said = {k: asked.get(k) for k in ("run", "round", "clients")} | {k: left.get(k) for k in ("why", "limit")}
        level = "warning" if left["what"] == "refused" else "info"
        sizes = {"bytes_received": len(request), "bytes_sent": len(reply), "seconds": round(seconds, 6)}
        self.events.add("request", level, asked=asked["what"], left=left["what"], **said, **sizes)
