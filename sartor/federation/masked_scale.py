"""One scale for all sites' numbers through secure aggregation: the server sees sums, and no site's statistics.

    key     each site's key for the run
    sums    values, their sums and their squares by column, under masks  →  mean and spread
    apart   how many clients are how far from that mean, under masks     →  the factor by which all spreads grow

(data/tables/summed_moments.py has the formulas.)

Each sum is opened once, as those of a round are (masks.py). A site that does not answer is left out of a sum, and the
others are asked once more; those of a sum that was to be opened are kept, so that a server that was killed asks for
the same one again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.tables.columns import numbers_at
from ..data.tables.moments import Moments
from ..data.tables.summed_moments import BINS, MomentSums, distances, factor, pooled_of, sums_of
from ..errors import SartorError, Silent
from ..exact_sums import LIMBS, from_words, to_words
from ..run.recipe import Recipe
from ..storage import read_json, write_json
from . import pooled_scale
from .masks import ServerMasks
from .pooled_scale import Scale
from .rounds.masking import KEY, SECURE, SEED, SEED_BYTES, SUM
from .rounds.messages import Damaged, Message
from .table_schema import Schema
from .table_schema import columns_of as schema_columns

KEYS, SUMS, APART = "key", "sums", "apart"
SUMMED = "summed.json"  # at the server: of which sites each sum is
Asking = Callable[[Mapping[str, Message], int, Callable[[str, Message], object]], dict[str, Message]]


# --- at a site --------------------------------------------------------------------------------------------------------


def statistics(part: str, each: Moments, recipe: Recipe, schema: Schema, scale: Any) -> dict[str, np.ndarray]:
    """What a site adds to a sum: arrays of one row, of all its clients together."""
    if part == SUMS:
        total = sums_of(each)
        return {
            "counts": np.array([total.counts], dtype=np.int64),
            "sums": to_words(total.sums)[None],
            "squares": to_words(total.squares)[None],
        }
    agreed = pooled_scale.given(recipe, schema, scale)
    assert agreed is not None
    wide = len(agreed.mean)
    columns = Moments(*(values[:, :wide] for values in each))
    return {"apart": distances(columns, agreed.mean, agreed.spread, _scaled(schema, wide))[None]}


def _scaled(schema: Schema, wide: int) -> np.ndarray:
    found: np.ndarray = numbers_at(schema_columns(schema)).scaled[:wide]
    return found


# --- at the server ----------------------------------------------------------------------------------------------------


@dataclass
class MaskedScale:
    """The server's half, before the first round."""

    run: str
    recipe: Recipe
    schema: Schema
    told: Mapping[str, Mapping[str, Any]]  # what each site is told besides
    rows: Mapping[str, Sequence[int]]  # training rows of each site's clients
    masks: ServerMasks
    ask: Asking  # messages, how many must be answered, how an answer is read
    folder: Path
    say: Callable[[str], None]

    def settled(self) -> Scale:
        """The scale of all."""
        self._keys()
        wide, targets = pooled_scale.widths(self.recipe, self.schema)
        shapes = {"counts": (wide + targets,)} | dict.fromkeys(("sums", "squares"), (wide + targets, LIMBS))
        found, sites = self._total(SUMS, shapes, {})
        total = MomentSums(found["counts"].tolist(), from_words(found["sums"]), from_words(found["squares"]))
        rows = sum(sum(self.rows[site]) for site in sites)
        self._believe(all(0 <= n <= rows for n in total.counts) and min(total.squares) >= 0)
        mean, spread = pooled_of(total)
        of_target = [float(mean[-1]), float(spread[-1])] if targets else [0.0, 1.0]
        scale: Scale = {"mean": mean[:wide].tolist(), "spread": spread[:wide].tolist(), "target": of_target}
        if not wide:
            return scale
        bins, sites = self._total(APART, {"apart": (BINS,)}, {"scale": scale})
        clients = sum(len(self.rows[site]) for site in sites)
        self._believe(bool((bins["apart"] >= 0).all()) and int(bins["apart"].sum()) == clients)
        return scale | {"spread": (spread[:wide] * factor(bins["apart"])).tolist()}

    def _believe(self, good: bool) -> None:
        if not good:
            raise SartorError(
                "the sites' statistics add up to what cannot be: one of them sends nonsense, and secure aggregation "
                'hides which. Play without it to find out, or with columns = "own".'
            )

    def _keys(self) -> None:
        def read(site: str, reply: Message) -> None:
            try:
                self.masks.take(site, reply.note.get(KEY))
            except SartorError as e:
                raise Damaged(str(e)) from e

        self.ask({site: self._message(site, KEYS, {}) for site in self.told}, self.masks.least, read)

    def _message(self, site: str, part: str, more: Mapping[str, Any]) -> Message:
        return Message("measure", self.run, note={**self.told[site], "part": part, SUM: part, **more})

    def _total(
        self, part: str, shapes: Mapping[str, tuple[int, ...]], more: Mapping[str, Any]
    ) -> tuple[dict[str, np.ndarray], list[str]]:
        """The opened sum of a part, and of which sites it is."""
        place = self.folder / SUMMED
        kept: dict[str, list[str]] = read_json(place) if place.exists() else {}
        sites = kept.get(part) or sorted(self.masks.keys)

        def read(site: str, reply: Message) -> None:
            good = reply.arrays.keys() == shapes.keys() and all(
                v.dtype == np.int64 and v.shape == (1, *shapes[k]) for k, v in reply.arrays.items()
            )
            if not good:
                raise Damaged("other sums than were asked for")

        while len(sites) >= self.masks.least:
            which = hashlib.sha256("\n".join(sites).encode()).hexdigest()[:16]
            note = {SECURE: self.masks.told(sites), SUM: f"{part} {which}", **more}
            found = self.ask({site: self._message(site, part, note) for site in sites}, 0, read)
            if len(found) == len(sites):
                write_json(place, kept | {part: sites})
                opening = note | {SUM: f"open {part} {which}", "open": True}
                seeds = self.ask({s: self._message(s, part, opening) for s in sites}, len(sites), _is_seed)
                each = [self.masks.opened(found[s].arrays, seeds[s].arrays[SEED].tobytes()) for s in sites]
                return {k: sum((rows[k][0] for rows in each), np.zeros(shapes[k], np.int64)) for k in shapes}, sites
            if part in kept:
                break
            missing = [site for site in sites if site not in found]
            sites = [site for site in sites if site in found]
            self.say(f"the sites' statistics lack those of {', '.join(missing)}")
        text = f"{len(sites)} sites answer, and a sum of statistics needs {self.masks.least}, those that began it"
        raise Silent(f"{text}. Start them.")


def _is_seed(site: str, reply: Message) -> None:
    seed = reply.arrays.get(SEED)
    if seed is None or seed.dtype != np.uint8 or seed.shape != (1, SEED_BYTES):
        raise Damaged("no key of a mask")
