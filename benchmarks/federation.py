"""Seconds per round of a real federation on this machine, over NVFlare or Flower; a server's memory with many sites.

python benchmarks/federation.py --over Flower       3 sites, 7,850 and 1,000,000 numbers a message (also: NVFlare)
python benchmarks/federation.py --memory            50 sites in one process against one server, 200 rounds
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))


SIZES = {7_850: (784, 10), 1_000_000: (9_999, 100)}  # by the numbers of a softmax model: features and classes
ASKED = {"NVFlare": {7_850: 1.0, 1_000_000: 1.5}, "Flower": {}}  # seconds per round at most
SITES = ("a", "b", "c")


def nvflare_rounds(numbers: int, count: int = 20) -> float:
    """Seconds per round of three sites with few samples each and a softmax model of so many numbers."""
    from processes import Processes

    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        found = Processes.make(folder, _recipe(count), _data(folder, numbers))
        try:
            found.start()
            found.until(lambda: found.round() >= 2, 300)
            began, first = time.monotonic(), found.round()
            found.until(lambda: found.round() >= count - 1, 600)
            seconds = (time.monotonic() - began) / (found.round() - first)
            found.finish()
            _check(found.kits / "server" / "play" / "run", numbers)
        finally:
            found.end()
    return seconds


def flower_rounds(numbers: int, count: int = 6) -> float:
    """The same with a SuperLink and three SuperNodes, without TLS."""
    from flower_processes import Flower

    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        (folder / "recipe.toml").write_text(_recipe(count))
        data = _data(folder, numbers)
        nodes = {n: {"site": n, "folder": str(folder / n), "data": str(data[n]), "target": "outcome"} for n in SITES}
        config = {"folder": str(folder / "run"), "recipe": str(folder / "recipe.toml"), "sites": ",".join(SITES)}
        found = Flower(folder / "flower", nodes, config)
        try:
            found.start()
            found.run()
            found.until(lambda: found.status()["round"] >= 1, 300)
            began, first = time.monotonic(), found.status()["round"]
            found.until(lambda: found.status()["round"] >= count - 1, 600)
            seconds = (time.monotonic() - began) / (found.status()["round"] - first)
            found.finish()
            _check(folder / "run" / "run", numbers)
        finally:
            found.end()
    return float(seconds)


def _recipe(count: int) -> str:
    return f'method = "flame"\nmodel = "softmax"\nrounds = {count}\nevaluate_every = {count}\n[solver]\nsteps = 1\n'


def _data(folder: Path, numbers: int) -> dict[str, Path]:
    features, classes = SIZES[numbers]
    draw = np.random.default_rng(0)
    for name in SITES:
        y = np.arange(3 * classes) % classes
        x = draw.normal(size=(len(y), features)).astype(np.float32)
        np.savez(folder / f"{name}.npz", x=x, outcome=y)
    return {name: folder / f"{name}.npz" for name in SITES}


def _check(run: Path, numbers: int) -> None:
    """That a message was as long as is said."""
    from sartor.storage import load_tensors

    tensors, _ = load_tensors(run / "models" / "global.safetensors")
    found = sum(v.numel() for v in tensors.values())
    assert found == numbers, found


Seen = dict[int, tuple[int, int]]  # by round: resident bytes, open files


def one_process(sites: int, count: int) -> Seen:
    """A process with a server and all its sites."""
    from sites import Federation, tables

    from sartor.run.recipe import Recipe

    seen: Seen = {}
    with tempfile.TemporaryDirectory() as work:
        names = [f"s{i:02}" for i in range(sites)]
        recipe = Recipe.of({"method": "flame", "model": "mlp(64)", "rounds": count, "evaluate_every": 50})
        federation = Federation(Path(work), recipe, tables(Path(work) / "data", names))
        lead = federation.lead(calls := federation.calls(names))
        lead.joining = 60
        for result in lead.play():
            calls.seen.clear()
            seen[result.run.round] = _resident(), len(os.listdir("/proc/self/fd"))
    return seen


def over_nvflare(sites: int, count: int) -> Seen:
    """The process of a real server's job; its sites are processes too, so there are three."""
    from processes import Processes
    from sites import tables

    seen: Seen = {}
    with tempfile.TemporaryDirectory() as work:
        text = f'method = "flame"\nmodel = "mlp(64)"\nrounds = {count}\nevaluate_every = 50\n'
        found = Processes.make(Path(work), text, tables(Path(work)))
        try:
            found.start()
            found.until(lambda: found.round() >= 1, 300)
            job = found.worker("server")
            assert job is not None
            while (now := found.round()) < count - 1:  # after the last round it is gone
                seen[now] = job.memory_info().rss, job.num_fds()
                time.sleep(0.1)
            found.finish()
        finally:
            found.end()
    return seen


def flat(case: str, seen: Seen) -> bool:
    """Print how the mean over twenty rounds has grown from round 20 to the last; whether that is under 5%.

    Means, as the resident memory of a process goes up and down by a few per cent between two collections of garbage.
    """
    last = max(seen)
    before, after = (
        np.mean([v for k, v in seen.items() if first < k <= first + 20], axis=0) for first in (20, last - 20)
    )
    grown, files = 100 * (after[0] / before[0] - 1), after[1] - before[1]
    said = {"part": "memory", "case": case, "rounds": last, "MB at round 20": round(before[0] / 1e6, 1)}
    print(json.dumps(said | {"growth in %": round(grown, 2), "growth of open files": round(files, 1)}), flush=True)
    return bool(grown < 5 and files < 1)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--memory", action="store_true")
    options.add_argument("--over", choices=list(ASKED), default="NVFlare")
    options.add_argument("--sites", type=int, default=50)
    options.add_argument("--rounds", type=int, default=200)
    chosen = options.parse_args()
    if chosen.memory:
        cases = {f"{chosen.sites} sites in one process": one_process, "3 sites over NVFlare": over_nvflare}
        found = {case: flat(case, play(chosen.sites, chosen.rounds)) for case, play in cases.items()}
        sys.exit(not all(found.values()))
    play = {"NVFlare": nvflare_rounds, "Flower": flower_rounds}[chosen.over]
    for numbers in SIZES:
        seconds, asked = play(numbers), ASKED[chosen.over].get(numbers)
        result = {"part": f"a federation over {chosen.over}", "case": f"{numbers:,} numbers", "ours": round(seconds, 3)}
        if asked is not None:
            result |= {"theirs": asked, "ratio": round(seconds / asked, 3), "target": 1.0, "sense": "<="}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
