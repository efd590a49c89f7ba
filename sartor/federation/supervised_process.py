"""What server and client have in common: NVFlare's process of a kit, the log of its jobs, and what is checked first."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import need
from . import certificates
from .kits import Kit
from .logs import trim
from .nvflare_jobs import PLACE
from .revocation import in_use
from .transports.https_driver import PROXY

Say = Callable[[str], None]
POLL = 1.0  # seconds between two looks at a process
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
from sartor.federation.transports import https_driver
https_driver.register()
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


@dataclass
class Daemon:
    """NVFlare's long-lived process for one kit."""

    kit: Path
    about: Kit
    proxy: str | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """What NVFlare says; of bounded size (`trim`)."""
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
        env |= {} if self.proxy is None else {PROXY: self.proxy}
        module = f"nvflare.private.fed.app.{part}.{part}_train"
        self.log.unlink(missing_ok=True)
        with self.log.open("ab") as log:  # for appending: it is trimmed while NVFlare writes
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

    def trim(self) -> None:
        """Keep its log from growing without end."""
        trim(self.log)

    def says(self, words: str) -> int:
        """How often these words are in its log."""
        with contextlib.suppress(OSError):
            return self.log.read_text(errors="replace").count(words)
        return 0

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


def certificate(kit: Path, part: str) -> None:
    """Refuse a kit whose certificate is not valid now, or is revoked."""
    found = certificates.read(kit / "startup" / f"{part}.crt")
    certificates.check_dates(found, "this kit", "Ask for a new one, or set the clock.")
    revoked = in_use(kit, certificates.read(kit / "startup" / certificates.ROOT))
    need(
        found not in revoked,
        f"the certificate of this kit is revoked (list {revoked.number} of revoked certificates). Ask the federation's "
        "authority for a new one (sartor federation request).",
    )
