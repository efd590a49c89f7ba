"""`sartor client`: start NVFlare's process of a site, keep it connected until the run is finished, say what happens."""

from __future__ import annotations

import contextlib
import secrets
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ..errors import SartorError, need
from ..storage import read_json, write_json
from .kits import Kit, harden
from .nvflare_jobs import LOG, OWN, PLACE, STATUS
from .rounds.client_store import alone
from .site_config import SiteConfig
from .supervised_process import POLL, Daemon, Follower, Say, certificate, reachable


@dataclass
class SiteSupervisor:
    """Takes part with the data of one site."""

    kit: Path
    own: SiteConfig
    connecting: float
    say: Say
    about: Kit = field(init=False)

    def __post_init__(self) -> None:
        self.kit = self.kit.resolve()
        self.about = Kit.load(self.kit, "site")
        self.place = self.kit / PLACE

    def play(self) -> Path:
        """Until the run is finished; the folder with this site's models."""
        table = self.own.read()  # what is wrong with the file is said now, not in the first round
        certificate(self.kit / "startup" / "client.crt")
        with alone(self.place / "client", f"another sartor client works with {self.kit}; there can be only one."):
            write_json(self.place / OWN, asdict(replace(self.own, start=secrets.token_hex(16))))
            (self.place / STATUS).unlink(missing_ok=True)
            harden(self.kit, False)
            self.say(f"site {self.about.who}: {len(table)} samples")
            follower, daemon = Follower(self.place / LOG, self.say), Daemon(self.kit, self.about)
            try:
                self._supervise(daemon, follower)
            finally:
                follower.look()
                daemon.stop()
        return self.place / "models"

    def _supervise(self, daemon: Daemon, follower: Follower) -> None:
        while True:
            self._reach()
            daemon.start()
            joined = False
            began = time.monotonic()
            while daemon.alive:
                time.sleep(POLL)
                follower.look()
                if not joined and daemon.says("Successfully registered client"):
                    joined = True
                    self.say(f"connected to {self.about.host}:{self.about.port}")
                need(
                    joined or time.monotonic() - began < self.connecting,
                    f"the server at {self.about.host}:{self.about.port} does not take this kit: it is of another "
                    f"federation, not on its list, or in use elsewhere. {daemon.log} says more.",
                )
                with contextlib.suppress(SartorError):
                    if read_json(self.place / STATUS)["state"] == "finished":
                        return
            self.say("NVFlare's process has ended; starting again")
            time.sleep(2)

    def _reach(self) -> None:
        """Wait until the server's port answers, asking less and less often."""
        began, pause = time.monotonic(), 1.0
        while not reachable(self.about.host, self.about.port):
            waited = time.monotonic() - began
            need(
                waited + pause <= self.connecting,
                f"no server at {self.about.host}:{self.about.port} after {waited:.0f} s. Is it started, and may this "
                "machine reach it? Wait longer with --connect-timeout.",
            )
            self.say(f"no server at {self.about.host}:{self.about.port} yet; again in {pause:.0f} s")
            time.sleep(pause)
            pause = min(2 * pause, 30.0, max(1.0, self.connecting - (time.monotonic() - began)))
