"""Which rule chooses best between a client's personal model, the global one and a mixture of the two?

    python benchmarks/choice.py play FOLDER     train every federation once and keep every sample's loss (about an hour)
    python benchmarks/choice.py table FOLDER    hold the rules against each other on what was kept (a minute)

The settings are digits, Fashion-MNIST and the data sets with natural clients in $SARTOR_DATA/natural; what is not
there is left out. A third argument is the number of seeds, 5 without it. Test data are the same whatever the other
samples are used for: training, validation, or both in turn.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from sartor.data import Clients, Dataset, load
from sartor.data.dataset import cut_sizes
from sartor.judge.choice import SHARES, choose, covariance, expected_gains
from sartor.judge.metrics import validated
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe
from sartor.run.result import Result

NATURAL = Path(os.environ.get("SARTOR_DATA", ".")) / "natural"
SEEDS = range(int(sys.argv[3]) if len(sys.argv) > 3 else 5)
ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the personal model, the rest of the global one
FOLDS = 4
HELD = {"8%": 0.1, "15%": 0.15 / 0.8, "20%": 0.25}  # of what is not test data: a fifth of every client's samples is
SPLITS = ("8%", "20%", "none", "15%", *(f"fold {j}" for j in range(FOLDS - 1)))  # the last fold is the split of 20%
METHODS = ("flame", "pfedme", "ditto", "fedavg-ft", "apfl", "per-fedavg-fo")  # with their defaults
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
        if split in HELD:
            count = cut_sizes(n, (1 - HELD[split], HELD[split], 0.0))[1]
            held = np.arange(n - count, n)
        else:
            held = np.array_split(np.arange(n), FOLDS)[int(split.split()[1])]
        order[low:high] = low + np.concatenate([np.setdiff1d(np.arange(n), held), held])
        bounds[i, 1] = high - len(held)
    return replace(clients, x=clients.x[order], y=clients.y[order], bounds=bounds)


def recipe(name: str, method: str, seed: int) -> Recipe:
    own = {"rounds": 20} | SETTINGS[name]
    return Recipe(method=method, seed=seed, evaluate_every=own["rounds"], diagnostics=False, workers=1, **own)


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
        if name.startswith(("Fashion", "HAR")) and split == "15%":
            continue  # shares are held against each other on the smaller sets
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
                    *_, result = play_recipe(recipe(name, method, seed), clients, None)
                    np.savez_compressed(path, **every_sample(result))
        print(f"{name}, {split}: {time.monotonic() - began:.0f} s", flush=True)


# --- rules ------------------------------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """A federation: of every client and mixture (in the order of ALPHAS) what was kept."""

    losses: list[np.ndarray]  # [n_i, 5] of validation samples
    merits: list[np.ndarray]  # [n_i, 5], as judge.expected_gains has them
    accuracy: np.ndarray  # [m, 5] on validation samples; minus the loss for regression, which has the same best
    test: np.ndarray  # [m, 5] accuracy or R²


Rule = Callable[[Kept], np.ndarray]  # [m] places in ALPHAS
GLOBAL, PERSONAL = 0, len(ALPHAS) - 1


def read(path: Path) -> Kept:
    with np.load(path) as found:
        kept = {k: found[k] for k in found.files}
    own = [kept["client"] == i for i in range(int(kept["client"].max()) + 1)]
    held, test = ([rows & (kept["test"] == part) for rows in own] for part in (False, True))
    losses, right = ([kept[k][rows] for rows in held] for k in ("loss", "right"))
    if not kept["regression"]:
        score = [_mean(kept["right"][rows]) for rows in test]
        return Kept(losses, right, np.array([_mean(v) for v in right]), np.array(score))
    merits = [1 - squares / unit for squares, unit in zip(right, kept["spread"], strict=True)]
    score = [_r2(kept["right"][rows], kept["y"][rows]) for rows in test]
    return Kept(losses, merits, np.array([-_mean(v) for v in losses]), np.array(score))


def _mean(values: np.ndarray) -> np.ndarray:
    return values.mean(0) if len(values) else np.full(len(ALPHAS), np.nan)


def _r2(squares: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Cut off at −1, as `sartor advise` has it: one school of 160 with R² = −140 would decide every mean."""
    return np.maximum(1 - squares.sum(0) / max(((y - y.mean()) ** 2).sum(), 1e-12), -1.0)


def always(place: int) -> Rule:
    return lambda kept: np.full(len(kept.test), place)


def in_general(kept: Kept) -> np.ndarray:
    """What has the lower validation loss in the mean over clients, for everyone."""
    mean = np.nanmean([_mean(v) for v in kept.losses], axis=0)
    return np.full(len(kept.test), PERSONAL if mean[PERSONAL] <= mean[GLOBAL] else GLOBAL)


def more_accurate(kept: Kept) -> np.ndarray:
    """The better of two by accuracy, then by loss; personal without validation samples."""
    loss = np.array([_mean(v) for v in kept.losses])
    own, common = kept.accuracy[:, PERSONAL], kept.accuracy[:, GLOBAL]
    tie = (own == common) & (loss[:, PERSONAL] <= loss[:, GLOBAL])
    return np.where(np.isnan(own) | (own > common) | tie, PERSONAL, GLOBAL)


def lower_loss(kept: Kept) -> np.ndarray:
    loss = np.array([_mean(v) for v in kept.losses])
    return np.where(loss[:, PERSONAL] > loss[:, GLOBAL], GLOBAL, PERSONAL)


def one_standard_error(kept: Kept) -> np.ndarray:
    """What is best in general, unless the other one's loss is lower by more than a standard error (pooled)."""
    picked = in_general(kept)
    gaps = [v[:, PERSONAL] - v[:, GLOBAL] for v in kept.losses]
    squares = sum(float(((gap - gap.mean()) ** 2).sum()) for gap in gaps if len(gap))
    sigma = np.sqrt(squares / max(sum(len(gap) - 1 for gap in gaps if len(gap)), 1))
    for i, gap in enumerate(gaps):
        if len(gap) and abs(gap.mean()) > sigma / np.sqrt(len(gap)):
            picked[i] = PERSONAL if gap.mean() < 0 else GLOBAL
    return picked


def lowest_mixture(kept: Kept) -> np.ndarray:
    """The lowest validation loss of all five; personal without validation samples."""
    loss = np.array([_mean(v) for v in kept.losses])
    return np.where(np.isnan(loss[:, 0]), PERSONAL, np.argmin(np.nan_to_num(loss), axis=1))


def shrunk(by: str, models: Sequence[str], highest: bool = False) -> Rule:
    """Empirical Bayes over these models, on their losses or merits: the share nearest to what the best one may be, as
    the library does it, or the one with the highest expected gain."""

    def rule(kept: Kept) -> np.ndarray:
        scores = told(kept.merits if by == "merit" else [-v for v in kept.losses], models)
        gains = expected_gains(scores) if highest else {}
        picked = np.array(list(gains))[np.argmax(list(gains.values()), axis=0)] if highest else choose(scores)
        return np.array([ALPHAS.index(SHARES[m]) for m in picked.tolist()])

    return rule


def told(samples: list[np.ndarray], models: Sequence[str]) -> dict[str, np.ndarray]:
    """What clients tell the server, as an engine's "evaluate" has it."""
    places = {m: ALPHAS.index(SHARES[m]) for m in models}
    out = {"validation/samples": np.array([float(len(v)) for v in samples])}
    for m, place in places.items():
        out[f"{m}/validation/merit"] = np.array([_mean(v)[place] for v in samples])
        out[f"{m}/test/loss"] = np.full(len(samples), np.nan)  # not looked at
    for a, b in combinations_with_replacement(models[1:], 2):
        both = [v[:, [places[a], places[b]]] - v[:, [PERSONAL]] for v in samples]
        values = [np.prod(v - v.mean(0), axis=1).mean() if len(v) else np.nan for v in both]
        out[covariance(a, b)] = np.array(values)
    return out


TWO, ALL = ("personal", "global"), tuple(SHARES)
OURS = shrunk("merit", ALL)
RULES: dict[str, Rule] = {
    "always personal": always(PERSONAL),
    "always global": always(GLOBAL),
    "always 75% personal": always(ALPHAS.index(0.75)),
    "the better in general, by loss": in_general,
    "the better of two by accuracy (before)": more_accurate,
    "the better of two by loss": lower_loss,
    "by loss, one standard error": one_standard_error,
    "shrunk loss, two models": shrunk("loss", TWO),
    "shrunk accuracy, two models": shrunk("merit", TWO),
    "lowest loss, mixtures": lowest_mixture,
    "shrunk loss, mixtures": shrunk("loss", ALL),
    "shrunk accuracy, mixtures, the highest": shrunk("merit", ALL, highest=True),
    "**shrunk accuracy, mixtures, the mean of the best** (ours)": OURS,
}
WAYS = {"8%": 1, "15%": 1, "20%": 1, "20%, then train on all": 2, "4 folds, then train on all": 5}  # and trainings


def federations(folder: Path, split: str) -> dict[tuple[str, str], list[Kept]]:
    """What was kept of a split, by setting and method: one for each seed."""
    paths = {(n, m): [folder / f"{n}; {m}; {split}; {s}.npz" for s in SEEDS] for n in SETTINGS for m in METHODS}
    return {k: [read(p) for p in each] for k, each in paths.items() if all(p.exists() for p in each)}


def points(kept: Sequence[Kept], picked: Sequence[np.ndarray]) -> float:
    """Mean test score over clients and seeds, in points."""
    each = [np.nanmean(k.test[np.arange(len(p)), p]) for k, p in zip(kept, picked, strict=True)]
    return 100 * float(np.mean(each))


def table(folder: Path) -> None:
    """The rules, in points over the better of always personal and always global; and the ways to hold samples back."""
    found = federations(folder, "8%")
    names = list(dict.fromkeys(n for n, _ in found))
    best = {c: max(points(kept, [always(a)(k) for k in kept]) for a in (PERSONAL, GLOBAL)) for c, kept in found.items()}
    print("| rule | " + " | ".join(names) + " | mean | cells below −0.2 |\n" + "|---" * (len(names) + 3) + "|")
    for rule, pick in RULES.items():
        lead = {cell: points(kept, [pick(k) for k in kept]) - best[cell] for cell, kept in found.items()}
        means = [np.mean([v for (n, _), v in lead.items() if n == name]) for name in names]
        said = [f"{v:+.1f}".replace("-", "−") for v in (*means, np.mean(means))]
        print(f"| {rule} | " + " | ".join(said) + f" | {sum(v < -0.2 for v in lead.values())} of {len(lead)} |")
    kept = {split: federations(folder, split) for split in SPLITS}
    print("\n| held back | trainings | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 2) + "|")
    for way, trainings in WAYS.items():
        row = []
        for name in names:
            each = [_delivered(way, {s: k.get(cell) for s, k in kept.items()}) for cell in found if cell[0] == name]
            row.append("" if None in each else f"{np.mean([v for v in each if v is not None]):.1f}")
        print(f"| {way} | {trainings} | " + " | ".join(row) + " |")
    leads(kept, names)
    promises(found, [n for n in names if "schools" not in n])


def leads(kept: dict[str, dict[tuple[str, str], list[Kept]]], names: Sequence[str]) -> None:
    """Where the delivered models are trained on all samples: points over the better of always personal and always
    global, which are trained on all, too."""
    print("\n| over the better, trained on all | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for way in ("20%, then train on all", "4 folds, then train on all"):
        row = []
        for name in names:
            over = []
            for cell in (c for c in kept["none"] if c[0] == name):
                whole = kept["none"][cell]
                best = max(points(whole, [always(a)(k) for k in whole]) for a in (PERSONAL, GLOBAL))
                value = _delivered(way, {s: k.get(cell) for s, k in kept.items()})
                over.append(np.nan if value is None else value - best)
            row.append("" if not over or np.isnan(over).any() else f"{np.mean(over):+.1f}".replace("-", "−"))
        print(f"| {way} | " + " | ".join(row) + " |")


def promises(found: dict[tuple[str, str], list[Kept]], names: Sequence[str]) -> None:
    """By how many points the accuracy that a choice promises on validation data is above what comes on test data."""
    print("\n| promised too much | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for what, rule in (
        ("before", more_accurate),
        ("ours, on the samples that chose", OURS),
        ("ours, as expected", OURS),
    ):
        row = []
        for name in names:
            each = [k for (n, _), kept in found.items() if n == name for k in kept]
            over = [_promised(k, rule(k), "expected" in what) - points([k], [rule(k)]) for k in each]
            row.append(f"{np.mean(over):+.1f}".replace("-", "−"))
        print(f"| {what} | " + " | ".join(row) + " |")


def _promised(kept: Kept, picked: np.ndarray, expected: bool) -> float:
    if expected:
        return 100 * (validated(told(kept.merits, ALL)) or 0.0)
    return 100 * float(np.nanmean(kept.accuracy[np.arange(len(picked)), picked]))


def _delivered(way: str, kept: dict[str, list[Kept] | None]) -> float | None:
    """Points of one setting and method by our rule; None where it was not played."""
    if way in HELD:
        return None if (one := kept[way]) is None else points(one, [OURS(k) for k in one])
    whole, last, folds = kept["none"], kept["20%"], [kept[f"fold {j}"] for j in range(FOLDS - 1)]
    if whole is None or last is None:
        return None
    if way.startswith("20%"):
        return points(whole, [OURS(k) for k in last])
    there = [f for f in folds if f is not None]
    if len(there) < len(folds):
        return None
    return points(whole, [OURS(_joined(k)) for k in zip(*there, last, strict=True)])


def _joined(folds: Sequence[Kept]) -> Kept:
    """One federation with the validation samples of all folds."""
    return folds[-1]._replace(merits=[np.concatenate(v) for v in zip(*(f.merits for f in folds), strict=True)])


if __name__ == "__main__":
    {"play": play, "table": table}[sys.argv[1]](Path(sys.argv[2]))
