"""How fast FLAME's global model should follow: the table in docs/methods/flame.md.

    python docs/flame_speed.py [--rounds 30] [--steps 10] [--seeds 0,1] [--clients 10,100,1000] [--lam 0.3]
                               [--anchor global] [--speeds 0.03,0.1,0.3,1,3,10]

Fashion-MNIST dealt out by Dirichlet(0.3) to 10, 100 and 1,000 clients, softmax regression, the same number of local
steps everywhere, λ and anchor as they are by default. A cell has the rounds until the mean validation accuracy of the
chosen models comes within a point of the best that any speed reaches with so many clients ("-": not within these
rounds), and the mean test accuracy at the end, both as means over the seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from sartor.run.complete import clients_of
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe
from sartor.storage import write_json

SPEEDS, CLIENTS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0), (10, 100, 1000)


def played(
    settings: dict[str, object], m: int, seed: int, rounds: int, steps: int
) -> tuple[list[float], dict[str, float]]:
    """The mean validation accuracy after each round, and the final test accuracies."""
    values = {"data": "fashion-mnist", "partition": "dirichlet=0.3", "clients": m, "seed": seed}
    values |= {"model": "softmax", "method": "flame", "settings": settings, "local_steps": steps}
    values |= {"rounds": rounds, "evaluate_every": 1, "diagnostics": False, "minimum": 5}
    recipe = Recipe(**values)  # type: ignore[arg-type]
    *_, result = play_recipe(recipe, clients_of(recipe), None)
    found = {k: result.summary[k]["accuracy_mean"] for k in ("chosen", "personal", "global")}
    return [line["validation"] for line in result.history], found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--clients", default=",".join(map(str, CLIENTS)))
    parser.add_argument("--lam", type=float, default=0.3)
    parser.add_argument("--anchor", default="global")
    parser.add_argument("--speeds", default=",".join(map(str, SPEEDS)))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    seeds = [int(s) for s in given.seeds.split(",")]
    cells: dict[tuple[int, float], str] = {}
    raw: dict[str, object] = {}
    numbers = [int(m) for m in given.clients.split(",")]
    speeds, held = [float(r) for r in given.speeds.split(",")], {"lam": given.lam, "anchor": given.anchor}
    for m in numbers:
        runs = {r: [played({**held, "speed": r}, m, s, given.rounds, given.steps) for s in seeds] for r in speeds}
        curves = {r: np.mean([curve for curve, _ in each], axis=0) for r, each in runs.items()}
        target = max(float(c.max()) for c in curves.values()) - 0.01
        for r, each in runs.items():
            there = np.flatnonzero(curves[r] >= target)
            final = np.mean([f["chosen"] for _, f in each])
            cells[m, r] = f"{there[0] + 1 if len(there) else '-'}; {100 * final:.1f}"
            raw[f"{m} {r}"] = {"curve": curves[r].tolist(), "final": [f for _, f in each]}
        print(m, [cells[m, r] for r in speeds], flush=True)
    if given.out:
        write_json(given.out, raw)
    print("| clients |" + "".join(f" {r:g} |" for r in speeds) + "\n|---|" + "---|" * len(speeds))
    for m in numbers:
        print(f"| {m} |" + "".join(f" {cells[m, r]} |" for r in speeds))


if __name__ == "__main__":
    main()
