"""`sartor server` and `sartor client`: start NVFlare's process, see that the run goes on, and say what happens.

NVFlare ends a job when one process of it is killed, and a site that comes back does not rejoin a running job. So the
server's supervisor submits the job again, from the checkpoint, until the run is finished.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..engines.nvflare import job
from ..errors import SartorError, need
from ..federation.hub import Waiting
from ..federation.store import alone
from ..recipe import Recipe
from ..storage import read_json, write_json
from .jobs import ERROR, LOG, OWN, PLACE, PLAN, RUN, STATUS
from .kits import JOBS, OPERATOR, Kit, harden
from .member import Own
from .terms import shared

Say = Callable[[str], None]
_POLL = 1.0
_LOOK = 3.0  # seconds between two looks at which site is in the job
_STUCK = 6  # jobs in a row without a finished round, after which something is wrong that more jobs will not mend
# NVFlare's own main module, in a process that ends when its parent does, and tells its jobs to do the same.
_DAEMON = """
import os, runpy, sys, threading, time
parent, module = int(sys.argv.pop(1)), sys.argv.pop(1)
os.environ["SARTOR_DAEMON"] = str(os.getpid())
def watch():
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
threading.Thread(target=watch, daemon=True).start()
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


@dataclass
class Daemon:
    """NVFlare's long-lived process for one kit."""

    kit: Path
    about: Kit
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """What NVFlare says."""
        return self.kit / PLACE / "daemon.txt"

    def start(self) -> None:
        """Start the process."""
        server = self.about.who == "server"
        part = "server" if server else "client"
        words = ["-m", str(self.kit), "-s", f"fed_{part}.json", "--set", "secure_train=true", "config_folder=config"]
        words += [f"org={self.about.federation}", *([] if server else [f"uid={self.about.who}"])]
        for name in ("transfer", PLACE):
            (self.kit / name).mkdir(exist_ok=True)
        # Without the kit's folder on the path: what lies there is data, not code.
        env = {"OMP_NUM_THREADS": "1"} | os.environ | {"PYTHONSAFEPATH": "1"}
        module = f"nvflare.private.fed.app.{part}.{part}_train"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-c", _DAEMON, str(os.getpid()), module, *words],
                cwd=self.kit,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    def says(self, words: str) -> bool:
        """Whether these words are in its log."""
        with contextlib.suppress(OSError):
            return words in self.log.read_text(errors="replace")
        return False

    def stop(self) -> None:
        """End it; its job processes follow by themselves."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


@dataclass
class Follower:
    """Says what job processes have added to the kit's log since the last look."""

    path: Path
    say: Say
    at: int = 0

    def __post_init__(self) -> None:
        self.at = self.path.stat().st_size if self.path.exists() else 0

    def look(self) -> None:
        """Say the new lines."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.at)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self.at += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            self.say(line)


# --- server -----------------------------------------------------------------------------------------------------------


@dataclass
class Server:
    """Plays one recipe with the sites of its kit."""

    kit: Path
    recipe: Path
    waiting: Waiting
    joining: float
    say: Say
    about: Kit = field(init=False)

    def __post_init__(self) -> None:
        self.kit = self.kit.resolve()
        self.about = Kit.load(self.kit, "server")
        self.place = self.kit / PLACE

    def play(self) -> Path:
        """To the end; the folder with what the run leaves."""
        shared(Recipe.load(self.recipe))  # what can be refused is refused before anybody is asked
        certificate(self.kit / "startup" / "server.crt")
        with alone(self.place / "server", f"another sartor server works with {self.kit}; there can be only one."):
            self._plan()
            if self._state() == "finished":
                return self.place / RUN
            vacant(self.about.host, self.about.port)
            harden(self.kit, True)
            follower, daemon = Follower(self.place / LOG, self.say), Daemon(self.kit, self.about)
            try:
                self._supervise(daemon, follower)
            finally:
                follower.look()
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

    def _supervise(self, daemon: Daemon, follower: Follower) -> None:
        stuck, last = 0, -1
        while True:
            shutil.rmtree(self.kit / "store", ignore_errors=True)  # jobs of a server that was killed: ours are kept
            daemon.start()
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
                        if self._job(admin, daemon, follower):
                            return
            except _Lost as e:
                self.say(f"{e}; starting again")
            daemon.stop()

    def _job(self, admin: Any, daemon: Daemon, follower: Follower) -> bool:
        """One job, from submission to its end; True where the run is finished."""
        self._wait_for_sites(admin, daemon)
        folder = self.place / f"job-{self.about.federation}"
        for name, value in job(self.about.federation, f"{JOBS}.Server", f"{JOBS}.Site", self.about.sites).items():
            write_json(folder / name, value)
        number = asked(admin.submit_job, str(folder))
        looked, away = time.monotonic(), 0
        while daemon.alive:
            time.sleep(_POLL)
            follower.look()
            if self._state() == "finished":
                return True
            if (self.place / ERROR).exists():
                raise SartorError((self.place / ERROR).read_text())
            status = str(asked(admin.get_job_meta, number).get("status", ""))
            if status.startswith("FINISHED"):
                self.say("the job was lost; the next job goes on from the checkpoint")
                return False
            if time.monotonic() - looked > _LOOK and status == "RUNNING":
                looked = time.monotonic()
                back = self._outside(admin, number)
                away = away + 1 if back else 0
                if away >= 2:
                    lost = set(back) >= self._listed(admin)
                    what = "the job was lost" if lost else f"site {', '.join(back)} is back"
                    self.say(f"{what}; the next job goes on from the checkpoint")
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
            if waited - said > 30 or said == 0.0:
                said = waited or 0.001
                self.say(f"waiting for site {', '.join(missing)}")
            time.sleep(_POLL)
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


# --- client -----------------------------------------------------------------------------------------------------------


@dataclass
class Client:
    """Takes part with the data of one site."""

    kit: Path
    own: Own
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
            write_json(self.place / OWN, asdict(self.own))
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
                time.sleep(_POLL)
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


# --- checks -----------------------------------------------------------------------------------------------------------


def reachable(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=3):
        return True
    return False


def vacant(host: str, port: int) -> None:
    """Refuse a port that somebody listens on; one that was just left may be taken again."""
    until = time.monotonic() + 10
    while reachable(host, port):
        need(
            time.monotonic() < until,
            f"port {port} of {host} is in use: another server, or this one is still running. End it, or make kits with "
            "another port.",
        )
        time.sleep(0.5)


def certificate(path: Path) -> None:
    """Refuse a certificate that is not valid now, which is also how a wrong clock shows."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as e:
        raise SartorError(f"{path} cannot be read: the kit is not whole.") from e
    now = datetime.now(UTC)
    need(
        now <= found.not_valid_after_utc,
        f"the certificate of this kit expired on {found.not_valid_after_utc:%Y-%m-%d} (this machine's clock says "
        f"{now:%Y-%m-%d %H:%M} UTC). Ask for a new kit, or set the clock.",
    )
    need(
        now >= found.not_valid_before_utc,
        f"the certificate of this kit is valid from {found.not_valid_before_utc:%Y-%m-%d %H:%M} UTC, and this "
        f"machine's clock says {now:%Y-%m-%d %H:%M}. Set the clock.",
    )
