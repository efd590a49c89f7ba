"""Train on your own table with one client per hospital, save the models, predict new patients.

    python examples/own_csv.py FOLDER

The same on the command line:

    sartor run --data patients.csv --target outcome --client-key hospital --method ditto --out runs/a
    sartor predict --run runs/a --client birch --data tomorrow.csv
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import torch

import sartor as st

HOSPITALS = {"ash": 1.0, "birch": -0.5, "cedar": 0.2}  # the effect of the dose


def write_patients(path: Path) -> None:
    """A typical table: numbers, text, an outcome, and the hospital of each patient."""
    draw = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["hospital", "age", "dose", "ward", "outcome"])
        for hospital, effect in HOSPITALS.items():
            for _ in range(200):
                age, dose = draw.normal(size=2)
                ward = draw.choice(["east", "west"])
                well = 0.5 * age + 2 * effect * dose + 0.2 * draw.normal() > 0
                table.writerow([hospital, f"{age:.3f}", f"{dose:.3f}", ward, "well" if well else "ill"])


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_patients(folder / "patients.csv")

    patients = st.data.load(str(folder / "patients.csv"), target="outcome", client_key="hospital")
    clients = patients.split(st.Natural())  # text became columns of 0 and 1, outcomes became classes
    model = st.models.layers(len(patients.feature_names), 2)
    result = st.fit(st.Ditto(lam=0.1), model, clients, rounds=30)
    print(result.table())
    result.save(folder / "run")  # scores, history and models as safetensors

    birch = clients.names.index("birch")
    x = clients.x[clients.rows(birch, "test")][:5]  # five patients not used in training
    with torch.no_grad():
        predicted = result.chosen(birch)(x).argmax(1)
    print("birch:", [patients.class_names[k] for k in predicted])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/own-csv"))
