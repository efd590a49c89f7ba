"""Ours against a plain loop over clients in PyTorch: same numbers first (float64), then the time of a round.

The loop is measured with PyTorch's default number of threads and with one. On a machine that others use, small
operations split over two threads wait for each other, and the loop looks many times slower than it is: where the two
settings differ much for a small model, believe the one with one thread.
"""

from __future__ import annotations

import argparse

import torch
from loops import LOOPS
from measure import Threads, difference, emit_pair, take_turns
from work import SEQUENCES, WORKS, federation, outcome, start

TARGETS = {"softmax": 12.0, "mlp": 4.0, "cnn": 1.3, "gru": 1.5, "transformer": 1.5}  # for the personalised methods
ALL = WORKS | SEQUENCES
SLOW = ("cnn", *SEQUENCES)  # rounds take seconds
CASES = [(work, method) for work in WORKS for method in ("fedavg", "flame", "pfedme", "ditto")]
CASES += [(work, method) for work in SEQUENCES for method in ("fedavg", "flame")]
QUICK = [("softmax", "flame"), ("softmax", "pfedme"), ("softmax", "ditto"), ("mlp", "flame"), ("cnn", "flame")]
QUICK += [("gru", "flame")]
TOLERANCE = 1e-9


def agreement(work: str, method: str, rounds: int) -> float:
    """How far apart the two programs are after a few rounds in float64."""
    data = federation(ALL[work])
    ours = start(ALL[work], method, data, dtype=torch.float64)
    theirs = LOOPS[method](ALL[work], data, ours.problem.start)
    for _ in range(rounds):
        ours.step()
        theirs.play()
    return difference(outcome(ours), theirs.result())


def compare(work: str, method: str, repeats: int, quick: bool) -> None:
    """Both programs' numbers and times. Quickly: only against the loop with one thread."""
    far = agreement(work, method, rounds=1 if quick or work in SLOW else 2)
    data = federation(ALL[work])
    ours = start(ALL[work], method, data)
    theirs = LOOPS[method](ALL[work], data, ours.problem.start)
    threads = torch.get_num_threads()

    def one_thread() -> None:
        with Threads(1):
            theirs.play()

    programs = {"ours": ours.step, "one": one_thread} | ({} if quick else {"default": theirs.play})
    found = take_turns(programs, repeats)
    same = {"difference": far, "tolerance": TOLERANCE, "data": data.about["source"]}
    emit_pair("plain loop, one thread", f"{work} {method}", found["ours"], found["one"], **same)
    if quick:
        return
    emit_pair(
        "plain loop",
        f"{work} {method}",
        found["ours"],
        found["default"],
        target=None if method == "fedavg" else TARGETS[work],
        note=f"the loop has {threads} threads, PyTorch's default",
        **same,
    )


def _repeats(work: str, quick: bool) -> int:
    """Few where rounds take seconds."""
    few, many = (2, 3) if work in SLOW else (4, 7)
    return few if quick else many


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer cases and repeats")
    parser.add_argument("--only", help="one case, as in 'softmax flame'")
    parser.add_argument("--repeats", type=int)
    given = parser.parse_args()
    for work, method in QUICK if given.quick else CASES:
        if given.only is None or given.only == f"{work} {method}":
            compare(work, method, given.repeats or _repeats(work, given.quick), given.quick)


if __name__ == "__main__":
    main()
