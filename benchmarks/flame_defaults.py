"""Which λ, speed and anchor FLAME should have by default: the second table of docs/methods/flame.md.

    python benchmarks/flame_defaults.py [digits|spread|har ...]      ten minutes

What the chosen models are expected to be worth on validation data after 30 rounds of 10 gradients, with the default
step size; the mean over seeds. Test samples have no part in it.
"""

from __future__ import annotations

import os
import sys
from itertools import product
from typing import Any

import numpy as np

from sartor.run.complete import clients_of
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe

HAR = f"{os.environ.get('SARTOR_DATA', '.')}/natural/har.npz"
SETS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "digits": ({}, (3, 4, 5, 6)),
    "spread": ({"clients": 40, "partition": "dirichlet=0.3"}, (3, 4)),
    "har": ({"data": HAR, "client_key": "subject", "model": "mlp(32)"}, (3, 4)),
}
RIVALS = ("local", "fedavg-ft", "ditto", "pfedme")


def score(base: Recipe, seeds: tuple[int, ...], method: str, settings: dict[str, Any]) -> float:
    """The mean over seeds."""
    found = []
    for seed in seeds:
        recipe = base.replace(seed=seed, method=method, settings=settings)
        *_, result = play_recipe(recipe, clients_of(recipe), None)
        found.append(result.history[-1]["validation"])
    return float(np.mean(found))


def main() -> None:
    for name in sys.argv[1:] or SETS:
        given, seeds = SETS[name]
        base = Recipe(**given, local_steps=10, rounds=30, evaluate_every=30, diagnostics=False)
        for method in RIVALS:
            print(f"{name:>8} {method:<30} {100 * score(base, seeds, method, {}):.1f}", flush=True)
        for anchor, lam, speed in product(("local", "global"), (0.1, 0.3, 1.0, 3.0), (1.0, 3.0)):
            value = score(base, seeds, "flame", {"anchor": anchor, "lam": lam, "speed": speed})
            print(f"{name:>8} flame {anchor:<7} λ {lam:<4} speed {speed:<5} {100 * value:.1f}", flush=True)


if __name__ == "__main__":
    main()
