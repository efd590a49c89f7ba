"""Client keys of a table: names as numbers, and names that are one under two spellings."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np

from ...errors import SartorError, one_of, see
from ..partitions.label_blind import in_order

SPELLINGS = ("refuse", "apart", "together")
_IGNORED = str.maketrans("", "", " \t\n\u00a0.'’`_-")


def coded(numbers: np.ndarray, names: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Numbers [n] of names, and the names, in the order in which people expect names."""
    order = in_order(list(names))
    place = np.empty(len(names), dtype=np.int64)
    place[order] = np.arange(len(names))
    return place[numbers], tuple(names[i] for i in order)


def plainly(name: str) -> str:
    """A name without what people write now so, now so: case, spaces, dots, hyphens, apostrophes."""
    return unicodedata.normalize("NFKC", name).casefold().translate(_IGNORED)


def sort_out(
    table: str, column: str, keys: np.ndarray, names: tuple[str, ...], spellings: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Refuse names that differ in spelling only, keep them apart, or take them as one (under the most frequent)."""
    one_of("a table", "spellings", spellings, SPELLINGS)
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        groups.setdefault(plainly(name) or name, []).append(i)
    double = [group for group in groups.values() if len(group) > 1]
    if not double or spellings == "apart":
        return keys, names
    counts = np.bincount(keys, minlength=len(names))
    if spellings == "refuse":
        said = " and ".join(f"{names[i]!r} ({counts[i]} rows)" for i in double[0])
        more = f", and {len(double) - 1} more such" if len(double) > 1 else ""
        raise SartorError(
            f"{table}: {said} in {column} look like one client under two spellings{more}. Mend them, or say "
            f"spellings=together or spellings=apart (--spellings).{see('client-names')}"
        )
    best = {max(group, key=lambda i: counts[i]): group for group in groups.values()}
    kept = sorted(best)
    place = np.empty(len(names), dtype=np.int64)
    for new, i in enumerate(kept):
        place[best[i]] = new
    return place[keys], tuple(names[i] for i in kept)
