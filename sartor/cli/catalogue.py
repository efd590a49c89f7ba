"""What there is, by kind: the rows behind `sartor list`."""

from __future__ import annotations

from collections.abc import Callable

from .. import aggregators, compressors, data, methods, models, solvers
from ..errors import unknown
from ..papers import reproduce
from ..tasks import task
from ..wrappers import attacks

Row = dict[str, str]


def first_line(thing: object) -> str:
    """What a thing says of itself in its docstring's first line."""
    return (thing.__doc__ or "").strip().splitlines()[0].rstrip(".")


KINDS: dict[str, Callable[[], list[Row]]] = {
    "methods": lambda: [{"name": n, "paper": e.paper, "line": e.line} for n, e in methods.NAMES.items()],
    "attacks": lambda: [
        {"name": n, "paper": a.paper, "site": a.site, "line": first_line(a)} for n, a in attacks.NAMES.items()
    ],
    "aggregators": lambda: [{"name": n, "paper": a.paper, "line": first_line(a)} for n, a in aggregators.NAMES.items()],
    "compressors": lambda: [{"name": n, "paper": c.paper, "line": first_line(c)} for n, c in compressors.NAMES.items()],
    "partitions": lambda: [{"name": n, "paper": "-", "line": first_line(p)} for n, p in data.NAMES.items()],
    "datasets": lambda: [{"name": n, "paper": "-", "line": line} for n, line in data.DATASETS.items()],
    "models": lambda: [{"name": n, "paper": "-", "line": line} for n, (line, _) in models.NAMES.items()],
    "losses": lambda: [{"name": n, "paper": "-", "line": first_line(f)} for n, f in task.LOSSES.items()],
    "recipes": lambda: [{"name": n, "paper": p, "line": t} for n, p, t in reproduce.titles()],
    "solvers": lambda: [{"name": n, "paper": "-", "line": first_line(s)} for n, s in solvers.NAMES.items()],
}


def rows(kind: str) -> list[Row]:
    """The rows of a kind; an unknown kind is refused with the nearest known ones."""
    if kind not in KINDS:
        raise unknown("kind of thing to list", kind, KINDS)
    return KINDS[kind]()
