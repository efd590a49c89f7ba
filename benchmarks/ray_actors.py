"""What a Ray cluster costs on one machine: the engine ray with two actors against the local engine with two workers.

Same numbers first, to the bit. Actors write every client's state to disk before they answer, so that they can be
replaced; the local engine does not.
"""

from __future__ import annotations

import argparse

from measure import difference, emit_pair, seconds, take_turns
from work import WORKS, federation, outcome, start

CASES = [(work, method) for work in ("softmax", "mlp") for method in ("fedavg", "flame", "pfedme")]
ACTORS = 2


def compare(work: str, method: str, repeats: int) -> None:
    """Both engines' numbers after two rounds, and their times."""
    data = federation(WORKS[work])
    local = start(WORKS[work], method, data, workers=ACTORS)
    ray = start(WORKS[work], method, data, workers=ACTORS, engine="ray")
    begun = seconds(ray.step)
    for step in (local.step, local.step, ray.step):
        step()
    far = difference(outcome(ray), outcome(local))
    found = take_turns({"local": local.step, "ray": ray.step}, repeats)
    note = f"the first round took {begun:.1f} s, with the actors' start"
    emit_pair("Ray", f"{work} {method}", found["local"], found["ray"], difference=far, tolerance=0.0, note=note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10)
    given = parser.parse_args()
    for work, method in CASES:
        compare(work, method, given.repeats)


if __name__ == "__main__":
    main()
