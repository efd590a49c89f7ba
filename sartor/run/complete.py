"""A recipe with everything written out that was left to its method or its data; and the clients that it speaks of."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import torch
from torch import nn

from .. import compressors, data, models, spelling
from ..core import Method, Neighbours
from ..data import Clients, Dataset
from ..errors import need, unknown
from ..methods import entry
from ..seeds import torch_seed
from ..solvers import batch_sizes
from ..tasks.frozen import digest
from ..tasks.task import LOSSES
from ..wrappers import (
    Attack,
    Privacy,
    attacks,
    check_attackers,
)
from . import privacy_account
from .bytes import Goal, parse_bytes
from .named_parts import aggregator, attack, compressor, dotted, given_lengths, method_from, to_table, with_local_steps
from .newcomers import held_out
from .recipe import SETTINGS, Recipe, Traffic

_LATER = (
    "metric",
    "class_weights",
    "personal",
    "folds",
    "text",
    "secure_aggregation",
    "secure_sites",
    "dp_unit",
    "dp_planned",
)  # settings that runs of before do not have: where they change nothing, these can go on
_PRIVATE = [name for name, about in SETTINGS.items() if about.group == "privacy"]
TYPES = {"float32": torch.float32, "float64": torch.float64}


def read_data(recipe: Recipe) -> Dataset:
    """The data, before they are split."""
    given = {"target": recipe.target, "client_key": recipe.client_key, "drop": recipe.leave_out or None}
    given |= {"text": recipe.text or None}
    given |= {"spellings": None if recipe.spellings == "refuse" else recipe.spellings}
    given |= {"task": None if recipe.task == "auto" else recipe.task}
    return data.load(recipe.data, **{k: v for k, v in given.items() if v is not None})


def dealt(recipe: Recipe, dataset: Dataset) -> str:
    """How the data are dealt out."""
    if recipe.partition != "auto":
        return recipe.partition
    return "hybrid" if dataset.keys is None else "natural"


def split(recipe: Recipe, dataset: Dataset) -> Clients:
    """The clients."""
    return dataset.split(
        dealt(recipe, dataset),
        recipe.clients,
        recipe.seed,
        tuple(recipe.parts),
        recipe.minimum,
        TYPES.get(str(recipe.dtype), torch.float32),
        columns=columns_of(recipe),
        target=target_of(recipe),
        summed=recipe.secure_aggregation,
    )


def columns_of(recipe: Recipe) -> str:
    """How a table's numbers are put to scale. Statistics of all clients are outside of what privacy promises: with it
    each client has its own, where nothing else is asked for."""
    if recipe.columns != "auto":
        return recipe.columns
    return "pooled" if privacy(recipe) is None else "own"


def target_of(recipe: Recipe) -> str:
    """How a target that is a number is put to scale: by all clients, or for the same reason not at all, unless pooled
    statistics are asked for."""
    return "pooled" if privacy(recipe) is None or recipe.columns == "pooled" else "raw"


def clients_of(recipe: Recipe) -> Clients:
    """The clients of a recipe, read and dealt out."""
    return split(recipe, read_data(recipe))


def resolve(recipe: Recipe) -> Recipe:
    """The same run with every setting of its method written out; refuses what no data could mend."""
    return _resolved(recipe, method_of(recipe))


def method_of(recipe: Recipe) -> Method:
    aggregator(recipe.aggregator)
    own = recipe.settings if recipe.aggregator == "mean" else recipe.settings | {"aggregate": recipe.aggregator}
    own = dict(entry(recipe.method).convex) | own if to_the_end(recipe) else own
    made = method_from(recipe.method, own, recipe.solver)
    return made if recipe.local_steps is None else with_local_steps(made, own, recipe.solver, recipe.local_steps)


def to_the_end(recipe: Recipe) -> bool:
    """Whether clients solve their local problems to the end, not by a few steps: with a linear model of a table, by
    methods that say how (`convex` in their files), where nobody has said anything else about solvers, steps or means,
    and messages need not be clipped, compressed, split or defended against."""
    linear = recipe.target is not None and recipe.model in ("auto", "softmax", "linear")
    plain = linear and recipe.loss in (None, "cross-entropy", "squared") and recipe.local_steps is None
    honest = recipe.aggregator == "mean" and recipe.attack == "none" and not recipe.attackers
    small = recipe.compress == recipe.compress_down == "none"
    private = recipe.dp_noise is not None or recipe.dp_epsilon is not None
    whole = recipe.personal is None  # what solves to the end sends more than a model that could be split
    if not (plain and honest and small and whole) or private or set(recipe.solver) - {"ridge"}:
        return False
    said = {key for key in dotted(recipe.settings) if key != "solver.ridge"}
    other = any("solver" in key or key.startswith(("global_method", "weighting", "aggregate")) for key in said)
    return bool(entry(recipe.method).convex) and not other


def unsplit(recipe: Recipe) -> str:
    """Why the method cannot take a given number of local steps; empty: it can."""
    return method_of(recipe.replace(local_steps=None)).unsplit()


def says_lengths(recipe: Recipe) -> bool:
    """Whether the recipe says itself how much a client computes in a round."""
    method = method_of(recipe.replace(local_steps=None))
    return bool({"epochs", "steps"} & set(recipe.solver)) or bool(given_lengths(method, recipe.settings))


def respent(recipe: Recipe, steps: int) -> Recipe:
    """A complete recipe with another number of local steps."""
    made = method_of(recipe.replace(local_steps=None)).spending(steps)
    return recipe.replace(local_steps=steps, settings=to_table(made), solver={})


def _resolved(recipe: Recipe, method: Method) -> Recipe:
    if recipe.partition != "auto":
        data.parse(recipe.partition)
    goal(recipe.group(Traffic))
    wanted = attack(str(recipe.attack))
    share = attackers_of(wanted, recipe.attackers)
    check_attackers(share)
    known: dict[str, Any] = {
        "attack": "none" if wanted is None else spelling.write(attacks.NAMES, wanted),
        "attackers": share,
        "columns": columns_of(recipe),
    }
    if (asked := privacy(recipe)) is not None:
        known |= {f"dp_{k}": getattr(asked, k) for k in ("clip", "delta", "where", "accountant")}
        known |= {"dp_unit": asked.unit} if asked.unit != "client" else {}
        if asked.unit == "sample" and asked.epsilon is not None:
            known["dp_planned"] = asked.planned or recipe.rounds  # a run that goes on keeps its noise, and spends more
    for way in ("compress", "compress_down"):
        made = compressor(getattr(recipe, way))
        known[way] = "none" if made is None else spelling.write(compressors.NAMES, made)
    return recipe.replace(**known, settings=to_table(method), solver={}, aggregator="mean")


def complete(recipe: Recipe, clients: Clients) -> Recipe:
    """The same run with everything written out that was left to the method or to the data."""
    return completed(recipe, clients, method_of(recipe))


def completed(recipe: Recipe, clients: Clients, method: Method) -> Recipe:
    loss = natural_loss(clients)
    usual = "mlp" if recipe.target is None else "softmax"  # tables rarely have rows for more
    fitting = {"squared": "linear", "hinge": "svm", "next-token": "transformer"}
    model = fitting.get(loss, usual) if recipe.model == "auto" else recipe.model
    given = recipe.loss or models.LOSS.get(model) or loss
    if given not in LOSSES:
        raise unknown("loss", given, LOSSES)
    fits = given == loss or (given in ("squared", "squared-hinge") and loss == "hinge")  # −1/+1: classifiers, too
    what = {"squared": "numbers", "hinge": "-1/+1", "next-token": "tokens"}.get(loss, f"{clients.classes} classes")
    need(
        fits,
        f"{model} with {given} loss does not fit {recipe.data}, whose targets are {what}; "
        f"use {fitting.get(loss, 'softmax or mlp')}.",
    )
    seen = len(clients) - held_out(len(clients), recipe.unseen)
    cohort = seen if recipe.cohort is None else recipe.cohort
    known: dict[str, Any] = {"model": model, "loss": given, "clients": len(clients), "cohort": cohort}
    if recipe.partition == "auto":
        made = clients.about.get("partition")
        known["partition"] = made["name"] if isinstance(made, dict) else "natural"
    return _resolved(recipe, method).replace(**known | _noise(recipe, seen, cohort))


def privacy(recipe: Recipe) -> Privacy | None:
    """How private the run is; None where it is not."""
    given = {name.removeprefix("dp_"): v for name in _PRIVATE if (v := getattr(recipe, name)) is not None}
    if recipe.dp_noise is None and recipe.dp_epsilon is None:
        need(not given, f"dp_{next(iter(given), '')} does nothing without dp_noise or dp_epsilon; give one of them.")
        return None
    return Privacy(**given)


def _sample_rates(method: Method, clients: Clients) -> np.ndarray:
    """[m] q_i, the share of a client's samples that is in a batch, where a coin decides on each."""
    sizes = batch_sizes(method)
    need(bool(sizes), f"dp_unit = sample needs a method with a solver of minibatches; {method.name} has none.")
    rates: np.ndarray = np.minimum(1.0, max(sizes) / clients.counts("train"))
    return rates


def samples_of(recipe: Recipe, clients: Clients) -> privacy_account.Samples | None:
    """What the accounting of samples needs to know, as if these clients were all that there are and were always asked;
    None where samples are not what is private."""
    asked = privacy(recipe)
    if asked is None or asked.unit != "sample":
        return None
    draws = privacy_account.CohortDraws(len(clients), len(clients), recipe.sampling, recipe.seed)
    return samples_with(asked, draws, method_of(recipe), clients, recipe.local_steps, recipe.rounds)


def samples_with(
    asked: Privacy,
    draws: privacy_account.CohortDraws,
    method: Method,
    clients: Clients,
    local_steps: int | None,
    rounds: int,
) -> privacy_account.Samples:
    text = (
        "dp_unit = sample accounts for a number of gradients in a round that is known beforehand; give --local-steps."
    )
    need(local_steps is not None, text)
    assert local_steps is not None
    rates = _sample_rates(method, clients)
    return privacy_account.samples_with_noise(asked, draws, rates, local_steps, rounds)


def _noise(recipe: Recipe, clients: int, cohort: int) -> dict[str, Any]:
    """The noise for an ε of clients that was asked for; of samples, each client finds its own. A run that goes on keeps
    its noise, and spends more."""
    asked = privacy(recipe)
    if recipe.dp_epsilon is None or asked is None or asked.unit == "sample" or not 1 <= cohort <= clients:
        return {}
    draws = privacy_account.CohortDraws(clients, cohort, recipe.sampling, recipe.seed)
    return {"dp_epsilon": None, "dp_noise": privacy_account.with_noise(asked, draws, recipe.rounds).noise}


def fingerprint(full: Recipe, clients: Clients) -> str:
    """What a checkpoint must agree with to be continued: the data, all settings of a complete recipe that are not free,
    and what is frozen in its model."""
    kept = {name: value for name, value in full.values().items() if not SETTINGS[name].free}
    kept = {name: value for name, value in kept.items() if name not in _LATER or value != SETTINGS[name].default}
    found = hashlib.sha256(json.dumps(kept, sort_keys=True).encode())
    for array in (clients.x.cpu().numpy(), clients.y.cpu().numpy(), clients.bounds):
        found.update(np.ascontiguousarray(array).data)
    found.update(frozen_weights(full, clients).encode())
    return found.hexdigest()


def goal(traffic: Traffic) -> Goal:
    """What may end a run before its last round."""
    return Goal(None if traffic.budget is None else parse_bytes(traffic.budget), traffic.target_accuracy)


def natural_loss(clients: Clients) -> str:
    """The loss that fits the targets: numbers, −1/+1, classes or sequences of tokens."""
    if clients.y.dim() > 1:
        return "next-token"
    return "squared" if clients.classes is None else "hinge" if clients.y.is_floating_point() else "cross-entropy"


def model_of(full: Recipe, clients: Clients) -> nn.Module:
    outputs = 1 if clients.classes is None or clients.y.is_floating_point() else clients.classes
    with torch_seed(full.seed):  # a model with a frozen part starts as it is built
        return models.build(full.model, tuple(clients.x.shape[1:]), outputs, tokens=clients.y.dim() > 1)


def parameters(recipe: Recipe, clients: Clients) -> int:
    """How many parameters of a recipe's model are trained; no memory is taken for them."""
    with torch.device("meta"):
        return sum(p.numel() for p in model_of(complete(recipe, clients), clients).parameters() if p.requires_grad)


def neighbours_of(recipe: Recipe) -> Neighbours | None:
    """What the personal models of a recipe's method remember."""
    return method_of(recipe).neighbours


def frozen_weights(full: Recipe, clients: Clients) -> str:
    """A hash of what is frozen in the model of a complete recipe; empty where nothing is."""
    with torch.device("meta"):
        all_trained = all(p.requires_grad for p in model_of(full, clients).parameters())
    return "" if all_trained else digest(model_of(full, clients))


def attackers_of(wanted: Attack | None, attackers: float | None) -> float:
    """The share of hostile clients: as asked for, or a fifth where there is an attack."""
    if attackers is None:
        return 0.0 if wanted is None else 0.2
    return attackers
