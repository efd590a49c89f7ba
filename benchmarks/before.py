"""What people play - settings on folds, the demo, a tuning - against the same by the version before runs went together.

    make build/before        # that version, in a folder of its own
    SARTOR_DATA=FOLDER python benchmarks/before.py build/before

Either version is a process of its own that plays on all cores what its users would: 20 settings on 5 cuts of the
hospitals' table by five methods (the older one by one, as nothing else was there), the demo's thirty runs, and a few
trials of two methods on each of `make headline`'s data. They take turns; the median of each counts, in seconds, without
the start of Python and the reading of data.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TARGETS = {"heart": 10.0, "demo": 3.0, "tuning, Fashion-MNIST": 1.5, "tuning, HAR": 1.5, "tuning, heart": 1.5}
TRIALS, TUNING_ROUNDS = 4, 10


def heart(data: dict[str, Any], grids: dict[str, list[dict[str, Any]]], cuts: int) -> float:
    """Every setting on every cut by every method; together where this version can."""
    from sartor.data import load
    from sartor.run.play import play_recipe
    from sartor.run.recipe import Recipe
    from sartor.study.candidates import ROUNDS

    dataset = load(Path(data["data"]), target=data["target"], client_key=data["client_key"])
    folds = [dataset.split("natural", seed=seed, parts=(0.8, 0.0, 0.2)) for seed in range(cuts)]
    base = Recipe(data="table", target="y", workers=1, rounds=ROUNDS, evaluate_every=ROUNDS)
    base = base.replace(diagnostics=False, parts=[0.8, 0.0, 0.2])
    runs = {
        method: [(base.replace(method=method, settings=s, seed=i), fold) for s in grid for i, fold in enumerate(folds)]
        for method, grid in grids.items()
    }
    together = find_spec("sartor.run.lockstep") is not None
    if not together:
        for pairs in runs.values():  # what is compiled first does not count, there and below
            for _ in play_recipe(*pairs[0], None):
                pass
        began = time.perf_counter()
        for pairs in runs.values():
            for recipe, fold in pairs:
                for _ in play_recipe(recipe, fold, None):
                    pass
        return time.perf_counter() - began

    from sartor.run.lockstep import play_together
    from sartor.study.ahead import in_order, spare_cores

    def play(method: str, times: int | None = None) -> int:
        tasks: dict[Any, Any] = {}
        return len(dict(play_together([play_recipe(*pair, None, tasks=tasks) for pair in runs[method][:times]])))

    for method in runs:
        play(method, cuts)
    began = time.perf_counter()
    played = list(in_order([partial(play, method) for method in runs], spare_cores()))
    assert played == [len(pairs) for pairs in runs.values()]
    return time.perf_counter() - began


def demo() -> float:
    """Ten methods with three seeds on the embedded data."""
    from sartor.cli.compare import DEMO
    from sartor.run.recipe import Recipe
    from sartor.study.compare import compare

    base, (read_data, _) = Recipe(), reading()
    dataset = read_data(base)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        for _ in compare(base, DEMO.split(","), [0, 1, 2], dataset, Path(folder)):
            pass
        return time.perf_counter() - began


def tuning(data: dict[str, Any]) -> float:
    """A few trials of two methods."""
    from sartor.run.recipe import Recipe
    from sartor.study.tune import tune

    base, (read_data, _) = Recipe(rounds=TUNING_ROUNDS).replace(**data), reading()
    dataset = read_data(base)
    began = time.perf_counter()
    for _ in tune(base, ["flame", "ditto"], [0], dataset, TRIALS):
        pass
    return time.perf_counter() - began


def reading() -> tuple[Any, Any]:
    """Where this version reads and splits data."""
    if find_spec("sartor.run.complete") is not None:
        from sartor.run import complete as found
    else:
        from sartor.run import assemble as found  # type: ignore[no-redef]
    return found.read_data, found.split


def played(version: Path, what: str, facts: dict[str, Any]) -> float:
    """The seconds of one program by one version."""
    command = [sys.executable, __file__, str(version), "--play", what, "--facts", json.dumps(facts)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(version)}, capture_output=True, text=True, check=True
    )
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("older", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", choices=list(TARGETS))
    parser.add_argument("--play", help=argparse.SUPPRESS)
    parser.add_argument("--facts", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.play:
        print({"heart": heart, "demo": demo, "tuning": tuning}[given.play](**given.facts))
        return
    from lockstep import CUTS, GRIDS, HEADLINE, SETTINGS
    from measure import emit_pair

    grids = {method: [grid(i / SETTINGS) for i in range(SETTINGS)] for method, grid in GRIDS.items()}
    versions = {"ours": Path(__file__).resolve().parents[1], "theirs": given.older.resolve()}
    for case, target in TARGETS.items():
        if given.only not in (None, case):
            continue
        what, _, name = case.partition(", ")
        facts: dict[str, Any] = {"data": HEADLINE[name or case]} if case != "demo" else {}
        facts |= {"grids": grids, "cuts": CUTS} if case == "heart" else {}
        spent: dict[str, list[float]] = {who: [] for who in versions}
        for _ in range(given.turns):
            for who, version in versions.items():
                spent[who].append(played(version, what, facts))
        ours, theirs = (statistics.median(spent[who]) for who in versions)
        emit_pair("against the version before", case, ours, theirs, target=target)


if __name__ == "__main__":
    main()
