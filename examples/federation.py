"""A federation on one machine: kits, a server and three sites with their own files, ten rounds of MR-MTL over mTLS,
with patient-level differential privacy, compressed messages and secure aggregation.

    python examples/federation.py FOLDER

On real hosts you type each of the commands below where its kit is; nothing else changes.
"""

from __future__ import annotations

import csv
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SARTOR = [sys.executable, "-c", "from sartor.cli import main; main()"]
RECIPE = """[method]
method = "mr-mtl"
settings = { lam = 0.3 }
model = "softmax"
rounds = 10
local_steps = 4
solver = { kind = "sgd", lr = 0.5, batch = 64 }

[federation]
secure_aggregation = true     # the server sees sums of the sites' messages, statistics and scores

[privacy]
dp_unit = "sample"            # each patient's row
dp_epsilon = 6.0              # each site finds the noise that its own number of rows needs
dp_clip = 1.0

[traffic]
compress = "projection(k=0.5)"

[evaluation]
evaluate_every = 5
"""
SITES = {"ash": (400, 1.0), "birch": (250, -0.5), "cedar": (160, 0.2)}  # number of samples, effect of the dose
LABS = 12  # further columns


def tables(folder: Path) -> dict[str, Path]:
    """Three hospitals whose patients respond differently. One has a ward that the others do not have."""
    draw, paths = np.random.default_rng(0), {}
    weights = draw.normal(size=LABS) / 3
    for at, (name, (count, effect)) in enumerate(SITES.items()):
        paths[name] = folder / f"{name}.csv"
        with paths[name].open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["age", "dose", "pressure", *(f"lab{i}" for i in range(LABS)), "ward", "outcome"])
            for _ in range(count):
                age, dose, pressure = draw.normal(size=3)
                labs = draw.normal(size=LABS)
                ward = draw.choice(["east", "west", "north"][: 2 + (at == 2)])
                well = age + 2 * effect * dose - 0.5 * pressure + labs @ weights + 0.5 * draw.normal() > 0
                table.writerow([age, dose, pressure, *labs, ward, "well" if well else "ill"])
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
    if not any(codes.values()):
        report(kits)
    print(f"{time.monotonic() - began:.0f} s from the first kit to the last model")
    return max(codes.values())


def report(kits: Path) -> None:
    """What each site has spent, what stays there, and what compression saves."""
    print("secure aggregation: the server has seen sums over three sites, and no site's message, statistics or scores")
    for name in SITES:
        status = subprocess.run([*SARTOR, "federation", "status", str(kits / name)], capture_output=True, text=True)
        (spent,) = [line.strip() for line in status.stdout.splitlines() if "epsilon" in line]
        models = sorted(p.name for p in (kits / name / "play" / "models").glob("*"))
        print(f"{name}: {spent}; stays there:", *models)
    summary = json.loads((kits / "server" / "play" / "run" / "summary.json").read_text())
    message = summary["bytes_up"] / summary["rounds"] / len(SITES)
    whole = 8 * summary["parameters"]  # of masked numbers
    saved = summary["rounds"] * len(SITES) * whole - summary["bytes_up"]
    print(f"compression: {message:.0f} bytes for a message in place of {whole}: {saved:.0f} saved in all")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
