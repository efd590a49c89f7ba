"""Seconds per round of a real federation on this machine (NVFlare, mutual TLS), and a server's memory with many sites.

python benchmarks/federation.py                     3 sites, 7,850 and 1,000,000 numbers a message
python benchmarks/federation.py --memory            50 sites in one process against one server, 200 rounds
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))


def rounds(features: int, classes: int, count: int) -> dict[str, float]:
    """Three sites with few samples each and a softmax model of (features + 1) · classes numbers."""
    from processes import Processes

    with tempfile.TemporaryDirectory() as work:
        folder, draw = Path(work), np.random.default_rng(0)
        data = {}
        for name in ("a", "b", "c"):
            x, y = draw.normal(size=(60, features)).astype(np.float32), np.arange(60) % classes
            np.savez(folder / f"{name}.npz", x=x, outcome=y)
            data[name] = folder / f"{name}.npz"
        text = f'method = "flame"\nmodel = "softmax"\nrounds = {count}\nevaluate_every = {count}\n[solver]\nsteps = 1\n'
        found = Processes.make(folder, text, data)
        try:
            found.start()
            found.until(lambda: found.round() >= 2, 300)
            began, first = time.monotonic(), found.round()
            found.until(lambda: found.round() >= count - 1, 600)
            seconds = (time.monotonic() - began) / (found.round() - first)
            found.finish()
        finally:
            found.end()
    return {"numbers": (features + 1) * classes, "seconds per round": round(seconds, 3)}


def memory(sites: int, count: int) -> dict[str, float]:
    """Resident memory and open files of a process with a server and its sites, from round 20 to the last."""
    from sites import Federation, tables

    from sartor.recipe import Recipe

    with tempfile.TemporaryDirectory() as work:
        names = [f"s{i:02}" for i in range(sites)]
        recipe = Recipe.of({"method": "flame", "model": "mlp(64)", "rounds": count, "evaluate_every": 50})
        federation = Federation(Path(work), recipe, tables(Path(work) / "data", names))
        lead = federation.lead(calls := federation.calls(names))
        lead.joining = 60
        seen: dict[int, tuple[int, int]] = {}
        for result in lead.play():
            calls.seen.clear()
            if result.run.round in (20, count):
                gc.collect()
                seen[result.run.round] = _resident(), len(os.listdir("/proc/self/fd"))
    before, after = seen[20], seen[count]
    return {
        "sites": sites,
        "rounds": count,
        "growth of memory in %": round(100 * (after[0] / before[0] - 1), 2),
        "growth of open files": after[1] - before[1],
    }


def real_memory(count: int) -> dict[str, float]:
    """The same of the job's process at a real server with three sites."""
    from processes import Processes
    from sites import tables

    with tempfile.TemporaryDirectory() as work:
        text = f'method = "flame"\nmodel = "mlp(64)"\nrounds = {count}\nevaluate_every = 50\n'
        found = Processes.make(Path(work), text, tables(Path(work)))
        try:
            found.start()
            found.until(lambda: found.round() >= 20, 300)
            job = found.worker("server")
            assert job is not None
            before = job.memory_info().rss, job.num_fds()
            found.until(lambda: found.round() >= count - 5, 600)
            after = job.memory_info().rss, job.num_fds()
            found.finish()
        finally:
            found.end()
    return {
        "sites": 3,
        "rounds": count,
        "growth of memory in %": round(100 * (after[0] / before[0] - 1), 2),
        "growth of open files": after[1] - before[1],
    }


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--memory", action="store_true")
    options.add_argument("--sites", type=int, default=50)
    options.add_argument("--rounds", type=int, default=200)
    chosen = options.parse_args()
    if chosen.memory:
        both = {"sites in one process": memory(chosen.sites, chosen.rounds), "NVFlare": real_memory(chosen.rounds)}
        for case, found in both.items():
            print(json.dumps({"part": "federation", "case": case} | found))
        ours = both["sites in one process"]  # what NVFlare's own threads add is shown, and not ours to mend
        sys.exit(ours["growth of memory in %"] >= 5 or any(f["growth of open files"] > 0 for f in both.values()))
    for features, classes in ((784, 10), (9_999, 100)):
        print(json.dumps({"part": "federation", "case": "3 sites"} | rounds(features, classes, 20)), flush=True)


if __name__ == "__main__":
    main()
