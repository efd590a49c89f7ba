"""A program for test_ray.py: two Ray nodes on this machine; one is killed in mid-round, with everything on it.

python ray_nodes.py FOLDER ARGUMENTS OF SARTOR ...
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import waiting
from faulty.faults import ANYBODY, MARKS, Fault

PORT = 6390
MAIN = "from sartor.cli import main; main()"


class Node:
    """`ray start`, which stays, and all that it starts."""

    def __init__(self, *options: str, env: dict[str, str]) -> None:
        words = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--block",
            "--disable-usage-stats",
            "--num-cpus=2",
        ]
        self.process = subprocess.Popen([*words, *options], env=env, stdout=subprocess.DEVNULL)

    def tree(self) -> list[psutil.Process]:
        first = psutil.Process(self.process.pid)
        return [first, *first.children(recursive=True)]

    def kill(self) -> None:
        for process in self.tree():
            process.send_signal(signal.SIGKILL)
        self.process.wait()


def until(condition: Callable[[], bool], what: str) -> None:
    """As long as anything here does something: this program has its own list of processes."""
    waiting.until(condition, lambda: [p.pid for p in psutil.process_iter()], lambda: what)


def cpus(env: dict[str, str]) -> float:
    ask = f"import ray; ray.init('127.0.0.1:{PORT}', logging_level='error'); print(ray.cluster_resources()['CPU'])"
    done = subprocess.run([sys.executable, "-c", ask], env=env, capture_output=True, text=True, check=False)
    return float(done.stdout.split()[-1]) if done.returncode == 0 else 0.0


def main(folder: Path, arguments: list[str]) -> None:
    short = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # the names of sockets are short
    marks = folder / "marks"
    marks.mkdir()
    quick = {"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "3"}
    env = {**os.environ, **quick, "RAY_TMPDIR": short, "RAY_DISABLE_IMPORT_WARNING": "1"}
    slow = Fault(ANYBODY, round=1, seconds=1.0).environment() | {MARKS: str(marks)}  # in the actors only
    try:
        head = Node(
            "--head", f"--port={PORT}", "--include-dashboard=false", "--node-ip-address=127.0.0.1", env=env | slow
        )
        until(lambda: cpus(env) == 2, "the head did not start")
        other = Node(f"--address=127.0.0.1:{PORT}", env=env | slow)
        until(lambda: cpus(env) == 4, "the second node did not join")
        sartor = [sys.executable, "-c", MAIN, *arguments]
        with subprocess.Popen(sartor, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
            begun = time.monotonic()

            def there() -> set[int]:
                return {p.pid for p in other.tree()} & {int(p.name) for p in marks.iterdir()}

            until(lambda: bool(there()) or run.poll() is not None, "no actor at the second node was in round 2")
            assert run.poll() is None, run.communicate()
            killed = len(there())
            other.kill()
            out, err = waiting.ended(run)
        print(f"killed a node with {killed} actors at work; the whole run took {time.monotonic() - begun:.0f} s")
        print("said:", *err.splitlines(), sep="\n  ")
        assert run.returncode == 0, (out, err)
        assert head.process.poll() is None and cpus(env) == 2, "the head did not outlive the run"
        refused = subprocess.run(
            [*sartor, "--workers", "9", "--out", folder / "no"], env=env, capture_output=True, text=True
        )
        print("refused:", refused.returncode, refused.stderr.splitlines()[-1])
    finally:
        shutil.rmtree(short, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
