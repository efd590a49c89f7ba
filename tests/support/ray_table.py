"""A program for test_ray.py: plays the table of conformance, and what else there is, in one Ray cluster of its own.

python ray_table.py FOLDER
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from conformance import CASES, PLAIN, Case
from faulty.faults import Fault

from sartor.core import ClientStack, State
from sartor.engines.ray import cluster, engine
from sartor.errors import SartorError
from sartor.run.assemble import assemble
from sartor.run.complete import clients_of
from sartor.run.play import play_recipe
from sartor.wrappers.base import Wrapper

OWN: dict[str, Any] = {"engine": "ray", "chunk": 1, "workers": 2}  # three clients, two actors


class Faulty(Wrapper):
    """A client that raises, is slow, or (with a file, which then is there) is killed with its process."""

    def __init__(self, method: Any, fault: Fault, once: Path | None) -> None:
        super().__init__(method)
        self.fault, self.once = fault, once

    def client(self, state: State, down: State, local: ClientStack) -> tuple[State, State]:
        if local.round == self.fault.round and self.fault.client in local.ids:
            if self.once is not None:
                if not self.once.exists():
                    self.once.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            elif self.fault.seconds is None:
                raise RuntimeError(f"the fault of client {self.fault.client}")
            else:
                time.sleep(self.fault.seconds)
        return super().client(state, down, local)


def play(case: Case, folder: Path, once: Path | None = None, **own: Any) -> None:
    recipe = case.whole(**OWN | own)
    clients = clients_of(recipe)
    played_by = assemble(recipe, clients, folder).run.engine
    assert isinstance(played_by, engine.RayEngine)
    fault = case.fault or (Fault(client=1, round=2) if once else None)
    if fault is not None:
        played_by.home.method = Faulty(played_by.home.method, fault, once)  # type: ignore[assignment]
    list(play_recipe(recipe, clients, folder, played_by))


def refused(case: Case, folder: Path) -> None:
    try:
        play(case, folder)
    except (SartorError, RuntimeError) as e:
        print("refused:", str(e).strip().splitlines()[-1])


def network_card() -> None:
    """As if there were one: Ray would take its address. (Without `ip` it is not tried.)"""
    if shutil.which("ip"):
        for words in ("addr add 10.9.9.9/32 dev lo", "route add default dev lo src 10.9.9.9"):
            subprocess.run(["ip", *words.split()], check=True)


def listening() -> None:
    """Print the addresses on which anything here listens."""
    for file in ("tcp", "tcp6"):
        for line in Path("/proc/net", file).read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            if state == "0A":
                print("listens:", local.split(":")[0])


def main(folder: Path) -> None:
    network_card()
    for name in PLAIN:
        play(CASES[name], folder / name)
    listening()
    for name in ("flame, two of three", "fedamp, two of three", "flame, one is slow"):
        play(CASES[name], folder / name)
    play(CASES["flame"], folder / "killed", once=folder / "once")
    refused(CASES["flame, one raises"], folder / "flame, one raises")
    recipe = CASES["ditto"].whole(**OWN, checkpoint_every=2)
    clients = clients_of(recipe)
    for result in play_recipe(recipe, clients, folder / "again"):
        if result.run.round == 3:  # interrupted, with a checkpoint after round 2
            break
    list(play_recipe(recipe, clients, folder / "again"))
    versions, write = cluster.versions, engine.write_text
    cluster.versions = lambda: versions() | {"sartor": "0.0.9 (0badf00d)"}
    refused(CASES["flame"], folder / "other version")
    cluster.versions, engine.write_text = versions, lambda path, text: path.parent.mkdir(parents=True)
    refused(CASES["flame"], folder / "not shared")
    engine.write_text = write


if __name__ == "__main__":
    main(Path(sys.argv[1]))
