"""What `advise` tries: methods with the settings that each is given, the simplest first.

On a table, linear models are solved to the end, so that a trial has no step size and needs no samples to stop by. Where
there are rows enough, small networks are tried beside them, with a weight decay, steps that become shorter, and the
round that is best on validation data: none is trained too short or too long. On other data every method trains the
model that was asked for, by steps, with settings drawn from its search space. On a table whose linear model is too
large for methods that send curvatures FedLBFGS is the pooled one, Ditto's models are fitted from it when it is there,
and the others train by steps: to solve such a problem in every round takes long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ..methods import entry
from ..methods.mixed_effects import LARGEST
from ..run.complete import to_the_end
from ..run.recipe import Recipe
from .tune import Log, propose, ranges

ALONE = "local"
METHODS = ("local", "fedavg", "fedavg-ft", "ditto", "pfedme", "flame", "fedamp")
ON_TABLES = (
    *("local", "fednewton", "own-intercept", "random-intercept", "mr-mtl", "mixed-effects", "ditto", "pfedme", "flame"),
    *("fedamp", "fedavg-ft"),
)
_TO_THE_END_IF_WIDE = ("local", "fedlbfgs", "ditto")
ON_WIDE_TABLES = ("local", "fedlbfgs", "mr-mtl", "ditto", "pfedme", "flame", "fedamp", "fedavg-ft")
NETWORKS = ("local", "fedavg-es", "ditto")  # tried with a small network, too, where there are rows for one
NETWORK = "mlp(32)"
ROWS_FOR_A_NETWORK = 2000
WEIGHT_DECAY = Log(1e-4, 3e-2)  # of a network
_LAST_STEP = 0.1  # of the first: how long a network's steps are in the last round
_LOOKS = 6  # at validation data, while a network is trained
ROUNDS, GRADIENT_ROUNDS = 15, 60  # of methods that solve to the end, and of those that do so by gradients of all
_LAMS = (0.1, 0.3, 1.0, 0.03, 3.0, 0.01)
# Settings on a table, in the order in which they are tried; what fits many tables comes first.
_GRIDS: dict[str, dict[str, Sequence[Any]]] = {
    "local": {"solver.ridge": (1.0, 10.0, 3.0, 30.0, 100.0, 0.3)},
    "fednewton": {"ridge": (10.0, 1.0, 100.0)},
    "fedlbfgs": {"ridge": (1.0, 10.0, 0.1)},
    "own-intercept": {"ridge": (10.0, 1.0, 100.0)},
    "random-intercept": {"ridge": (10.0, 1.0, 100.0)},
    "mixed-effects": {"factor": (1.0, 0.5, 2.0), "ridge": (10.0, 100.0)},
    "mr-mtl": {"lam": _LAMS},
    "ditto": {"lam": _LAMS},
    "flame": {"lam": _LAMS},
    "fedamp": {"self_weight": (0.3, 0.6, 0.9)},
}


@dataclass(frozen=True)
class Candidate:
    """A method with a model, and what it is tried with."""

    method: str
    model: str
    settings: Iterator[dict[str, Any]]
    by_steps: bool  # trained by minibatch steps: some samples must be set aside to choose a model by
    rounds: int

    def recipe(self, base: Recipe, settings: Mapping[str, Any]) -> Recipe:
        """What is played, but for the number of steps, which all that take any share."""
        own = {"method": self.method, "model": self.model, "settings": dict(settings), "rounds": self.rounds}
        own |= {"evaluate_every": self.rounds, "checkpoint_every": self.rounds, "diagnostics": False}
        if not self.by_steps:  # everything that is not test data is to train on
            own |= {"parts": [1 - base.parts[2], 0.0, base.parts[2]]}
        if self.model == NETWORK:
            own |= {"solver": {"decay": _LAST_STEP ** (1 / self.rounds)}, "report": "best"}
            own |= {"evaluate_every": -(-self.rounds // _LOOKS)}
        made = base.replace(**own)
        return _stepping(made) if self.by_steps else made


def _stepping(recipe: Recipe) -> Recipe:
    """The same with a solver that takes steps, where it would solve to the end."""
    return recipe.replace(solver={"kind": "sgd"} | recipe.solver) if to_the_end(recipe) else recipe


def candidates(
    base: Recipe, methods: Sequence[str] | None, trials: int, rows: int, parameters: int
) -> dict[str, Candidate]:
    """By name, the simplest first; `rows` of all clients are to learn from, and a linear model has so many
    `parameters`."""
    table = base.target is not None and base.model in ("auto", "softmax", "linear")
    wide = parameters > LARGEST
    order = ON_WIDE_TABLES if wide else ON_TABLES
    known = dict.fromkeys([ALONE, *(methods or (order if table else METHODS))])
    names = sorted(known, key=lambda m: order.index(m) if m in order else len(order))
    found = {m: _one(base, m, base.model, trials, wide) for m in names}
    if table and base.model == "auto" and methods is None and rows >= ROWS_FOR_A_NETWORK:
        found |= {f"{m}, {NETWORK}": _one(base, m, NETWORK, trials, wide) for m in NETWORKS}
    return found


def _one(base: Recipe, method: str, model: str, trials: int, wide: bool) -> Candidate:
    recipe = base.replace(method=method, model=model, settings={})
    exact = to_the_end(recipe) or entry(method).make.models == "one layer" or method == "fedlbfgs"  # without any steps
    if not exact or (wide and method not in _TO_THE_END_IF_WIDE):
        recipe = _stepping(recipe)
        space = ranges(method, recipe) | ({"solver.weight_decay": WEIGHT_DECAY} if model == NETWORK else {})
        drawn = propose("random", space, trials, [], method)
        return Candidate(method, model, drawn, True, base.rounds)
    grid: Iterator[dict[str, Any]]
    if method == "pfedme":
        grid = iter([{"lam": lam, "eta": min(1.0, 1 / lam)} for lam in _LAMS])  # ηλ above 1 overshoots
    elif method in _GRIDS:
        names = _GRIDS[method]
        grid = (dict(zip(names, values, strict=True)) for values in product(*names.values()))
    else:
        grid = propose("random", ranges(method, recipe), trials, [], method)
    if wide and method == "ditto":  # whose global model is else fednewton's
        grid = (one | {"joint": False, "solver.kind": "newton", "global_method": "fedlbfgs"} for one in grid)
    by_gradients = wide and method in ("fedlbfgs", "ditto")
    return Candidate(method, model, grid, False, GRADIENT_ROUNDS if by_gradients else ROUNDS)
