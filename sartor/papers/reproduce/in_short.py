"""What comes out of a table and what does not, in a few sentences, from its numbers alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .claims import AUTHORS, cases, our_columns
from .experiment import HIGH, Claim
from .values import AGREES, HIGHER, LOWER, NOT_RUN

QUICK = "Too few rounds and seeds to say what comes out: this size shows that it runs."
REDUCED = "The size is reduced, which moves the numbers: orders of methods can be read off, distances cannot."


def in_short(table: Mapping[str, Any], claims: Sequence[Claim]) -> str:
    """Two or three sentences: how many printed numbers and how many claims come out, in each of our columns."""
    if table["quick"]:
        return QUICK
    numbers = REDUCED if is_reduced(table) else _numbers(table)
    return " ".join(filter(None, [numbers, _claims(table, claims), _not_run(table)]))


def is_reduced(table: Mapping[str, Any]) -> bool:
    """Whether something took the place of what the experiment says, so that distances mean little."""
    return bool(table["rounds"] or table.get("network") or table.get("reduced"))


def _numbers(table: Mapping[str, Any]) -> str:
    parts = []
    for column, word in our_columns(table):
        said = Counter(c[_verdict(column)] for c in table["cells"])
        if total := said[AGREES] + said[HIGHER] + said[LOWER]:
            off = [f"{said[kind]} {where}" for kind, where in ((HIGHER, "above"), (LOWER, "below")) if said[kind]]
            parts.append(f"{word} {said[AGREES]} of {total}" + (f" ({' and '.join(off)} the paper's)" if off else ""))
    return f"Printed numbers that come out: {'; '.join(parts)}." if parts else ""


def _claims(table: Mapping[str, Any], claims: Sequence[Claim]) -> str:
    """Orders of methods, the paper's and ours, each by how many of its cases hold."""
    parts = []
    for column, word in our_columns(table):
        found = [(c.measure, cases(table["cells"], c, order, column)) for c in claims for order in c.orders]
        held = [(sum(case.holds(m not in HIGH) for case in some), len(some)) for m, some in found if some]
        if held:
            every, none = sum(h == n for h, n in held), sum(h == 0 for h, _ in held)
            most = sum(n > h > n / 2 for h, n in held)
            few = len(held) - every - most - none
            named = ((every, "in every case"), (most, "in most"), (few, "in half or fewer"), (none, "in none"))
            parts.append(f"{word}, of {len(held)}, " + ", ".join(f"{count} {where}" for count, where in named if count))
    return f"Orders of methods that come out: {'; '.join(parts)}." if parts else ""


def _not_run(table: Mapping[str, Any]) -> str:
    parts = []
    for column, word in our_columns(table):
        said = [str(c[_verdict(column)]) for c in table["cells"]]
        if lacking := sum(v.startswith(("failed", NOT_RUN)) for v in said):
            parts.append(f"{word} {lacking} of {sum(v != 'None' for v in said)}")
    return f"Cells that have no number: {'; '.join(parts)}." if parts else ""


def _verdict(column: str) -> str:
    return "verdict_authors" if column == AUTHORS else "verdict"
