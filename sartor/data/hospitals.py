"""A made-up table of patients of twelve hospitals, to try things on: `python -m sartor.data.hospitals [FOLDER]`.

It writes patients.csv (hospital, age, sex, smoker, bmi, glucose, pressure, pulse, sodium, ward, outcome) and new.csv:
three patients without an outcome, two of hospitals that are in patients.csv and one of a hospital that is not.
Hospitals have 30 to 160 patients; most columns mean the same everywhere, glucose and ward do not; bmi is missing now
and then.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

HOSPITALS = {
    "St. Mary": 160, "City": 120, "Riverside": 90, "North": 70, "Lakeview": 60, "Mercy": 55,
    "Hill": 50, "Harbour": 45, "West End": 40, "Abbey": 40, "Park": 35, "Valley": 30,
}  # fmt: skip
HEADER = ("hospital", "age", "sex", "smoker", "bmi", "glucose", "pressure", "pulse", "sodium", "ward", "outcome")
WARDS = ("surgery", "medicine", "intensive")


def patients(seed: int = 0) -> list[list[object]]:
    """A row per patient, in the order of `HEADER`."""
    draw = np.random.default_rng(seed)
    rows: list[list[object]] = []
    for i, (hospital, count) in enumerate(HOSPITALS.items()):
        sugar = 0.9 if i % 2 else 0.1  # half of the hospitals measure glucose after a meal
        wards, base = 0.2 * draw.normal(size=3), 0.3 * draw.normal()
        for _ in range(count):
            age, bmi, glucose, pressure, pulse, sodium = draw.normal(size=6)
            sex, smoker, ward = draw.choice(["f", "m"]), draw.choice(["yes", "no"], p=[0.3, 0.7]), int(draw.integers(3))
            risk = base + age + 0.7 * bmi + sugar * glucose + 0.6 * pressure + 0.8 * pulse - 0.6 * sodium
            risk += 0.9 * (smoker == "yes") + wards[ward] + 0.8 * draw.logistic()
            missing = draw.random() < 0.08
            rows.append(
                [
                    *(hospital, round(62 + 12 * age), sex, smoker, "" if missing else round(27 + 4 * bmi, 1)),
                    *(round(110 + 25 * glucose), round(130 + 15 * pressure), round(75 + 11 * pulse)),
                    *(round(140 + 3 * sodium), WARDS[ward], "readmitted" if risk > 0.3 else "home"),
                ]
            )
    return rows


def write(folder: Path) -> list[Path]:
    """Write patients.csv and new.csv."""
    new = [
        ["St. Mary", 71, "f", "no", 31.5, 96, 141, 88, 138, "surgery"],
        ["Park", 58, "m", "yes", "", 150, 128, 70, 141, "medicine"],
        ["Seaside", 66, "f", "no", 24.0, 122, 135, 72, 142, "medicine"],
    ]
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "patients.csv", folder / "new.csv"]
    for path, header, rows in ((paths[0], HEADER, patients()), (paths[1], HEADER[:-1], new)):
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([list(header), *rows])
    return paths


if __name__ == "__main__":
    for path in write(Path(sys.argv[1] if len(sys.argv) > 1 else ".")):
        print(path)
