"""The terms of a federation: what of a recipe server and sites must agree on."""

from __future__ import annotations

from typing import Any

import torch

from .. import __version__
from ..core import State
from ..data import Clients
from ..errors import need
from ..run.recipe import FREE, Recipe
from ..run.result import Result

# Where data and states are is each site's own affair.
OWN = ("data", "target", "client_key", "leave_out", "spellings", "partition", "store", "device", "clients")
_PRETENDED = ("attack", "attackers", "drop", "stragglers", "unseen")
_NOT_YET = {
    "compress": "messages go as they are",
    "compress_down": "messages go as they are",
    "dp_noise": "noise would be drawn from the seed that everybody knows",
    "dp_epsilon": "noise would be drawn from the seed that everybody knows",
}


def shared(recipe: Recipe) -> Recipe:
    """The recipe as a federation plays it. What only a simulation can pretend is refused."""
    plain = Recipe.of({})
    good = recipe.engine != "ray"
    need(good, 'a site computes in a process of its own: leave engine = "ray" away, or simulate with sartor run.')
    for field in _PRETENDED:
        value = getattr(recipe, field)
        good = value in (None, 0.0, getattr(plain, field))
        need(good, f"a real federation does not pretend {field}; got {value}. Simulate it with sartor run.")
    for field, reason in _NOT_YET.items():
        value = getattr(recipe, field)
        good = value == getattr(plain, field)
        need(good, f"a real federation has no {field} yet, as {reason}; got {value}. Simulate it with sartor run.")
    need(recipe.columns != "pooled", "a real federation has no pooled columns: statistics stay at the sites. Use own.")
    own = {k: getattr(plain, k) for k in OWN} | {"data": "federation", "partition": "natural"}
    return recipe.resolved().model_copy(update=own | {"checkpoint_every": 1, "workers": 1, "diagnostics": False})


def terms(recipe: Recipe, clients: Clients) -> dict[str, Any]:
    """Every setting that changes numbers, written out, and the version of this library."""
    full = recipe.complete(clients).model_dump()
    return {k: v for k, v in full.items() if k not in (*FREE, *OWN)} | {"sartor": __version__}


def downlinks(result: Result) -> dict[str, State]:
    """By stage: what the server sends, for one client."""
    run, one = result.run, torch.zeros(1, dtype=torch.int64)
    down = run.method.downlink(run.server, one, 0)
    common = run.method.shared(run.server)
    looked = down if common is None else down | {"global": common[None]}
    return {"train": down, "evaluate": looked, "personal": looked}
