"""What a round costs as the federation, the cohort, the model and the number of workers grow.

Clients beyond the first 100 hold the same samples as client i mod 100, so that only what a federation's size must cost
grows: its states, which lie on disk. Each size runs in a process of its own, in turns with a federation of 1,000, so
that peak memory belongs to it and the ratio to one run: ten rounds and a checkpoint, then the other. A million
clients' tables take some gigabytes of disk, in $SARTOR_SCRATCH or where temporary files are.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import AT_LEAST, AT_MOST, emit, peak_mebibytes, processor_seconds, seconds, take_turns
from work import METHODS, SEED, WORKS, federation, outcome, start

import sartor as st
from sartor.core import Method
from sartor.data.clients import Clients
from sartor.run.assemble import prepare
from sartor.run.rounds import Run

COHORT, BASE = 100, 1_000
SIZES = (10_000, 100_000)
COHORTS = (10, 100, 1_000)
MODELS = ("softmax", "dnn", "2nn", "mlp(400)")
ROUNDS = 10  # to a checkpoint
MILLION, FEW, ASKED, FEATURES = 1_000_000, 10_000, 1_000, 60  # with ten classes a linear model has 610 numbers
FLAT, MEMORY, SPEED_UP = 1.3, 4096.0, 1.6  # the targets: times as long, MiB, times as fast


def _method(name: str) -> Method:
    work = WORKS["softmax"]
    if name == "fedamp":
        return st.FedAMP(among="cohort", solver=st.SGD(lr=work.lr, batch=work.batch))  # its sampled form
    return METHODS[name](work)


def _many(clients: int) -> Clients:
    """A federation of any size over the same samples."""
    few = federation(WORKS["softmax"])
    bounds = np.tile(few.bounds, (-(-clients // len(few)), 1))[:clients]
    return Clients(few.x, few.y, bounds, [str(i) for i in range(clients)], few.classes, few.about)


def _run(method: str, clients: int, cohort: int = COHORT, model: str = "softmax", store: Path | None = None) -> Run:
    made = replace(WORKS["softmax"], model=model).build()
    return prepare(
        _method(method),
        made,
        _many(clients),
        seed=SEED,
        federation=st.Federation(cohort=cohort),
        execution=st.Execution(store="memory" if store is None else "disk"),
        folder=store,
    ).run


def size(method: str, clients: int, repeats: int) -> None:
    """A large federation against one of 1,000 clients, both with a cohort of 100: a round, and a checkpoint.

    A checkpoint writes the rows of all who trained since the last: in ten rounds 1,000 different clients of many, but
    only about 650 of 1,000.
    """
    with tempfile.TemporaryDirectory(prefix="sartor-scaling-") as folder:
        runs = {str(m): _run(method, m, store=Path(folder) / str(m)) for m in (BASE, clients)}
        rounds: dict[str, list[float]] = {m: [] for m in runs}
        saving: dict[str, list[float]] = {m: [] for m in runs}
        for _ in range(repeats):
            for m, run in runs.items():
                rounds[m] += [seconds(run.step) for _ in range(ROUNDS)]
                saving[m].append(seconds(partial(run.save, Path(folder) / f"{m}.checkpoint", "")))
    large, small = str(clients), str(BASE)
    found = {m: statistics.median(spent) for m, spent in rounds.items()}
    saved = {m: statistics.median(spent) for m, spent in saving.items()}
    case = f"{clients:,} clients {method}"
    note = (
        f"against {BASE:,} clients; a checkpoint of {ROUNDS} rounds takes {saved[large]:.2f} s "
        f"({saved[large] / saved[small]:.1f} times as long, for more different clients)"
    )
    ratio = found[large] / found[small]
    emit("scaling", case, ours=found[large], theirs=found[small], ratio=ratio, target=FLAT, sense=AT_MOST, note=note)
    emit("scaling", f"{case}, peak MiB", ratio=peak_mebibytes(), target=MEMORY, sense=AT_MOST)


def million(method: str, repeats: int) -> None:
    """A million clients against 10,000, a cohort of 1,000 each, a linear model of 610 numbers: processor seconds of a
    round, a checkpoint, and a run that goes on from it with the same bits."""
    with tempfile.TemporaryDirectory(prefix="sartor-million-", dir=os.environ.get("SARTOR_SCRATCH")) as folder:
        runs = {m: linear(method, m, Path(folder) / str(m)) for m in (FEW, MILLION)}
        rounds: dict[int, list[float]] = {m: [] for m in runs}
        saving: dict[int, list[float]] = {m: [] for m in runs}
        for _ in range(repeats):
            for m, run in runs.items():
                rounds[m] += [processor_seconds(run.step) for _ in range(ROUNDS)]
                saving[m].append(processor_seconds(partial(run.save, Path(folder) / f"{m}.checkpoint", "")))
        again = linear(method, MILLION, Path(folder) / str(MILLION))
        resumed = processor_seconds(partial(again.restore, Path(folder) / f"{MILLION}.checkpoint", ""))
        same = _same_round(runs[MILLION], again)
    found, saved = ({m: statistics.median(spent) for m, spent in each.items()} for each in (rounds, saving))
    case = f"{MILLION:,} clients {method}, cohort of {ASKED:,}"
    note = (
        f"processor seconds, against {FEW:,} clients; a checkpoint of {ROUNDS} rounds takes {saved[MILLION]:.2f} s "
        f"({saved[MILLION] / saved[FEW]:.1f} times as long), to go on from it {resumed:.2f} s; same: going on"
    )
    pair: dict[str, Any] = {"ours": found[MILLION], "theirs": found[FEW], "ratio": found[MILLION] / found[FEW]}
    emit("scaling", case, **pair, target=FLAT, sense=AT_MOST, same=same, note=note)
    emit("scaling", f"{case}, peak MiB", ratio=peak_mebibytes(), target=MEMORY, sense=AT_MOST)


def linear(method: str, clients: int, store: Path, **execution: Any) -> Run:
    """Clients that hold the samples of client i mod 100, and a linear model; their states are on disk."""
    draw = np.random.default_rng(SEED)
    x = draw.normal(size=(100, 30, FEATURES)).astype(np.float32)
    y = (x @ draw.normal(size=(FEATURES, 10)) + draw.normal(size=(100, 1, 10))).argmax(2)
    few = Clients.from_parts([{"train": (a[:20], b[:20]), "test": (a[20:], b[20:])} for a, b in zip(x, y, strict=True)])
    bounds = np.tile(few.bounds, (clients // len(few), 1))
    many = Clients(few.x, few.y, bounds, [str(i) for i in range(clients)], few.classes, few.about)
    model, asked = st.models.build("softmax", (FEATURES,), 10), st.Federation(cohort=ASKED)
    where = st.Execution(**{"store": "disk", "workers": 1, **execution})
    return prepare(_method(method), model, many, seed=SEED, federation=asked, execution=where, folder=store).run


def _same_round(one: Run, other: Run) -> bool:
    """Whether two runs' next round leaves the same rows and server."""
    for run in (one, other):
        run.step()
    ids = torch.arange(0, MILLION, 97)
    rows = [run.engine.states for run in (one, other)]  # type: ignore[attr-defined]
    equal = all(torch.equal(v[ids], rows[1][k][ids]) for k, v in rows[0].items())
    whole = [k for k, v in one.server.items() if isinstance(v, torch.Tensor)]
    return equal and all(torch.equal(one.server[k], other.server[k]) for k in whole)


def cohorts(repeats: int) -> None:
    """Larger cohorts of 1,000 clients: seconds for each client."""
    found = take_turns({str(c): _run("flame", BASE, c).step for c in COHORTS}, repeats)
    for c in COHORTS:
        each = 1e3 * found[str(c)] / c
        emit("scaling", f"cohort of {c} flame", ours=found[str(c)], note=f"{each:.2f} ms for each client")


def models(repeats: int) -> None:
    """Larger models: seconds for each million parameters of 100 clients."""
    runs = {name: _run("flame", COHORT, model=name) for name in MODELS}
    found = take_turns({name: run.step for name, run in runs.items()}, repeats)
    for name, run in runs.items():
        count = run.problem.start.numel()
        each = found[name] / (COHORT * count / 1e6)
        note = f"{count:,} parameters, {1e3 * each:.2f} ms for each million of the cohort's"
        emit("scaling", f"model {name} flame", ours=found[name], note=note)


def workers(work: str, repeats: int) -> None:
    """One worker against two: the same bits, and how much faster."""
    data = federation(WORKS[work])
    runs = {k: start(WORKS[work], "flame", data, workers=k) for k in (1, 2)}
    found = take_turns({str(k): run.step for k, run in runs.items()}, repeats)
    one, two = (outcome(run) for run in runs.values())
    emit(
        "workers",
        f"{work} flame",
        ours=found["2"],
        theirs=found["1"],
        ratio=found["1"] / found["2"],
        target=None if work == "softmax" else SPEED_UP,
        sense=AT_LEAST,
        same=all(torch.equal(one[k], two[k]) for k in one),
        note="two workers against one; same: bit for bit",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", action="store_true", help="only one worker against two")
    parser.add_argument("--size", nargs=2, metavar=("METHOD", "CLIENTS"), help="only one federation, in this process")
    parser.add_argument("--million", metavar="METHOD", help="only a million clients, in this process")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    if given.million:
        million(given.million, given.repeats)
        return
    if given.size:
        size(given.size[0], int(given.size[1]), given.repeats)
        return
    for work in WORKS:
        workers(work, given.repeats)
    if given.workers:
        return
    cohorts(given.repeats)
    models(given.repeats)
    for method in ("flame", "ditto", "fedamp"):
        for words in (*(["--size", method, str(clients)] for clients in SIZES), ["--million", method]):
            command = [sys.executable, __file__, *words, "--repeats", str(given.repeats)]
            if subprocess.run(command).returncode:
                emit("scaling", " ".join(words), note="failed; see the messages above", failed=True)


if __name__ == "__main__":
    main()
