"""Which rule chooses best between a client's personal model, the global one and a mixture of the two?

    python benchmarks/choice.py play FOLDER     train every federation once and keep every sample's loss (about an hour)
    python benchmarks/choice.py table FOLDER    hold the rules against each other on what was kept (seconds)

The settings are digits, Fashion-MNIST and the data sets with natural clients in $SARTOR_DATA/natural; what is not there
is left out. Test data are the same whatever the other samples are used for: training, validation, or both in turn.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from sartor.data import Clients, Dataset, load
from sartor.data.dataset import cut_sizes
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe
from sartor.run.result import Result

NATURAL = Path(os.environ.get("SARTOR_DATA", ".")) / "natural"
SEEDS = range(5)
ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the personal model, the rest of the global one
FOLDS = 4
SHARES = {"8%": 0.1, "15%": 0.15 / 0.8, "20%": 0.25}  # of what is not test data: a fifth of every client's samples is
SPLITS = ("8%", "20%", "none", "15%", *(f"fold {j}" for j in range(FOLDS - 1)))  # the last fold is the split of 20%
METHODS: dict[str, dict[str, Any]] = {
    "flame": {},  # with rho = lam / clients, see `recipe`
    "pfedme": {},
    "ditto": {},
    "fedavg-ft": {},
    "apfl": {},
    "per-fedavg-fo": {},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "digits": {"partition": "hybrid", "clients": 10},
    "digits, Dirichlet 0.5": {"partition": "dirichlet=0.5", "clients": 20},
    "Fashion-MNIST, Dirichlet 0.3": {"partition": "dirichlet=0.3", "clients": 100, "model": "mlp(32)", "rounds": 15},
    "HAR, 30 people": {"model": "mlp(32)"},
    "heart, 4 hospitals": {"model": "softmax"},
    "contraception, 57 districts": {"model": "softmax"},
    "exam, 63 schools": {},
    "school, 139 schools": {"solver": {"lr": 0.02}, "rounds": 30},
    "HSB, 160 schools": {},
}


def data_of(name: str) -> Dataset:
    """The data set of a setting; numbers to predict have mean 0 and variance 1 over all pupils."""
    kind = name.split(",")[0]
    if kind in ("digits", "Fashion-MNIST"):
        return load(kind.lower())
    if kind == "HAR":
        with np.load(NATURAL / "har.npz") as found:
            return load((found["x"].astype(np.float32), found["y"], found["subject"]))
    file, target, key, number = {
        "heart": ("heart.csv", "disease", "hospital", False),
        "contraception": ("contraception.csv", "use", "district", False),
        "exam": ("exam.csv", "normexam", "school", True),
        "school": ("school.csv", "score", "school", True),
        "HSB": ("hsb82.csv", "mAch", "school", True),
    }[kind]
    task = "regression" if number else "classification"
    table = load(NATURAL / file, target=target, client_key=key, task=task)
    return replace(table, y=(table.y - table.y.mean()) / table.y.std()) if number else table


# --- training, once ---------------------------------------------------------------------------------------------------


def held_back(clients: Clients, split: str) -> Clients:
    """The clients, cut without validation data, with some of their training samples as validation data."""
    if split == "none":
        return clients
    order, bounds = np.arange(len(clients.x)), clients.bounds.copy()
    for i, (low, high) in enumerate(clients.bounds[:, [0, 1]]):
        n = int(high - low)
        if split in SHARES:
            count = cut_sizes(n, (1 - SHARES[split], SHARES[split], 0.0))[1]
            held = np.arange(n - count, n)
        else:
            held = np.array_split(np.arange(n), FOLDS)[int(split.split()[1])]
        order[low:high] = low + np.concatenate([np.setdiff1d(np.arange(n), held), held])
        bounds[i, 1] = high - len(held)
    return replace(clients, x=clients.x[order], y=clients.y[order], bounds=bounds)


def recipe(name: str, method: str, seed: int, clients: int) -> Recipe:
    own = {"rounds": 20} | SETTINGS[name]
    settings = METHODS[method] | ({"rho": 0.1 / clients} if method == "flame" else {})
    return Recipe(
        method=method, settings=settings, seed=seed, evaluate_every=own["rounds"], diagnostics=False, workers=1, **own
    )


def every_sample(result: Result) -> dict[str, np.ndarray]:
    """Of every mixture the loss of every validation and test sample, and what its score is made of: whether the class
    is right, or the squared error; and whose sample it is."""
    data, task, theta = result.data, result.task, result.run.query_clients("personal")["personal"]
    w = result.run.method.shared(result.run.server)
    assert w is not None
    found: dict[str, list[np.ndarray]] = {k: [] for k in ("client", "test", "y", "loss", "right", "spread")}
    for i, (_, first, test, last) in enumerate(data.bounds):
        x, y = data.x[None, first:last], data.y[None, first:last]
        outputs = [task.predict(torch.lerp(w, theta[i], a)[None], x) for a in ALPHAS]
        own = data.y[data.rows(i, "train")].double()
        found["spread"].append(np.full(1, float(own.var(correction=0)) if data.classes is None else 1.0))
        found["client"].append(np.full(last - first, i))
        found["test"].append(np.arange(first, last) >= test)
        found["y"].append(y[0].double().numpy())
        found["loss"].append(np.stack([task.errors(o, y)[0].double().numpy() for o in outputs], 1))
        right = [2 * task.errors(o, y) if data.classes is None else task.correct(o, y) for o in outputs]
        found["right"].append(np.stack([r[0].double().numpy() for r in right], 1))
    return {k: np.concatenate(v) for k, v in found.items()} | {"regression": np.array(data.classes is None)}


def play(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, name in product(SPLITS, SETTINGS):
        if name.startswith(("Fashion", "HAR")) and split not in ("8%", "20%", "none"):
            continue  # folds are held against the rest on the smaller sets
        try:
            data = data_of(name)
        except (FileNotFoundError, RuntimeError, ValueError) as e:
            print(f"{name} is left out: {e}")
            continue
        began = time.monotonic()
        for seed in SEEDS:
            own = SETTINGS[name]
            base = data.split(own.get("partition", "natural"), own.get("clients"), seed, (0.8, 0.0, 0.2))
            clients = held_back(base, split)
            for method in METHODS:
                path = folder / f"{name}; {method}; {split}; {seed}.npz"
                if not path.exists():
                    *_, result = play_recipe(recipe(name, method, seed, len(clients)), clients, None)
                    np.savez_compressed(path, **every_sample(result))
        print(f"{name}, {split}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    play(Path(sys.argv[2]))
