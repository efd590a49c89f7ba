"""How long a run will take on two cores, roughly, without trying it: multiplications of its network times samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ... import models, spelling
from ...data import Dominant, parse
from ...errors import SartorError
from ...run.recipe import Recipe

# Samples, shape of one, outputs. Of "synthetic" as drawn with its defaults.
FACTS: dict[str, tuple[int, tuple[int, ...], int]] = {
    "digits": (1_797, (64,), 10),
    "mnist": (70_000, (1, 28, 28), 10),
    "fashion-mnist": (70_000, (1, 28, 28), 10),
    "femnist": (45_000, (1, 28, 28), 62),
    "cifar10": (12_000, (3, 32, 32), 10),
    "medical-mnist": (15_000, (1, 28, 28), 6),
    "vehicle": (1_860, (100,), 1),
    "synthetic": (150_000, (60,), 10),
}
SPEED = 4e10  # multiplications a second on two idle cores, as measured with FLAME's MLP on MNIST
THIN, SLOWER = 256, 4  # convolutions with fewer inputs to an output than this take so many times longer
STEP, START = 2e-5, 1.0  # seconds that a client's step and a run take whatever their size


@cache
def multiplications(model: str, dataset: str) -> int:
    """Of one sample's way through the network; those of thin convolutions count more."""
    _, shape, outputs = FACTS[dataset]
    count = 0

    def add(layer: nn.Module, _: object, out: Tensor) -> None:
        nonlocal count
        if isinstance(layer, nn.Linear):
            count += layer.in_features * layer.out_features
        elif isinstance(layer, nn.Conv2d):
            inside = layer.in_channels * math.prod(layer.kernel_size)
            count += (SLOWER if inside < THIN else 1) * inside * out[0].numel()

    made = models.build(model, shape, outputs)
    for layer in made.modules():
        layer.register_forward_hook(add)
    with torch.no_grad():
        made(torch.zeros(1, *shape))
    return count


def seconds(recipe: Recipe) -> float:
    """About so long, from its fields alone; 0 for data of one's own."""
    name, inside, _ = spelling.read("data set", recipe.data)
    part = int(str(inside[1])) if name == "authors.part-of" else None
    name = str(inside[0]) if name.startswith("authors.") else name
    if name not in FACTS:
        return 0.0
    n = part or FACTS[name][0]
    dealt = None if recipe.partition == "auto" else parse(recipe.partition)
    if isinstance(dealt, Dominant):
        n = min(n, (recipe.clients or 10) * sum(dealt.sizes) // len(dealt.sizes))
    model = "mlp" if recipe.model == "auto" else recipe.model
    m = recipe.clients or (100 if name == "synthetic" else 200)
    try:
        each = multiplications(model, name)
    except SartorError:
        return 0.0
    own = _inner(recipe.settings, "solver")
    only_then = recipe.settings.get("joint") is False  # Ditto's second solver: v is found when it is scored
    trained = _inner(recipe.settings, "global_solver") if only_then else own
    solver = {"epochs": 1, "batch": 20, **recipe.solver, **trained}
    samples = n * recipe.parts[0] / m
    batches = math.ceil(samples / solver["batch"])
    steps = solver.get("steps") or solver["epochs"] * batches
    seen = steps * min(solver["batch"], samples)
    everyone = recipe.settings.get("train_all") or recipe.method == "local" or recipe.method.endswith("-everyone")
    asked = m if everyone else recipe.cohort or m
    two_models = recipe.method.removeprefix("authors.") in ("ditto", "ditto-everyone", "apfl") and not only_then
    often = recipe.settings.get("R", 1) * (2 if two_models else 1)
    training = recipe.rounds * asked * often * (3 * seen * each / SPEED + steps * STEP)
    looks = math.ceil(recipe.rounds / recipe.evaluate_every)
    tuned = _inner(recipe.settings, "finetune")
    after = tuned.get("epochs", 0) * 3 * n * recipe.parts[0] if tuned else 0
    after += 3 * m * own.get("steps", 0) * min(solver["batch"], samples) if only_then else 0
    looking = looks * each / SPEED * (2 * n * (1 - recipe.parts[0]) + after)
    looking += looks * m * own.get("steps", 0) * STEP if only_then else 0
    return float(START + training + looking)


def _inner(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = dict(settings.get(name, {}))
    return found | {k.removeprefix(f"{name}."): v for k, v in settings.items() if k.startswith(f"{name}.")}
