"""What this version leaves behind, stored for later versions to read: run once for each release, never again.

    python tests/compatibility/store.py

It writes a folder named after the version: a table, a recipe, a run that stopped after four of its six rounds, what
this version predicts, and what it reaches when it goes on. test_earlier_versions.py reads every such folder.
"""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import sartor

RECIPE = """\
# Settings of every kind that leaves something in a checkpoint or in a run's folder.
[data]
data = "patients.csv"
target = "outcome"
client_key = "ward"

[method]
method = "flame"
model = "mlp(8)"
rounds = 4
seed = 5

[federation]
cohort = 3

[traffic]
compress = "top-k(k=0.5)"

[evaluation]
evaluate_every = 2
checkpoint_every = 2
calibrate = "temperature"
"""


def table(labelled: bool) -> str:
    draw, text = random.Random(3 if labelled else 4), io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["ward", "age", "sex", "admitted", *(["outcome"] if labelled else [])])
    for ward in ("north", "south", "east", "west") if labelled else ("north", "west", "upper"):
        for _ in range(24 if labelled else 2):
            age, sex = draw.randint(30, 90), draw.choice("fm")
            well = age + draw.gauss(0, 12) + (20 if ward == "west" else 0) * (sex == "f") < 62
            known = "" if draw.random() < 0.1 else str(age)
            day = f"2026-0{draw.randint(1, 9)}-1{draw.randint(0, 9)}"
            rows.writerow([ward, known, sex, day, *(["well" if well else "ill"] if labelled else [])])
    return text.getvalue()


def called(*words: str) -> str:
    command = [sys.executable, "-c", "from sartor.cli import main; main()", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def predicted(folder: str, model: str) -> list[str]:
    """The rows for new.csv: those of known wards for personal models, as others have none."""
    rows = called("predict", "--run", folder, "--data", "new.csv", "--probabilities", "--model", model)
    return [row for row in rows.splitlines() if "unknown client" not in row]


def store(folder: Path) -> None:
    folder.mkdir()  # what an earlier release has left is not overwritten
    os.chdir(folder)
    Path("patients.csv").write_text(table(labelled=True), encoding="utf-8")
    Path("new.csv").write_text(table(labelled=False), encoding="utf-8")
    Path("recipe.toml").write_text(RECIPE, encoding="utf-8")
    called("run", "--recipe", "recipe.toml", "--out", "run", "--quiet")
    called("run", "--recipe", "recipe.toml", "--rounds", "6", "--out", "whole", "--quiet")
    said = {folder: {m: predicted(folder, m) for m in ("personal", "global")} for folder in ("run", "whole")}
    Path("expected.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree("whole")
    Path("run", "report.html").unlink()  # five megabytes; a later version writes its own


if __name__ == "__main__":
    store(Path(__file__).parent / sartor.__version__)
