"""`sartor client`: start NVFlare's process of a site, keep it connected until the run is finished, say what happens."""

from __future__ import annotations

import contextlib
import secrets
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ..errors import SartorError, need
from ..storage import read_json, write_json
from .door import Door, proxy_for
from .kits import Kit, harden
from .nvflare_jobs import LOG, OWN, PLACE, STATUS
from .rounds.client_store import alone
from .site import SiteConfig
from .supervised_process import POLL, Daemon, Follower, Say, certificate
from .transports.https_driver import CUT

_HUNG_UP = 4  # times in a row that a server hangs up on a certificate, after which it is not asked again


@dataclass
class SiteSupervisor:
    """Takes part with the data of one site."""

    kit: Path
    own: SiteConfig
    connecting: float
    say: Say
    proxy: str | None = None  # none: HTTPS_PROXY's
    about: Kit = field(init=False)

    def __post_init__(self) -> None:
        self.kit = self.kit.resolve()
        self.about = Kit.load(self.kit, "site")
        self.place = self.kit / PLACE
        self.door = Door(self.kit, self.about, proxy_for(self.about, self.proxy))

    def play(self) -> Path:
        """Until the run is finished; the folder with this site's models."""
        table = self.own.read()  # what is wrong with the file is said now, not in the first round
        certificate(self.kit, "client")
        with alone(self.place / "client", f"another sartor client works with {self.kit}; there can be only one."):
            write_json(self.place / OWN, asdict(replace(self.own, start=secrets.token_hex(16))))
            (self.place / STATUS).unlink(missing_ok=True)
            harden(self.kit, False)
            self.say(f"site {self.about.who}: {len(table)} samples")
            follower, daemon = Follower(self.place / LOG, self.say), Daemon(self.kit, self.about, self.door.proxy)
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
            joined, cut = False, 0
            began = time.monotonic()
            while daemon.alive:
                time.sleep(POLL)
                follower.look()
                if not joined and daemon.says("Successfully registered client"):
                    joined = True
                    self.say(f"connected to {self.door.words}")
                need(
                    joined or time.monotonic() - began < self.connecting,
                    f"the server at {self.door.words} does not take this kit: it is of another "
                    f"federation, not on its list, or in use elsewhere. {daemon.log} says more.",
                )
                with contextlib.suppress(SartorError):
                    if read_json(self.place / STATUS)["state"] == "finished":
                        return
                if daemon.says(CUT) > cut:
                    cut = daemon.says(CUT)
                    self._cut()
            self.say("NVFlare's process has ended; starting again")
            time.sleep(2)

    def _cut(self) -> None:
        """A connection that has ended is made again by NVFlare; what waiting cannot mend is refused."""
        why = self.door.closed() or f"the connection to {self.door.words} was cut"
        self.say(f"{why}; nothing is lost, it is made again")

    def _reach(self) -> None:
        """Wait until the server answers, asking less and less often."""
        began, pause, hung_up = time.monotonic(), 1.0, 0
        while why := self.door.closed():
            hung_up = hung_up + 1 if why == self.door.hung_up else 0
            if hung_up == _HUNG_UP:
                self.door.refuse()
            waited = time.monotonic() - began
            need(
                waited + pause <= self.connecting,
                f"{why} after {waited:.0f} s. Is it started, and may this machine reach it? Wait longer with "
                "--connect-timeout.",
            )
            self.say(
                f"{why} yet; again in {pause:.0f} s" if why.startswith("no ") else f"{why}; again in {pause:.0f} s"
            )
            time.sleep(pause)
            pause = min(2 * pause, 30.0, max(1.0, self.connecting - (time.monotonic() - began)))
