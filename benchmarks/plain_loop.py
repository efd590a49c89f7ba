"""Ours against a plain loop over clients in PyTorch: same numbers first (float64), then the time of a round."""

from __future__ import annotations

import argparse

import torch
from loops import LOOPS
from measure import Threads, difference, emit_pair, take_turns
from torch import Tensor
from work import WORKS, federation, start

from sartor.rounds import Run

TARGETS = {"softmax": 12.0, "mlp": 4.0, "cnn": 1.3}  # for the personalised methods
CASES = [(work, method) for work in WORKS for method in ("fedavg", "flame", "pfedme", "ditto")]
QUICK = [("softmax", "flame"), ("softmax", "pfedme"), ("softmax", "ditto"), ("mlp", "flame"), ("cnn", "flame")]
TOLERANCE = 1e-9


def outcome(run: Run) -> dict[str, Tensor]:
    """The global model and the clients' personal ones, by their names in the paper."""
    kept = run.engine.save()
    personal = {k: kept[f"state/{k}"] for k in ("theta", "v") if f"state/{k}" in kept}
    return {"w": run.server["w"]} | personal


def agreement(work: str, method: str, rounds: int) -> float:
    """How far apart the two programs are after a few rounds in float64."""
    data = federation(WORKS[work])
    ours = start(WORKS[work], method, data, dtype=torch.float64)
    theirs = LOOPS[method](WORKS[work], data, ours.problem.start)
    for _ in range(rounds):
        ours.step()
        theirs.play()
    return difference(outcome(ours), theirs.result())


def compare(work: str, method: str, repeats: int) -> None:
    """Both programs' numbers and times, as one result."""
    far = agreement(work, method, rounds=1 if work == "cnn" else 2)
    data = federation(WORKS[work])
    ours = start(WORKS[work], method, data)
    theirs = LOOPS[method](WORKS[work], data, ours.problem.start)

    def one_thread() -> None:
        with Threads(1):
            theirs.play()

    found = take_turns({"ours": ours.step, "theirs": theirs.play, "one thread": one_thread}, repeats)
    emit_pair(
        "plain loop",
        f"{work} {method}",
        found["ours"],
        found["theirs"],
        target=None if method == "fedavg" else TARGETS[work],
        difference=far,
        tolerance=TOLERANCE,
        note=f"{found['one thread'] / found['ours']:.1f}x against the loop with one thread",
        threads=torch.get_num_threads(),
        data=data.about["source"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer cases and repeats")
    parser.add_argument("--only", help="one case, as in 'softmax flame'")
    parser.add_argument("--repeats", type=int)
    given = parser.parse_args()
    for work, method in QUICK if given.quick else CASES:
        if given.only is None or given.only == f"{work} {method}":
            compare(work, method, given.repeats or (3 if given.quick else 7))


if __name__ == "__main__":
    main()
