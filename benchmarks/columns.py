"""How should a table's numbers be put to scale: by all clients' statistics, or by each client's own?

    python benchmarks/columns.py [SEEDS]     a table in Markdown (about ten minutes for three seeds)
    python benchmarks/columns.py far         how far clients' means may lie apart (data/tables/moments.py, FAR): mean
                                             loss on training rows after 50 rounds of steps of the default length

Tables with natural clients in $SARTOR_DATA/natural, softmax or linear models, default settings. For each method the
mean over seeds of the test score (accuracy, or R² over all test rows of all clients: that of one client's ten rows says
little) with "pooled" and with "own" columns; the target is put to scale by all clients in both.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import torch

from sartor.data import Clients, Dataset, load
from sartor.data.tables import moments
from sartor.engines.stack import Stack
from sartor.errors import SartorError
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe
from sartor.run.result import Result

NATURAL = Path(os.environ.get("SARTOR_DATA", ".")) / "natural"
SETS = {  # file: target, client key, task
    "heart": ("disease", "hospital", "classification"),
    "contraception": ("use", "district", "classification"),
    "exam": ("normexam", "school", "regression"),
    "school": ("score", "school", "regression"),
    "hsb82": ("mAch", "school", "regression"),
}
METHODS = ("local", "fedavg", "ditto")
WAYS = ("pooled", "own")
BOUNDS = (0.5, 1.0, 2.0, 4.0, 8.0)


def score(result: Result, clients: Clients) -> float:
    """The chosen models on all clients' test rows: the share that is right, or R² about the mean of all."""
    counts = clients.counts("test")
    if clients.classes is not None:
        return float(np.average(result.scores["chosen/test/accuracy"], weights=counts))
    squares = 2 * float(np.dot(result.scores["chosen/test/loss"], counts))  # the loss is half the squared error
    y = np.concatenate([clients.y[clients.rows(i, "test")].double().numpy() for i in range(len(clients))])
    return 1 - squares / float(((y - y.mean()) ** 2).sum())


def played(name: str, method: str, how: str, seed: int) -> float:
    """One run's score; NaN where it diverges."""
    target, key, task = SETS[name]
    data = load(NATURAL / f"{name}.csv", target=target, client_key=key, task=task)
    clients = data.split("natural", seed=seed, columns=how)
    model = "linear" if clients.classes is None else "softmax"
    recipe = Recipe(method=method, data=name, model=model, seed=seed, evaluate_every=50, workers=1, diagnostics=False)
    try:
        *_, result = play_recipe(recipe, clients, None)
    except SartorError:
        return float("nan")
    return score(result, clients)


def far() -> None:
    """By FAR the training loss of each table and method; no row outside of training has a part in it."""
    print("| table |", " | ".join(f"{m}, {far:g}" for m in METHODS for far in BOUNDS), "|")
    print("|---|" + "---|" * (len(METHODS) * len(BOUNDS)))
    for name, (target, key, task) in SETS.items():
        data = load(NATURAL / f"{name}.csv", target=target, client_key=key, task=task)
        said = []
        for method in METHODS:
            for moments.FAR in BOUNDS:
                said.append(f"{training_loss(name, method, data):.3g}")
        print(f"| {name} |", " | ".join(said), "|", flush=True)


def training_loss(name: str, method: str, data: Dataset) -> float:
    """Of one run; infinite where it diverges."""
    clients = data.split("natural", seed=0, columns="pooled", parts=(0.92, 0.0, 0.08))
    model = "linear" if clients.classes is None else "softmax"
    recipe = Recipe(method=method, data=name, model=model, seed=0, evaluate_every=50, workers=1, diagnostics=False)
    try:
        *_, result = play_recipe(recipe, clients, None)
    except SartorError:
        return float("inf")
    models = result.run.models()
    theta = models["client/personal"] if "client/personal" in models else models["global"].expand(len(clients), -1)
    stack = Stack(result.task, result.data, np.arange(len(clients)), torch.zeros(len(clients)), 0, 0)
    return float(np.average(stack.full_loss(theta).numpy(), weights=clients.counts("train")))


def main() -> None:
    """Play all, and print the table."""
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
    print("| table | score |", " | ".join(f"{m}, {how}" for m in METHODS for how in WAYS), "|")
    print("|---|---|" + "---|" * (len(METHODS) * len(WAYS)))
    for name, (_, _, task) in SETS.items():
        if not (NATURAL / f"{name}.csv").exists():
            continue
        found = [np.mean([played(name, m, how, s) for s in seeds]) for m in METHODS for how in WAYS]
        said = ["diverges" if np.isnan(v) else f"{v:.3f}" for v in found]
        print(f"| {name} | {'R²' if task == 'regression' else 'accuracy'} |", " | ".join(said), "|", flush=True)


if __name__ == "__main__":
    (far if sys.argv[1:] == ["far"] else main)()
