"""Equal work: the same number of minibatch gradients per client and round for every method of a study.

The number is that of one epoch of the median client, rounded up to a multiple of 10 that every method can split (pFedMe
by its K = 5, Ditto into halves, Per-FedAvg into fours). A method whose gradients cannot be chosen keeps its own, and
says why. Where somebody's steps or epochs are given, nobody's are chosen here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ..data import Clients
from ..errors import SartorError
from ..run.complete import resolve, says_lengths, unsplit
from ..run.recipe import Recipe

_UNIT = 10  # pFedMe's K and Ditto's halves go into it
_MOST = (
    24  # multiples that are tried; 6, by which four gradients and three candidates for λ can be split, is one of them
)
_BATCH = 20  # the solvers' default


def equal_steps(recipes: Iterable[Recipe], clients: Clients) -> int | None:
    """Local steps for all of these recipes; None: each has its own, as some are given, or as nobody's can be chosen."""
    recipes = list(recipes)
    if any(r.local_steps is not None or says_lengths(r) for r in recipes):
        return None
    free = [r for r in recipes if not unsplit(r)]
    batch = int(recipes[0].solver.get("batch", _BATCH)) if recipes else _BATCH
    first = math.ceil(math.ceil(float(np.median(clients.counts("train"))) / batch) / _UNIT)
    for multiple in range(max(first, 1), max(first, 1) + _MOST):
        steps = _UNIT * multiple
        if free and all(_takes(r, steps) for r in free):
            return steps
    return None


def with_steps(recipe: Recipe, steps: int | None) -> Recipe:
    """The recipe with so many local steps; one whose method cannot take them keeps its own."""
    plain = recipe.replace(local_steps=None, aggregator="mean")  # what else may be refused is not refused here
    return recipe.replace(local_steps=None if steps is None or unsplit(plain) else steps)


def _takes(recipe: Recipe, steps: int) -> bool:
    try:
        resolve(recipe.replace(local_steps=steps))
    except SartorError:
        return False
    return True
