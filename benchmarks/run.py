"""Run all benchmarks and write RESULTS.md and results.json; or, quickly, look whether a recorded ratio has dropped.

Each part is a process of its own that prints a line of JSON for every result: if one fails, the others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from table import Result, met, page

HERE = Path(__file__).parent
RECORD = HERE / "results.json"
OURS = {
    "plain loop": ["plain_loop.py"],
    "roofline": ["roofline.py"],
    "scaling": ["scaling.py"],
    "lockstep": ["lockstep.py"],
    "against the version before": ["before.py", "build/before"],
    "Ray": ["ray_actors.py"],
    "Ray on two nodes": ["ray_nodes.py"],
    "secure aggregation": ["secure_aggregation.py"],
    "a federation over NVFlare": ["federation.py", "--over", "NVFlare"],
    "a federation over Flower": ["federation.py", "--over", "Flower"],
}
PEERS = {"Flower's simulation": ["flower_simulation.py"], "pfl-research": ["pfl_simulation.py"]}
QUICK = {"plain loop": ["plain_loop.py", "--quick"], "workers": ["scaling.py", "--workers", "--repeats", "3"]}
SLOWEST = 3600  # seconds that a part may take
DROP = 0.3  # a ratio may be so much smaller than the recorded one
PACKAGES = ("torch", "numpy", "flwr", "ray", "pfl")


def part(name: str, python: str, program: list[str]) -> list[Result]:
    """What one program found; a failure is a result too."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    try:
        done = subprocess.run(
            [python, str(HERE / program[0]), *program[1:]], capture_output=True, text=True, timeout=SLOWEST
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        return [_failure(name, "all", str(error))]
    found: list[Result] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"part":')]
    for result in found:
        print(
            f"  {result['case']}: {result.get('ratio') or result.get('ours') or result.get('note')}",
            file=sys.stderr,
            flush=True,
        )
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(done.stderr[-4000:], file=sys.stderr)
        found.append(_failure(name, "the rest", said))
    return found


def _failure(name: str, case: str, said: str) -> Result:
    """A part that did not finish, without this machine's paths."""
    for path in (HERE.resolve(), Path.cwd()):
        said = said.replace(f"{path}/", "")
    return {"part": name, "case": case, "failed": True, "note": said}


def about(peers: str) -> dict[str, Any]:
    """The machine and the versions."""
    kinds = [line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    ask = f"from importlib.metadata import version as v; print(*(p + ' ' + v(p) for p in {PACKAGES}), sep=', ')"
    installed = Path(peers).exists()
    told = subprocess.run([peers, "-c", ask], capture_output=True, text=True).stdout.strip() if installed else ""
    return {
        "processor": f"{kinds[0] if kinds else platform.processor()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{memory:.0f} GiB",
        "busy before the run": f"load {os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "versions": told or "the other programs are not installed",
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def everything(peers: str, only: str | None = None) -> int:
    """All parts, or one of them anew; 1 when one failed (a missed target is a finding, not a failure)."""
    facts = about(peers)
    results: list[Result] = []
    for name, program in {**OURS, **PEERS}.items():
        if only in (None, name):
            results += part(name, peers if name in PEERS else sys.executable, program)
    if only is not None:  # the machine and the versions are those of the record; how busy it was is said here
        recorded, anew = json.loads(RECORD.read_text()), {r["part"] for r in results}
        alone = f"played by itself at {facts['busy before the run']}"
        for result in results:
            result["note"] = "; ".join(filter(None, [result.get("note"), alone]))
        facts = recorded["about"]
        results = [r for r in recorded["results"] if r["part"] not in anew] + results
    RECORD.write_text(json.dumps({"about": facts, "results": results}, indent=1) + "\n")
    (HERE / "RESULTS.md").write_text(page(facts, results))
    for result in results:
        if met(result) is False:
            print(f"missed: {result['part']}, {result['case']}", file=sys.stderr)
    return int(any(r.get("failed") for r in results))


def drops(found: list[Result], recorded: dict[tuple[str, str], Result]) -> list[str]:
    """Which results are worse than the recorded ones."""
    said = []
    for result in found:
        before = recorded.get((result["part"], result["case"]), {}).get("ratio")
        if result.get("failed") or result.get("same") is False:
            said.append(f"{result['part']}, {result['case']}: {result.get('note') or 'other numbers'}")
        elif before is not None and result["ratio"] < (1 - DROP) * before:
            said.append(f"{result['part']}, {result['case']}: {result['ratio']:.2f}, recorded {before:.2f}")
    return said


def guard() -> int:
    """1 when a ratio has dropped by more than 30%, seen twice: other work on the machine may spoil one look."""
    if not RECORD.exists():
        print("nothing is recorded yet: run make bench first.", file=sys.stderr)
        return 1
    recorded = {(r["part"], r["case"]): r for r in json.loads(RECORD.read_text())["results"]}
    worse: list[str] = []
    for name, program in QUICK.items():
        if drops(part(name, sys.executable, program), recorded):
            worse += drops(part(name, sys.executable, program), recorded)
    print("\n".join(f"slower: {line}" for line in worse) or "no ratio has dropped by more than 30%.")
    return int(bool(worse))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="compare with the recorded results")
    parser.add_argument("--peers", default=".venv-bench/bin/python", help="the Python that has Flower and pfl")
    parser.add_argument("--only", choices=[*OURS, *PEERS], help="one part; the others stay as recorded")
    given = parser.parse_args()
    sys.exit(guard() if given.quick else everything(given.peers, given.only))


if __name__ == "__main__":
    main()
