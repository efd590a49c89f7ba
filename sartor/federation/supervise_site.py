"""`sartor client`: start NVFlare's process of a site, keep it connected until the run is finished, say what happens."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ..errors import SartorError, need
from ..storage import read_json, write_json
from .door import Door, proxy_for
from .health import Health
from .kits import Kit, harden
from .logs import Voice
from .nvflare_jobs import LOG, OWN, PLACE, STATUS
from .rounds.client_store import alone
from .site_config import SiteConfig
from .supervised_process import POLL, Daemon, Say, certificate
from .transports.https_driver import CUT

_ROOM = 1 << 16  # bytes: a few lines of the audit log
_HUNG_UP = 4  # times in a row that a server hangs up on a certificate, after which it is not asked again


@dataclass
class SiteSupervisor:
    """Takes part with the data of one site."""

    kit: Path
    own: SiteConfig
    connecting: float
    say: Say
    proxy: str | None = None  # none: HTTPS_PROXY's
    as_events: bool = False  # say lines of JSON
    _full: bool = False
    about: Kit = field(init=False)

    def __post_init__(self) -> None:
        self.kit = self.kit.resolve()
        self.about = Kit.load(self.kit, "site")
        self.place = self.kit / PLACE
        self.health = Health(self.place, self.about.who, self.about.federation)
        self.voice = Voice(self.place / LOG, self.about.who, self.say, self.as_events)
        self.say = self.voice.say
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
            daemon = Daemon(self.kit, self.about, self.door.proxy)
            try:
                with self.voice.last_word():
                    self._supervise(daemon)
            finally:
                daemon.stop()
        return self.place / "models"

    def _supervise(self, daemon: Daemon) -> None:
        while True:
            self._reach()
            daemon.start()
            self.health.wait("waiting for the server to take this site")
            joined, cut = False, 0
            began = time.monotonic()
            while daemon.alive:
                time.sleep(POLL)
                self.voice.look()
                daemon.trim()
                self._say_full()
                if not joined and daemon.says("Successfully registered client"):
                    joined = True
                    if self.health.status() == {}:
                        self.health.wait("waiting for the first round")
                    self.say(f"connected to {self.door.words}")
                need(
                    joined or time.monotonic() - began < self.connecting,
                    f"the server at {self.door.words} does not take this kit: it is of another "
                    f"federation, not on its list, or in use elsewhere. {daemon.log} says more.",
                )
                with contextlib.suppress(SartorError):
                    if read_json(self.place / STATUS)["state"] == "finished":
                        return
                if (now := daemon.says(CUT)) > cut:
                    self._cut()
                cut = now  # fewer than before where the log was trimmed
            self.say("NVFlare's process has ended; starting again")
            self.health.restarts += 1
            time.sleep(2)

    def _say_full(self) -> None:
        """Say once that the disk has no room: the log that says why the site refuses may not be there."""
        full = shutil.disk_usage(self.place).free < _ROOM
        if full and not self._full:
            self.say(f"the disk of {self.place} is full: nothing leaves this site until there is room")
        self._full = full

    def _cut(self) -> None:
        """A connection that has ended is made again by NVFlare; what waiting cannot mend is refused."""
        why = self.door.closed() or f"the connection to {self.door.words} was cut"
        self.say(f"{why}; nothing is lost, it is made again")

    def _reach(self) -> None:
        """Wait until the server answers, asking less and less often."""
        began, pause, hung_up = time.monotonic(), 1.0, 0
        self.health.wait("waiting for the server")
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
