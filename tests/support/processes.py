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
import numpy as np
import psutil
import waiting
from sites import EXACT, NAMES, personal

from sartor.run.complete import clients_of
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe
from sartor.storage import load_tensors

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
    own: dict[str, Sequence[object]] = field(default_factory=dict)  # further options of single sites
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ever: list[psutil.Process] = field(default_factory=list)

    @classmethod
    def make(cls, folder: Path, recipe: str, data: dict[str, Path], own_keys: bool = False) -> Processes:
        """With kits that were made in one place, or each with a key of its owner's."""
        names = [n for n in data if n != "all"]
        kits, port = folder / "kits", free_port()
        init = ("federation", "init", "--name", "trial", "--server", f"localhost:{port}", "--sites", ",".join(names))
        done = run(*init, "--out", folder / "authority" if own_keys else kits, *(["--requests"] if own_keys else []))
        assert done.returncode == 0, done
        for name in ("server", *names) if own_keys else ():
            request = ("federation", "request", "--name", "trial", "--site", name, "--out", kits / name)
            sign = ("federation", "sign", folder / "authority", kits / name / "request.csr")
            for words in (
                request,
                (*sign, "--out", folder / f"{name}.answer"),
                ("federation", "join", kits / name, folder / f"{name}.answer"),
            ):
                done = run(*words)
                assert done.returncode == 0, done
        (folder / "recipe.toml").write_text(recipe)
        return cls(kits, folder / "recipe.toml", {n: data[n] for n in names})

    def start(self, *names: str) -> None:
        for name in names or ("server", *self.data):
            words = ["server", self.kits / "server", "--recipe", self.recipe, *self.options]
            if name != "server":
                words = ["client", self.kits / name, "--data", self.data[name], "--target", "outcome"]
                words += ["--least-scored", EXACT.least_scored, "--score-digits", EXACT.score_digits]
                words += self.own.get(name, ())
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


def same_as_simulated(found: Processes, data: dict[str, Path], folder: Path) -> None:
    """Every final vector equals the serial engine's, byte for byte: the global model, the personal ones."""
    own = {"data": str(data["all"]), "target": "outcome", "client_key": "hospital", "diagnostics": False}
    own |= {"partition": "natural", "engine": "serial"}
    recipe = Recipe.load(found.recipe).replace(**own)
    list(play_recipe(recipe, clients_of(recipe), folder))
    expected, _ = load_tensors(folder / "models" / "personal.safetensors")
    for i, name in enumerate(NAMES):
        wanted = np.concatenate([expected[k][i].numpy().ravel() for k in sorted(expected)])
        assert np.array_equal(personal(found.kits, f"{name}/play"), wanted), name
    common = found.kits / "server" / "play" / "run" / "models" / "global.safetensors"
    assert common.read_bytes() == (folder / "models" / "global.safetensors").read_bytes()
