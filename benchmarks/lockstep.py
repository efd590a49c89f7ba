"""Many runs at once: in lockstep against one by one, a comparison and a tuning against one run after the other.

    python benchmarks/lockstep.py [--settings N]

The first is 20 settings on 5 cuts of a table of four hospitals (heart disease, where $SARTOR_DATA has it; else random
numbers of its size) by five methods with a linear model: of each method in processor seconds, so that others on the
machine do not matter; of all five in seconds, on all cores, as `sartor tune` plays them. Theirs is the same runs played
one by one. The second is the demo, ten methods with three seeds, in seconds. The
third is the tuning of `make headline` in small, on those of its data that $SARTOR_DATA has, also in seconds; theirs is
the same trials one after the other, each on all cores. before.py holds the same against the version before.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measure import emit, emit_pair, processor_seconds, seconds

from sartor.cli.compare import DEMO
from sartor.data import Clients, Dataset, load
from sartor.errors import Diverged, SartorError
from sartor.run.complete import read_data, split
from sartor.run.lockstep import play_together
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe
from sartor.run.result import Result
from sartor.study.ahead import in_order, spare_cores
from sartor.study.candidates import ROUNDS
from sartor.study.compare import compare
from sartor.study.equal_work import with_steps
from sartor.study.tune import tune, without_test

HEART = Path(os.environ.get("SARTOR_DATA", ".")) / "natural" / "heart.csv"
CUTS, SETTINGS = 5, 20
GRIDS: dict[str, Callable[[float], dict[str, Any]]] = {  # by u in [0, 1)
    "flame": lambda u: {"lam": 10 ** (2 * u - 1)},
    "pfedme": lambda u: {"lam": 10 ** (2 * u - 1), "eta": min(1.0, 10 ** (1 - 2 * u))},
    "ditto": lambda u: {"lam": 10 ** (2 * u - 1)},
    "fedavg-ft": lambda u: {"solver.lr": 10 ** (u - 1.5), "finetune.lr": 10 ** (u - 1.5)},
    "local": lambda u: {"solver.ridge": 10 ** (2 * u)},
}
DEMO_SECONDS = 15  # what was asked for
HEADLINE: dict[str, dict[str, Any]] = {  # as in the Makefile
    "Fashion-MNIST": {"data": "fashion-mnist", "partition": "dirichlet=0.3", "clients": 100, "model": "mlp"},
    "HAR": {"data": str(HEART.with_name("har.npz")), "client_key": "subject", "model": "mlp(32)"},
    "heart": {"data": str(HEART), "client_key": "hospital", "target": "disease"},
}
TRIALS, TUNING_ROUNDS = 4, 10


def table() -> tuple[str, Dataset]:
    """The hospitals."""
    if HEART.exists():
        return "heart", load(HEART, target="disease", client_key="hospital")
    draw, keys = np.random.default_rng(0), np.repeat(np.arange(4), (303, 261, 46, 130))
    x = draw.normal(size=(len(keys), 33)).astype(np.float32)
    y = (x @ draw.normal(size=33) + keys > 1.5).astype(np.int64)
    return "random table", Dataset(x, y, 2, "random", keys=keys, key_names=("A", "B", "C", "D"))


def plays(method: str, settings: int, cuts: list[Clients], shared: bool) -> Iterator[Iterator[Result]]:
    """Every setting on every cut."""
    tasks: dict[Any, Any] | None = {} if shared else None
    base = Recipe(method=method, data="table", target="y", workers=1, rounds=ROUNDS, evaluate_every=ROUNDS)
    base = base.replace(diagnostics=False, parts=[0.8, 0.0, 0.2])
    for i in range(settings):
        for seed, clients in enumerate(cuts):
            own = base.replace(settings=GRIDS[method](i / settings), seed=seed)
            yield play_recipe(own, clients, None, tasks=tasks)


def in_lockstep(name: str, method: str, settings: int, cuts: list[Clients]) -> float:
    """Together against one by one, in processor seconds; and the seconds of the latter."""
    found: dict[str, list[Any]] = {}

    def together() -> None:
        found["together"] = list(dict(play_together(list(plays(method, settings, cuts, True)))).values())

    def one_by_one() -> None:
        found["alone"] = [list(play)[-1] for play in plays(method, settings, cuts, False)]

    list(dict(play_together(list(plays(method, 1, cuts, True)))))  # what is compiled first does not count
    ours, began = processor_seconds(together), time.perf_counter()
    theirs = processor_seconds(one_by_one)
    alone = time.perf_counter() - began
    far = max(
        float(np.nanmax(np.abs(one.scores[key] - other.scores[key])))
        for one, other in zip(found["together"], found["alone"], strict=True)
        for key in ("chosen/test/loss", "chosen/test/accuracy")
    )
    emit_pair("lockstep", f"{name}, {method}", ours, theirs, difference=far, tolerance=1e-6)
    return alone


def on_all_cores(settings: int, cuts: list[Clients]) -> float:
    """Seconds that all five methods take together, each in lockstep, other cores the next ones."""

    def losses(method: str) -> list[float]:
        results = dict(play_together(list(plays(method, settings, cuts, True)))).values()
        return [float(np.nanmean(r.scores["chosen/test/loss"])) for r in results if isinstance(r, Result)]

    return seconds(lambda: list(in_order([partial(losses, method) for method in GRIDS], spare_cores())))


def demo() -> None:
    """The demo on all cores, and one cell after the other."""
    base = Recipe()
    dataset, methods = read_data(base), DEMO.split(",")

    def played(**options: Any) -> Callable[[], None]:
        def play() -> None:
            with tempfile.TemporaryDirectory() as folder:
                for _ in compare(base.replace(**options), methods, [0, 1, 2], dataset, Path(folder)):
                    pass

        return play

    ours, theirs = seconds(played()), seconds(played(workers=1))
    emit_pair("lockstep", "demo, all cores against one", ours, theirs)
    emit_pair("lockstep", "demo, against what was asked for", ours, DEMO_SECONDS, target=1)


def headline(name: str) -> None:
    """A few trials of two methods: as `sartor tune` plays them, and one after the other."""
    base = Recipe(rounds=TUNING_ROUNDS).replace(**HEADLINE[name])
    try:
        dataset = read_data(base)
    except SartorError as missing:
        emit("lockstep", f"tuning, {name}", note=str(missing))
        return
    found: list[Any] = []
    ours = seconds(lambda: found.extend(tune(base, ["flame", "ditto"], [0], dataset, TRIALS)))
    tuning = found[-1][0]
    clients = without_test(split(base, dataset))
    scores: list[float] = []

    def one_by_one() -> None:
        for method, trials in tuning.trials.items():
            for trial in trials:
                own = tuning.base.replace(method=method, settings=trial.settings)
                try:
                    *_, result = play_recipe(with_steps(own, own.local_steps), clients, None)
                    scores.append(result.history[-1]["validation"])
                except Diverged:  # a trial without a score, there and here
                    scores.append(np.nan)

    theirs = seconds(one_by_one)
    said = np.array([trial.score for trials in tuning.trials.values() for trial in trials], dtype=float)
    assert np.array_equal(np.isnan(said), np.isnan(scores))
    far = float(np.nanmax(np.abs(said - np.array(scores))))
    emit_pair("lockstep", f"tuning, {name}", ours, theirs, difference=far, tolerance=1e-6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=int, default=SETTINGS)
    given = parser.parse_args()
    name, dataset = table()
    cuts = [dataset.split("natural", seed=seed, parts=(0.8, 0.0, 0.2)) for seed in range(CUTS)]
    theirs = sum(in_lockstep(name, method, given.settings, cuts) for method in GRIDS)
    emit_pair("lockstep", f"{name}, all five on all cores", on_all_cores(given.settings, cuts), theirs)
    demo()
    for name in HEADLINE:
        headline(name)


if __name__ == "__main__":
    main()
