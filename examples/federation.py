"""A federation on one machine: kits, a server and three sites with their own files, ten rounds of FLAME over mTLS.

    python examples/federation.py FOLDER

On real hosts you type each of the commands below where its kit is; nothing else changes.
"""

from __future__ import annotations

import csv
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SARTOR = [sys.executable, "-c", "from sartor.cli import main; main()"]
RECIPE = """[method]
method = "flame"
settings = { lam = 0.5 }
model = "softmax"
rounds = 10

[evaluation]
evaluate_every = 5
"""
SITES = {"ash": (400, 1.0), "birch": (250, -0.5), "cedar": (120, 0.2)}  # number of samples, effect of the dose


def tables(folder: Path) -> dict[str, Path]:
    """Three hospitals whose patients respond differently. One has a ward that the others do not have."""
    draw, paths = np.random.default_rng(0), {}
    for at, (name, (count, effect)) in enumerate(SITES.items()):
        paths[name] = folder / f"{name}.csv"
        with paths[name].open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["age", "dose", "pressure", "ward", "outcome"])
            for _ in range(count):
                age, dose, pressure = draw.normal(size=3)
                ward = draw.choice(["east", "west", "north"][: 2 + (at == 2)])
                well = age + 2 * effect * dose - 0.5 * pressure + 0.5 * draw.normal() > 0
                table.writerow([age, dose, pressure, ward, "well" if well else "ill"])
    return paths


def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def main(folder: Path) -> int:
    folder.mkdir(parents=True)
    began, paths, kits = time.monotonic(), tables(folder), folder / "kits"
    (folder / "recipe.toml").write_text(RECIPE)
    init = ["federation", "init", "--name", "demo", "--server", f"localhost:{port()}", "--sites", ",".join(SITES)]
    subprocess.run([*SARTOR, *init, "--out", str(kits)], check=True)
    commands = {"server": ["server", str(kits / "server"), "--recipe", str(folder / "recipe.toml")]}
    for name, path in paths.items():
        commands[name] = ["client", str(kits / name), "--data", str(path), "--target", "outcome"]
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            shown = None if name == "server" else (folder / f"{name}.log").open("wb")
            running[name] = subprocess.Popen([*SARTOR, *command], stdout=shown, stderr=subprocess.STDOUT)
        codes = {name: process.wait(timeout=600) for name, process in running.items()}
    finally:
        for process in running.values():
            process.kill()  # what it started ends with it
            process.wait()
    for name in SITES:
        last = (folder / f"{name}.log").read_text().splitlines()[-1]
        print(f"{name}: {last}", *sorted(p.name for p in (kits / name / "play" / "models").glob("*")))
    print(f"{time.monotonic() - began:.0f} s from the first kit to the last model")
    return max(codes.values())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
