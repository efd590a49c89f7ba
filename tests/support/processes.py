"""Real federations on this machine: `sartor server` and `sartor client` as processes, killed and restarted by tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import fresh
import psutil
import waiting
from sites import EXACT

MAIN = "from sartor.cli import main; main()"
WORKERS = {"server": "runner_process", "site": "worker_process"}  # NVFlare's modules for a job's processes


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """`sartor ARGUMENTS` to its end."""
    return fresh.run(f"import sys; sys.argv = {['sartor', *map(str, arguments)]!r}; {MAIN}")


def _env() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


@dataclass
class Processes:
    """A server and its sites. Everything that was started is ended by `end`."""

    kits: Path
    recipe: Path
    data: dict[str, Path]
    options: Sequence[object] = ("--round-timeout", 900, "--min-clients", 2)
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ever: list[psutil.Process] = field(default_factory=list)

    @classmethod
    def make(cls, folder: Path, recipe: str, data: dict[str, Path]) -> Processes:
        names = [n for n in data if n != "all"]
        kits, port = folder / "kits", free_port()
        init = ("federation", "init", "--name", "trial", "--server", f"localhost:{port}", "--sites", ",".join(names))
        done = run(*init, "--out", kits)
        assert done.returncode == 0, done
        (folder / "recipe.toml").write_text(recipe)
        return cls(kits, folder / "recipe.toml", {n: data[n] for n in names})

    def start(self, *names: str) -> None:
        for name in names or ("server", *self.data):
            words = ["server", self.kits / "server", "--recipe", self.recipe, *self.options]
            if name != "server":
                words = ["client", self.kits / name, "--data", self.data[name], "--target", "outcome"]
                words += ["--least-scored", EXACT.least_scored, "--score-digits", EXACT.score_digits]
            with (self.kits / f"{name}.log").open("ab") as log:
                self.started[name] = subprocess.Popen(
                    [sys.executable, "-c", MAIN, *map(str, words)],
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    env=_env(),
                )

    def tree(self, name: str) -> list[psutil.Process]:
        """The command and all that it started, the job's process last."""
        if self.started[name].poll() is not None:
            return []  # its number may be another's by now
        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.started[name].pid)
            found = [first, *first.children(recursive=True)]
            self.ever += [p for p in found if p not in self.ever]
            return found
        return []

    def worker(self, name: str) -> psutil.Process | None:
        """The process of the job that runs now."""
        module = WORKERS["server" if name == "server" else "site"]
        for process in self.tree(name):
            with contextlib.suppress(psutil.Error):
                if any(module in word for word in process.cmdline()):
                    return process
        return None

    def kill_worker(self, name: str) -> None:
        process = self.worker(name)
        assert process is not None, self.logs()
        process.send_signal(signal.SIGKILL)

    def kill(self, *names: str) -> None:
        """Everything of these, at once and without a word."""
        found = [p for name in names for p in self.tree(name)]
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        for name in names:
            self.started.pop(name).wait()

    def round(self) -> int:
        with contextlib.suppress(OSError, ValueError, KeyError):
            return int(json.loads((self.kits / "server" / "play" / "status.json").read_text())["round"])
        return 0

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for it, as long as all live and do something."""

        def holds() -> bool:
            if condition():
                return True
            for name, process in self.started.items():
                assert process.poll() in (None, 0), f"{name} ended\n{self.logs()}"
            return False

        waiting.until(holds, lambda: [p.pid for p in self.started.values()], self.logs)

    def finish(self) -> None:
        self.until(lambda: all(p.poll() is not None for p in self.started.values()))

    def logs(self) -> str:
        texts = []
        for path in [*self.kits.glob("*.log"), *self.kits.glob("*/play/daemon.txt")]:
            texts.append(f"--- {path}\n{path.read_text(errors='replace')[-3000:]}")
        return "\n".join(texts)

    def said(self, name: str) -> str:
        return (self.kits / f"{name}.log").read_text()

    def end(self) -> None:
        for name in list(self.started):
            self.kill(name)
        for process in self.ever:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(self.ever, timeout=waiting.STILL)
        assert not alive, alive
