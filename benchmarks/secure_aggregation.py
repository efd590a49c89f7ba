"""Seconds of a round with and without secure aggregation, in one run: three sites in this process, a model of a million
numbers, rounds of both kinds in turn. Everything else is as in a federation: messages, checks, states on disk.

    python benchmarks/secure_aggregation.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from identities import identities
from measure import AT_MOST, emit
from sites import NAMES, Federation

from sartor.run.recipe import Recipe
from sartor.run.result import Result

MOST = 1.5  # times the seconds of a round without it: the target
COLUMNS, HIDDEN = 100, 9_800  # (100 + 1)·9800 + (9800 + 1)·2 = 1,009,402 numbers


def tables(folder: Path, rows: int = 1000) -> dict[str, Path]:
    """A file for each site."""
    draw, paths = np.random.default_rng(0), {}
    for name in NAMES:
        x = draw.normal(size=(rows, COLUMNS))
        paths[name] = folder / f"{name}.csv"
        with paths[name].open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow([*(f"x{i}" for i in range(COLUMNS)), "outcome"])
            out.writerows([[*(f"{v:.4f}" for v in row), "ill" if row[0] > 0 else "well"] for row in x])
    return paths


def rounds_of(folder: Path, paths: dict[str, Path], rounds: int, secure: bool) -> Iterator[Result]:
    recipe = Recipe(
        method="fedavg",
        model=f"mlp({HIDDEN})",
        rounds=rounds,
        evaluate_every=rounds,
        partition="natural",
        secure_aggregation=secure,
    )
    fed = Federation(folder, recipe, paths, identities=identities(NAMES))
    return fed.lead(fed.calls()).play()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=15)
    rounds = options.parse_args().rounds
    with tempfile.TemporaryDirectory() as place:
        paths = tables(Path(place))
        played = {secure: rounds_of(Path(place) / str(secure), paths, rounds, secure) for secure in (False, True)}
        seconds: dict[bool, list[float]] = {False: [], True: []}
        size = 0
        for run in played.values():
            size = next(run).run.problem.start.numel()  # joining
        for _ in range(rounds - 1):  # the last round is scored as well
            for secure, run in played.items():  # in turn, so that a busy machine slows both
                began = time.perf_counter()
                next(run)
                seconds[secure].append(time.perf_counter() - began)
    without, within = (float(np.median(seconds[kind][1:])) for kind in (False, True))
    emit(
        "secure aggregation",
        f"three sites, {size:,} numbers",
        ours=within,
        theirs=without,
        ratio=within / without,
        target=MOST,
        sense=AT_MOST,
        note=f"medians of {rounds - 2} rounds; 1000 rows a site, the default solver",
    )


if __name__ == "__main__":
    main()
