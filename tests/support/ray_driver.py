"""A program for test_ray.py: `sartor` with a Ray cluster of its own is killed, and goes on.

python ray_driver.py FOLDER PRELUDE ARGUMENTS OF SARTOR ...
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import psutil
from waiting import until

MAIN = "from sartor.cli import main; main()"


def main(folder: Path, prelude: str, arguments: list[str]) -> None:
    place = folder / "ray"
    done = subprocess.run([sys.executable, "-c", prelude + MAIN, *arguments, "--out", place], check=False)
    assert done.returncode == -9, done
    until(lambda: not left(), lambda: (p.pid for p in psutil.process_iter()), lambda: f"left: {left()}")
    print("left:", left())
    shutil.copytree(place, folder / "local")
    for engine in ("ray", "local"):
        words = ["run", "--resume", folder / engine, "--engine", engine, "--quiet"]
        subprocess.run([sys.executable, "-c", MAIN, *words], check=True)


def left() -> list[str]:
    """The processes of a cluster that are still there; Ray's own agents take their time."""
    found = [p for p in psutil.process_iter(["status", "cmdline"]) if p.info["status"] != psutil.STATUS_ZOMBIE]
    names = ("raylet", "gcs_server", "ray::Shard", "ray::IDLE")
    return [p.info["cmdline"][0] for p in found if Path((p.info["cmdline"] or [""])[0]).name.startswith(names)]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
