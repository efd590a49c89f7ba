"""A site's own choices, as its owner makes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Dataset, load
from ..errors import need, one_of
from ..run.recipe import Recipe
from .limits import SHARES, SiteLimits
from .terms import shared, unsummed


@dataclass(frozen=True)
class SiteConfig:
    """A site's own choices: its file, what may leave, and what it lets a server ask."""

    data: str
    target: str | None = None
    client_key: str | None = None  # none: the whole file is one client
    share: str = "each"
    recipe: str | None = None  # play this recipe and no other
    leave_out: tuple[str, ...] = ()  # columns that are not looked at
    text: tuple[str, ...] = ()  # columns of free text, which are embedded here
    limits: SiteLimits = SiteLimits()
    task: str = "auto"  # classification or regression, where the target does not show it
    start: str = ""  # names this start of the site by its owner: each start lets it join one new run

    def __post_init__(self) -> None:
        one_of("a site", "share metrics", self.share, SHARES)
        need(
            self.share == "none" or not self.limits.private,
            "a site that limits epsilon sends no scores, as they have no noise: start it with --share metrics=none.",
        )
        methods = self.limits.methods
        reasons = [unsummed(name) for name in methods]  # refuses names that nobody has
        need(
            self.limits.least_sites is None or not methods or "" in reasons,
            "a site's least-sites needs secure aggregation, and no method in its allowed-methods goes with it: "
            f"{reasons[0] if reasons else ''}",
        )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> SiteConfig:
        """From plain values, as `asdict` gives them."""
        columns = {name: tuple(values.get(name, ())) for name in ("leave_out", "text")}
        return cls(**{**values, **columns, "limits": SiteLimits(**values["limits"])})

    @property
    def mine(self) -> Recipe | None:
        """The site's own recipe, as a federation plays it."""
        return None if self.recipe is None else shared(Recipe.load(Path(self.recipe)))

    def read(self) -> Dataset:
        """The table."""
        given = {
            "target": self.target,
            "client_key": self.client_key,
            "task": None if self.task == "auto" else self.task,
            "drop": list(self.leave_out) or None,
            "text": list(self.text) or None,
        }
        options = {k: v for k, v in given.items() if v is not None}
        need(Path(self.data).exists(), f"there is no file {self.data}.")
        found = load(self.data, **options)
        return found if found.keys is not None else replace(found, keys=np.zeros(len(found), dtype=np.int64))
