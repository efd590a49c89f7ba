"""What a Ray cluster of two nodes costs: 100,000 clients in two actors, against the local engine with two workers.

    python benchmarks/ray_nodes.py [--clients N] [--method NAME]     as root, on Linux

Each node is in a network namespace of its own; a pair of virtual cables joins them, so all that actors and server tell
each other goes over TCP between two addresses. Both engines keep the clients' states on disk, and save a checkpoint
every ten rounds, which is not part of a round's time. Same numbers first: to 1e-6, as actors cut a cohort into other
chunks.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from measure import AT_MOST, difference, emit, seconds
from scaling import ASKED, linear

from sartor.run.rounds import Run

CLIENTS, NODES, PORT = 100_000, 2, 6379
DEAREST = 1.5  # times as long as the local engine: the target
CLOSE = 1e-6
SAVE = 10  # rounds to a checkpoint
OBJECTS = 10**9  # bytes of each node's object store: the actors' samples go through it once
AS_OTHERS = {"RAY_worker_niceness": "0"}  # Ray's workers would step back behind all else on this machine
PATIENCE = 300  # seconds for a node to be up


def name(node: int) -> str:
    """A node's network namespace."""
    return f"sartor-{os.getpid()}-{node}"


def address(node: int) -> str:
    return f"10.213.7.{node + 1}"


def inside(node: int, *command: str) -> list[str]:
    """A command in a node's namespace."""
    return ["ip", "netns", "exec", name(node), *command]


@contextmanager
def network() -> Iterator[None]:
    """Two namespaces and the cable between them; all processes in them end with it."""
    ends = [f"sartor{os.getpid() % 10**6}{end}" for end in "ab"]
    try:
        for node in range(NODES):
            subprocess.run(["ip", "netns", "add", name(node)], check=True)
        subprocess.run(["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]], check=True)
        for node, end in enumerate(ends):
            subprocess.run(["ip", "link", "set", end, "netns", name(node)], check=True)
            subprocess.run(inside(node, "ip", "addr", "add", f"{address(node)}/24", "dev", end), check=True)
            for device in (end, "lo"):
                subprocess.run(inside(node, "ip", "link", "set", device, "up"), check=True)
        yield
    finally:
        for node in range(NODES):  # what is in a namespace of ours was started here
            left = subprocess.run(["ip", "netns", "pids", name(node)], capture_output=True, text=True).stdout
            for process in left.split():
                os.kill(int(process), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name(node)])


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A head and a second node, with a CPU each; where the head listens."""
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus=1", "--disable-usage-stats", "--block"]
    head = [*ray, "--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={folder}"]
    other = [*ray, f"--address={address(0)}:{PORT}"]
    started = []
    try:
        for node, command in enumerate((head, other)):
            log = (folder / f"node-{node}.log").open("w")
            words = inside(node, *command, f"--node-ip-address={address(node)}", f"--object-store-memory={OBJECTS}")
            started.append(subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=os.environ | AS_OTHERS))
            _wait_for(folder / f"node-{node}.log", started[-1])
        yield f"{address(0)}:{PORT}"
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def _wait_for(log: Path, process: subprocess.Popen[bytes]) -> None:
    """Until a node says that it is up."""
    began = time.monotonic()
    while "Ray runtime started" not in log.read_text():
        if process.poll() is not None or time.monotonic() - began > PATIENCE:
            raise RuntimeError(f"a node did not start: {log.read_text()[-500:]}")
        time.sleep(0.2)


def compare(where: str, method: str, clients: int, repeats: int) -> None:
    """Both engines' numbers after two rounds, and their times; in the head's namespace."""
    with tempfile.TemporaryDirectory(prefix="sartor-nodes-", dir=os.environ.get("SARTOR_SCRATCH")) as folder:
        local = linear(method, clients, Path(folder) / "local", workers=NODES)
        ray = linear(method, clients, Path(folder) / "ray", workers=NODES, engine="ray", address=where)
        begun = seconds(ray.step)
        local.step()
        for run in (local, ray):
            run.step()
        far = difference(
            *({k: v for k, v in run.server.items() if isinstance(v, torch.Tensor)} for run in (local, ray))
        )
        found = _by_turns({"local": local, "ray": ray}, repeats, Path(folder))
    emit(
        "Ray on two nodes",
        f"{clients:,} clients {method}, cohort of {ASKED:,}",
        ours=found["ray"],
        theirs=found["local"],
        ratio=found["ray"] / found["local"],
        target=DEAREST,
        sense=AT_MOST,
        difference=far,
        same=far <= CLOSE,
        note=f"the first round took {begun:.1f} s, with the actors' start",
    )


def _by_turns(runs: dict[str, Run], repeats: int, folder: Path) -> dict[str, float]:
    """Median seconds of a round; without checkpoints the local engine would look through ever more that waits."""
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats):
        for name, run in runs.items():
            if turn % SAVE == 0:
                run.save(folder / f"{name}.checkpoint", "")
                run.step()  # with what the checkpoint leaves to be read again
            spent[name].append(seconds(run.step))
    return {name: statistics.median(each) for name, each in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--method", default="flame")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--at", help="where the cluster is: in the head's namespace already")
    given = parser.parse_args()
    if given.at:
        compare(given.at, given.method, given.clients, given.repeats)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that namespaces and nodes end with this program
    with tempfile.TemporaryDirectory(prefix="sray-") as folder, network(), cluster(Path(folder)) as where:
        subprocess.run(inside(0, sys.executable, *sys.argv, "--at", where), check=True)


if __name__ == "__main__":
    main()
