"""The terms of a federation: what of a recipe server and sites must agree on."""

from __future__ import annotations

from typing import Any

import torch

from ..core import State
from ..data import Clients
from ..errors import SartorError, need
from ..run import versions
from ..run.complete import complete, frozen_weights, privacy, resolve
from ..run.named_parts import method_from
from ..run.recipe import SETTINGS, Recipe
from ..run.result import Result
from ..wrappers.secure_sum import SecureSum


def shared(recipe: Recipe) -> Recipe:
    """The recipe as a federation plays it. What only a simulation can pretend is refused."""
    good = recipe.engine != "ray"
    need(good, 'engine = "ray" does not work in a real federation; remove it, or simulate with sartor run.')
    for name, about in SETTINGS.items():
        value = getattr(recipe, name)
        given = value != about.default and value not in (None, 0.0)
        need(
            not (given and about.pretended),
            f"{name} works only in a simulation; got {value}. Use sartor run.",
        )
        need(
            not (given and about.undeployed),
            f"a real federation has no {name} yet, as {about.undeployed}; got {value}. Simulate it with sartor run.",
        )
    asked = privacy(recipe)
    need(
        asked is None or asked.where == "client" or asked.unit == "sample" or recipe.secure_aggregation,
        "noise at the server needs a server that is trusted with every message; in a real federation each site adds "
        'noise of its own: dp_where = "client", or secure_aggregation = true and only the sum carries it.',
    )
    own = {name: about.default for name, about in SETTINGS.items() if about.own}
    own |= {"data": "federation", "partition": "natural", "leave_out": [], "text": []}
    return resolve(recipe).replace(**own | {"checkpoint_every": 1, "workers": 1, "diagnostics": False})


def unsummed(method: str) -> str:
    """Why a method, with its defaults, does not go with secure aggregation; empty: it does."""
    made = method_from(method, {})
    try:
        SecureSum(made, noisy=False)
    except SartorError as e:
        return str(e)
    return ""


def terms(recipe: Recipe, clients: Clients) -> dict[str, Any]:
    """Every setting that changes numbers, written out, and the version of this library."""
    agreed = [name for name, about in SETTINGS.items() if not (about.free or about.own)]
    full = complete(recipe, clients)
    return {name: getattr(full, name) for name in agreed} | {"sartor": versions.VERSION}


def frozen_terms(recipe: Recipe, clients: Clients) -> dict[str, str]:
    """What is frozen in the model must be the same everywhere; nothing where nothing is. It builds the model."""
    found = frozen_weights(complete(recipe, clients), clients)
    return {"frozen weights": found} if found else {}


def downlinks(result: Result) -> dict[str, State]:
    """By stage: what the server sends for one client, before it is coded."""
    run, one = result.run, torch.zeros(1, dtype=torch.int64)
    down = run.method.downlink(run.server, one, 0)
    common = run.method.shared(run.server)
    looked = down if common is None else down | {"global": common[None]}
    return {"train": down, "evaluate": looked, "personal": looked}
