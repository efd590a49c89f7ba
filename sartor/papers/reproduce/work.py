"""What an experiment gives to the methods that it compares: gradients, who trains, how many settings are tried.

Counted by the library itself: two rounds of every method with its settings, on a few samples of no meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from ...data import Clients
from ...run.play import play_recipe
from ...run.recipe import Recipe
from .cells import UNITS, base
from .claims import ALIKE
from .experiment import Experiment
from .mapping import Size, TableColumn

_CLIENTS, _SAMPLES, _ROUNDS = 10, 40, 2
_USUAL = {"synthetic": 100}  # clients of data that say themselves how many there are


class Work(NamedTuple):
    """What a method is given. Gradients are of minibatches, of each client and round, the mean over all clients."""

    gradients: float
    finetuning: float  # gradients besides, each time that personal models are made of the global one
    trained: float  # the share of clients that train in a round
    trials: int  # settings among which the best is chosen
    rounds: int = 0

    def words(self) -> str:
        """In a few words."""
        fine = f" and {self.finetuning:g} of fine-tuning" if self.finetuning else ""
        tried = f"{self.trials} settings" if self.trials > 1 else "one setting"
        return f"{self.gradients:g} gradients{fine}, {self.trained:.0%} of clients train, {tried}"


def compared(experiment: Experiment, size: Size | None = None) -> list[dict[str, Work]]:
    """The work of each entrant, for every group of cells that are held against each other."""
    size = size or Size.of(experiment, quick=False)
    groups: dict[tuple[str, ...], dict[str, Work]] = {}
    for cell in size.cells(experiment):
        if cell.missing is not None or cell.unit not in UNITS:
            continue
        column = TableColumn(experiment, cell, False, size)
        own = [k for k in cell.keys if k not in (*ALIKE, "method")]
        name = ", ".join([cell.keys["method"], *(f"{k} = {cell.keys[k]}" for k in own), *filter(None, [cell.label])])
        alike = tuple(str(cell.keys.get(k)) for k in ALIKE)
        groups.setdefault(alike, {})[name] = work_of([column.recipe(v, 0) for v in column.variants])
    return list(groups.values())


def is_equal(entrants: Iterable[Work]) -> bool:
    """Whether all have the same, up to what rounding does to a count."""
    rounded = {(f"{w.gradients:.3g}", f"{w.finetuning:.3g}", f"{w.trained:.3g}", *w[3:]) for w in entrants}
    return len(rounded) <= 1


def work_of(variants: Sequence[Recipe]) -> Work:
    """The work of a method with a grid: of its longest setting."""
    found = [_counted(_small(recipe).toml()) for recipe in variants]
    gradients, finetuning, trained = (max(w[i] for w in found) for i in range(3))
    return Work(gradients, finetuning, trained, len(variants), max(recipe.rounds for recipe in variants))


def _small(recipe: Recipe) -> Recipe:
    """The same method, settings and share of clients, in a federation of no meaning."""
    name = base(recipe.data)
    m = recipe.clients or _USUAL.get(name, _CLIENTS)
    cohort = None if recipe.cohort is None else max(1, round(_CLIENTS * recipe.cohort / m))
    return Recipe.of(
        {
            **{k: getattr(recipe, k) for k in ("method", "settings", "solver", "local_steps", "sampling", "drop")},
            "model": "svm" if name == "vehicle" else "mlp(12)",
            "clients": _CLIENTS,
            "cohort": cohort,
            "rounds": _ROUNDS,
            "evaluate_every": _ROUNDS,
            "diagnostics": False,
            "workers": 1,
        }
    )


@cache
def _counted(toml: str) -> tuple[float, float, float]:
    """Gradients and those of fine-tuning of each client and round, and the share of clients that train."""
    import tomllib

    from ...run.recipe import flat

    recipe = Recipe.of(flat(tomllib.loads(toml)))
    for result in play_recipe(recipe, _clients(recipe.model == "svm"), None):
        counts = result.run.counts
    each = _CLIENTS * _ROUNDS
    return counts["steps"] / each, counts["finetune_steps"] / _CLIENTS, counts["trained"] / each


def _clients(signs: bool) -> Clients:
    rng = np.random.default_rng(0)

    def some(n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.standard_normal((n, 7)).astype(np.float32)
        y = np.arange(n) % 3
        return x, (np.where(y > 0, 1.0, -1.0).astype(np.float32) if signs else y)

    parts = [{"train": some(_SAMPLES), "validation": some(9), "test": some(9)} for _ in range(_CLIENTS)]
    return Clients.from_parts(parts, 2 if signs else 3)
