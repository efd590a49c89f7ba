"""What a site lets a server ask of it, whatever the server's recipe says: it holds at every stage.

A server that keeps to the rules does not notice these limits. One that does not learns no more from a site than a few
rounds of messages over many rows tell. The site says which limit a refusal is about in full, the server hears its name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import Refused, need, unknown
from ..run.recipe import About, Recipe, setting

SHARES = ("each", "mean", "none")  # which scores leave: each client's, their mean, none

if TYPE_CHECKING:
    from ..core import Method
    from ..data import Clients

_ROUNDS = 10_000  # of a run, where the site does not say more
_COPIES = 8  # of a client's model in memory at a time: its states, the slots of its store, its message, a gradient


class OverLimit(Refused):
    """A request that goes beyond what this site allows; the server is told the limit's name."""

    def __init__(self, limit: str, text: str) -> None:
        super().__init__("limit", f"{text} ({limit.replace('_', '-')})", limit)


@dataclass(frozen=True)
class SiteLimits:
    """A site's own limits; each is an option of `sartor client`."""

    least_rows: int = setting(
        10,
        "training rows that must be behind every message of a client, and behind its statistics of a column",
        least=1,
    )
    least_scored: int = setting(5, "rows that must be behind a score; a score of fewer is not sent", least=1)
    score_digits: int = setting(4, "significant digits of the scores that are sent", least=1)
    most_rounds: int | None = setting(
        None, "rounds that a run may have or be continued to [as first agreed; at most 10000]", least=1
    )
    most_steps: int = setting(10_000, "gradients that a client may be asked for in a round", least=1)
    most_parameters: int = setting(100_000_000, "parameters of a model", least=1)
    most_clients: int = setting(100_000, "clients of the whole federation", least=1)
    most_bytes: int = setting(4 << 30, "bytes of memory for this site's rows and models", least=1 << 20)
    most_epsilon: float | None = setting(
        None, "epsilon that a run may spend of a client's privacy [any, also without noise]"
    )
    most_epsilon_total: float | None = setting(None, "epsilon that all runs of this kit together may spend [any]")
    epsilon_delta: float = setting(1e-5, "the delta at which those are counted")
    allowed_methods: str | None = setting(None, "methods that a recipe may play, with commas between them [any]")
    allowed_models: str | None = setting(None, "models that a recipe may train, with commas between them [any]")
    least_sites: int | None = setting(
        None, "sites that must be in every sum: secure aggregation is required, of so many at least [not]", least=3
    )

    def __post_init__(self) -> None:
        for name in ("most_epsilon", "most_epsilon_total"):
            value = getattr(self, name)
            good = value is None or (_is_number(value) and 0 < value < math.inf)
            need(good, f"a site's {name.replace('_', '-')} is a number above 0; got {value!r}.")
        run, total = self.most_epsilon, self.most_epsilon_total
        text = f"a site's most-epsilon of a run is at most its most-epsilon-total of all; got {run} and {total}."
        need(run is None or total is None or run <= total, text)
        for name in ("allowed_methods", "allowed_models"):
            value = getattr(self, name)
            good = value is None or (isinstance(value, str) and all(_listed(value)))
            need(good, f"a site's {name.replace('_', '-')} are names with commas between them; got {value!r}.")
        good = _is_number(self.epsilon_delta) and 0 < self.epsilon_delta < 1
        need(good, f"a site's epsilon-delta is a number in (0, 1); got {self.epsilon_delta!r}.")
        for name, about in LIMITS.items():
            if "int" not in about.type:
                continue
            value = getattr(self, name)
            good = (value is None and about.default is None) or (type(value) is int and value >= (about.least or 1))
            need(good, f"a site's {name.replace('_', '-')} is a whole number of at least {about.least}; got {value!r}.")

    # --- what is asked before the first round -------------------------------------------------------------------------

    @property
    def methods(self) -> list[str]:
        """Names of the methods that are allowed; empty: any."""
        return _listed(self.allowed_methods) if self.allowed_methods else []

    def check_recipe(self, recipe: Recipe, mine: Recipe | None) -> None:
        """Refuse more rounds than allowed; and, where the site has no recipe of its own that says so, columns and
        numbers that tell more than need be."""
        for name, asked in (("allowed_methods", recipe.method), ("allowed_models", recipe.model)):
            allowed = getattr(self, name)
            known = allowed is None or asked in _listed(allowed) or asked.partition("(")[0] in _listed(allowed)
            _hold(name, known, f"{name.removeprefix('allowed_')[:-1]} {asked}, allowed are {allowed}")
        if self.least_sites is not None:
            summed = recipe.secure_sites if recipe.secure_aggregation else 1
            text = f"sums of {summed} sites, at least {self.least_sites} are needed (secure_aggregation, secure_sites)"
            _hold("least_sites", summed >= self.least_sites, text)
        most = self.most_rounds or (_ROUNDS if mine is None else mine.rounds)
        _hold("most_rounds", recipe.rounds <= most, f"{recipe.rounds} rounds, at most {most} are allowed")
        if mine is not None:
            often = recipe.evaluate_every >= mine.evaluate_every
            _hold("recipe", often, f"scores every {recipe.evaluate_every} rounds, agreed on is {mine.evaluate_every}")
            return
        for name, allowed in (("columns", ("own", "pooled")), ("dtype", ("float32",))):
            value = getattr(recipe, name)
            _hold(name, value in allowed, f"{name} = {value!r} is taken from this site's own --recipe only")

    def check_longer(self, recipe: Recipe, before: Recipe) -> None:
        """Refuse to play a run for longer, or to score it more often, than was agreed on at its beginning."""
        if self.most_rounds is None:
            text = f"{recipe.rounds} rounds of a run of {before.rounds}; allow more with --most-rounds"
            _hold("most_rounds", recipe.rounds <= before.rounds, text)
        often = recipe.evaluate_every >= before.evaluate_every
        _hold("evaluations", often, f"scores every {recipe.evaluate_every} rounds in place of {before.evaluate_every}")

    @property
    def private(self) -> bool:
        """Whether this site has a say in how private a run is."""
        return self.most_epsilon is not None or self.most_epsilon_total is not None

    def check_size(self, clients: int, rows: int, features: int, width: int) -> None:
        """Refuse a federation or a table that is too large, before memory is taken for it."""
        _hold("most_clients", clients <= self.most_clients, f"{clients} clients, at most {self.most_clients}")
        size = rows * features * width
        _hold("most_bytes", size <= self.most_bytes, f"a table of {size} bytes, at most {self.most_bytes}")

    def check_rows(self, own: Clients) -> None:
        """Refuse parts that leave a client with few training rows."""
        least = int(own.counts("train").min())
        text = f"a client would train on {least} rows, at least {self.least_rows} are needed"
        _hold("least_rows", least >= self.least_rows, text)

    def check_model(self, parameters: int, own: Clients) -> None:
        """Refuse a model that is too large, before memory is taken for it."""
        most = self.most_parameters
        _hold("most_parameters", parameters <= most, f"{parameters} parameters, at most {most} are allowed")
        memory = parameters * len(own) * own.x.element_size() * _COPIES
        _hold("most_bytes", memory <= self.most_bytes, f"models of {memory} bytes, at most {self.most_bytes}")

    def check_batches(self, method: Method, own: Clients) -> None:
        """Refuse steps on few rows: a message after one such step, or after one that is far longer than those before
        it, tells them."""
        from ..solvers import batch_sizes  # not before: it brings PyTorch

        least = int(own.counts("train").min())
        for batch in batch_sizes(method):
            text = f"steps on {min(batch, least)} rows, at least {self.least_rows} are needed"
            _hold("least_rows", min(batch, least) >= self.least_rows, text)


LIMITS: dict[str, About] = {
    f.name: About(**{**vars(f.metadata["about"]), "group": "limits", "type": str(f.type)}) for f in fields(SiteLimits)
}


def policy(path: Path, given: Mapping[str, Any]) -> tuple[SiteLimits, str | None]:
    """The limits in a policy file with those that were given as options, and which scores may leave: each, mean, none.
    One that stands in both places is refused."""
    from ..storage import read_toml  # not before: it brings PyTorch

    found = read_toml(path, f"there is no policy {path}.")
    share = found.pop("share", None)
    for name in found:
        if name not in LIMITS:
            raise unknown("rule in the policy", name, [*LIMITS, "share"])
    twice = sorted(found.keys() & given.keys())
    text = f"{', '.join(twice)} stands in {path} and is given as an option; say it once."
    need(not twice, text)
    need(share is None or share in SHARES, f"share in {path} is each, mean or none; got {share!r}.")
    return SiteLimits(**found | dict(given)), share


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _hold(limit: str, good: bool, text: str) -> None:
    if not good:
        raise OverLimit(limit, f"the server asks for {text}")
