"""`sartor server`: start NVFlare's server, see that the run goes on, and say what happens.

NVFlare ends a job when one process of it is killed, and a site that comes back does not rejoin a running job. So this
submits the job again, from the checkpoint, until the run is finished.
"""

from __future__ import annotations

import contextlib
import io
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import SartorError, need
from ..run.recipe import Recipe
from ..storage import read_json, write_json
from .authority import OPERATOR
from .health import Health
from .kits import JOBS, Kit, harden
from .logs import Voice
from .nvflare_jobs import ERROR, LOG, PLACE, PLAN, RUN, STATUS
from .rounds.client_store import alone
from .rounds.remote_engine import Waiting
from .supervised_process import POLL, Daemon, Say, certificate, reachable, vacant
from .terms import shared
from .transports.nvflare import job

_LOOK = 3.0  # seconds between two looks at which site is in the job
_STUCK = 6  # jobs in a row without a finished round, after which something is wrong that more jobs will not mend


@dataclass
class ServerSupervisor:
    """Plays one recipe with the sites of its kit."""

    kit: Path
    recipe: Path
    waiting: Waiting
    joining: float
    say: Say
    as_events: bool = False  # say lines of JSON
    about: Kit = field(init=False)

    def __post_init__(self) -> None:
        self.kit = self.kit.resolve()
        self.about = Kit.load(self.kit, "server")
        self.place = self.kit / PLACE
        self.health = Health(self.place, "server", self.about.federation)
        self.voice = Voice(self.place / LOG, "server", self.say, self.as_events)
        self.say = self.voice.say

    def play(self) -> Path:
        """To the end; the folder with what the run leaves."""
        shared(Recipe.load(self.recipe))  # what can be refused is refused before anybody is asked
        certificate(self.kit, "server")
        with alone(self.place / "server", f"another sartor server works with {self.kit}; there can be only one."):
            self._plan()
            if self._state() == "finished":
                return self.place / RUN
            vacant(self.about.host, self.about.port)
            harden(self.kit, True)
            daemon = Daemon(self.kit, self.about)
            try:
                with self.voice.last_word():
                    self._supervise(daemon)
            finally:
                daemon.stop()
        return self.place / RUN

    def _plan(self) -> None:
        """What the job needs to know; the recipe is copied, as the job is sent nothing."""
        (self.place / ERROR).unlink(missing_ok=True)
        old = self.place / "recipe.toml"
        if self._state() == "finished" and Recipe.load(old).rounds != Recipe.load(self.recipe).rounds:
            (self.place / STATUS).unlink()
        shutil.copyfile(self.recipe, old)
        write_json(self.place / PLAN, {"waiting": asdict(self.waiting), "joining": self.joining})

    def _state(self) -> str:
        with contextlib.suppress(SartorError):
            return str(read_json(self.place / STATUS)["state"])
        return "new"

    def _round(self) -> int:
        with contextlib.suppress(SartorError):
            return int(read_json(self.place / STATUS)["round"])
        return 0

    def _saved(self) -> bool:
        """Whether the run is over and all of it is saved: a job that is lost as it tells the sites so cannot say it."""
        with contextlib.suppress(SartorError):
            summary, played = read_json(self.place / RUN / "summary.json"), Recipe.load(self.place / "recipe.toml")
            return bool(summary["rounds"] == played.rounds or summary["stopped"] in ("budget", "target"))
        return False

    def _supervise(self, daemon: Daemon) -> None:
        stuck, last = 0, -1
        while self._state() != "finished":  # also where NVFlare stopped answering just as the last round was over
            shutil.rmtree(self.kit / "store", ignore_errors=True)  # jobs of a server that was killed: ours are kept
            daemon.start()
            self.health.wait("waiting for NVFlare's server")
            self.say(f"server of {self.about.federation} on {self.about.host}:{self.about.port}")
            try:
                with session(self.kit / "operator", daemon) as admin:
                    while daemon.alive:
                        reached = self._round()
                        stuck, last = (stuck + 1, last) if reached == last else (0, reached)
                        need(
                            stuck < _STUCK,
                            f"{stuck} jobs in a row ended in round {last + 1} without finishing it; "
                            f"{daemon.log} and {self.place / LOG} say why.",
                        )
                        if self._job(admin, daemon):
                            return
            except _Lost as e:
                self.say(f"{e}; {'the run is finished' if self._state() == 'finished' else 'starting again'}")
                self.health.restarts += 1
            daemon.stop()

    def _job(self, admin: Any, daemon: Daemon) -> bool:
        """One job, from submission to its end; True where the run is finished."""
        self._wait_for_sites(admin, daemon)
        if self._state() == "finished":
            return True
        folder = self.place / f"job-{self.about.federation}"
        for name, value in job(self.about.federation, f"{JOBS}.ServerJob", f"{JOBS}.SiteJob", self.about.sites).items():
            write_json(folder / name, value)
        self.health.wait("waiting for the sites' processes")
        number = asked(admin.submit_job, str(folder))
        looked, away = time.monotonic(), 0
        while daemon.alive:
            time.sleep(POLL)
            self.voice.look()
            daemon.trim()
            if self._state() == "finished":
                return True
            if (self.place / ERROR).exists():
                raise SartorError((self.place / ERROR).read_text())
            status = str(asked(admin.get_job_meta, number).get("status", ""))
            if status.startswith("FINISHED"):
                self.say("the job was lost; the next job goes on from the checkpoint")
                self.health.restarts += 1
                return False
            if time.monotonic() - looked > _LOOK and status == "RUNNING":
                looked = time.monotonic()
                back = self._outside(admin, number)
                away = away + 1 if back else 0
                if away >= 2:
                    lost = set(back) >= self._listed(admin)
                    what = "the job was lost" if lost else f"site {', '.join(back)} is back"
                    self.say(f"{what}; the next job goes on from the checkpoint")
                    self.health.restarts += 1
                    with contextlib.suppress(Exception):
                        admin.abort_job(number)
                    return False
        raise _Lost("NVFlare's server process has ended")

    def _wait_for_sites(self, admin: Any, daemon: Daemon) -> None:
        """All sites, or after a while enough of them."""
        began, said = time.monotonic(), 0.0
        known = (self.place / RUN / "roster.json").exists()
        while daemon.alive:
            there = self._listed(admin)
            missing = [s for s in self.about.sites if s not in there]
            waited = time.monotonic() - began
            if not missing or (len(there) >= self.waiting.clients and waited > (20.0 if known else self.joining)):
                return
            if not there and waited > self.waiting.seconds and self._saved():
                self.say("every round is played and saved, and the sites have gone home: the run is finished")
                write_json(self.place / STATUS, read_json(self.place / STATUS) | {"state": "finished"})
                return
            self.health.wait(f"waiting for sites: {', '.join(missing)}")
            if waited - said > 30 or said == 0.0:
                said = waited or 0.001
                self.say(f"waiting for site {', '.join(missing)}")
            time.sleep(POLL)
        raise _Lost("NVFlare's server process has ended")

    def _listed(self, admin: Any) -> set[str]:
        """The connected sites; one that has a certificate but is not on the list is turned away."""
        there = sites(admin)
        for stranger in sorted(there - set(self.about.sites)):
            self.say(f"{stranger!r} has a certificate of this federation but is not on the list: turned away")
            with contextlib.suppress(_Lost):
                asked(admin.disable_client, stranger)
        return there & set(self.about.sites)

    def _outside(self, admin: Any, number: str) -> list[str]:
        """Sites that are connected and not in the job."""
        found = asked(admin.get_client_job_status) or []
        inside = {entry.get("client_name") for entry in found if entry.get("job_id") == number}
        connected = {entry.get("client_name") for entry in found}
        return sorted(str(s) for s in connected - inside if s in self.about.sites)


class _Lost(Exception):
    """NVFlare's server does not answer any more."""


@contextmanager
def session(folder: Path, daemon: Daemon) -> Iterator[Any]:
    """The operator's session with the server that was just started."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    logging.getLogger("nvflare").setLevel(logging.CRITICAL)
    until = time.monotonic() + 60
    while not reachable(daemon.about.host, daemon.about.port):
        if not daemon.alive or time.monotonic() > until:
            raise SartorError(f"NVFlare's server did not start; {daemon.log} says why.")
        time.sleep(0.3)
    with contextlib.redirect_stdout(io.StringIO()):
        admin = asked(new_secure_session, OPERATOR, str(folder), timeout=60.0)
    try:
        yield admin
    finally:
        with contextlib.suppress(Exception):
            admin.close()


def asked(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """A call of the operator's session; NVFlare prints, and fails in many ways."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return call(*arguments, **named)
    except Exception as e:
        raise _Lost(f"NVFlare's server does not answer ({type(e).__name__})") from e


def sites(admin: Any) -> set[str]:
    """The connected sites."""
    return {c.name for c in asked(admin.get_system_info).client_info}
