"""The errors a user can meet. One form: what was asked, what is allowed, what was got, what to do."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Literal

LONGEST = 1000  # characters of a message
# The refusals that people meet most are explained on one page, under a heading each; tests/documents follows every one.
EXPLAINED = "docs/troubleshooting.md"
Topic = Literal[
    "the-target", "mixed-columns", "missing-values", "encoding", "client-names", "small-clients", "new-rows",
    "data-sets", "extras", "divergence", "memory", "resuming", "a-used-folder", "names-and-settings",
]  # fmt: skip
_HARMLESS = "\n\t\xa0\u200c\u200d"  # not printable by Unicode's rules, but names and tables hold them


def printable(text: str) -> str:
    """The text with whatever a terminal would obey (escape sequences, bells, changes of direction) as visible escapes;
    lines stay lines."""
    return "".join(c if c.isprintable() or c in _HARMLESS else ascii(c)[1:-1] for c in text)


def readable(text: str, most: int = LONGEST) -> str:
    """The text as one line for a terminal: printable, and cut in its middle to at most `most` characters."""
    if len(text) > 4 * most:  # nobody looks at the middle of a text of megabytes
        text = f"{text[: 2 * most]} ... {text[-2 * most :]}"
    line, tail = printable(" ".join(text.split())), most // 3
    return line if len(line) <= most else f"{line[: most - tail - 5]} ... {line[-tail:]}"


def see(topic: Topic) -> str:
    """The end of a message: where the page explains it."""
    return f" See {EXPLAINED}#{topic}."


class SartorError(ValueError):
    """Something in the request is wrong. The message is one readable line and says what to do; the command line exits
    with 2.

        >>> try:
        ...     st.FLAME(lam=-1.0)
        ... except st.SartorError as error:
        ...     print(error)
        FLAME needs lam > 0; got -1.0.
    """

    def __init__(self, message: str) -> None:
        super().__init__(readable(message))


class Diverged(SartorError):
    """A run produced NaN or Inf. Names the round, the client and the likely cause.

    For example:

        >>> try:
        ...     result = st.fit(st.FLAME(solver=st.SGD(lr=1e30)), st.models.layers(64, 16, 10), clients, rounds=2)
        ... except st.Diverged as error:
        ...     print(str(error).split(":")[0])
        diverged in round 1
    """


class OverBudget(SartorError):
    """A round takes more bytes than there are to spend.

    For example:

        >>> try:
        ...     result = st.fit(st.FedAvg(), model, clients, rounds=2, traffic=st.Traffic(budget="1KB"))
        ... except st.OverBudget as error:
        ...     print(str(error).split(";")[0])
        one round takes 31200 bytes up and down, more than the budget of 1000
    """


class Silent(SartorError):
    """Nobody answered for many rounds. What was saved is kept; the run can go on.

    For example:

        >>> nobody = st.Federation(drop=0.99, patience=2)
        >>> try:
        ...     result = st.fit(st.FedAvg(), model, clients, rounds=5, federation=nobody)
        ... except st.Silent as error:
        ...     print(str(error).split(".")[0])
        nobody answered in 2 rounds in a row, up to round 2 (patience 2)
    """


def unknown(kind: str, name: object, known: Iterable[str], do: str = "") -> SartorError:
    """An error for a name that is not known, with the nearest known ones: unknown("method", "flam", [...])."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}."
    return SartorError(f"unknown {kind} {str(name)!r}: {hint}{' ' + do if do else ''}")


def reason(error: Exception) -> str:
    """Why a file could not be read or written, in the system's words where it has some."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


class Refused(SartorError):
    """A request that a site does not take: why, in the one word that the server is told, and what is said at the site.
    `limit`: which of the site's own limits."""

    def __init__(self, why: str, text: str, limit: str = "") -> None:
        super().__init__(text)
        self.why, self.limit = why, limit


def need(condition: bool, message: str) -> None:
    """Refuse with `message` unless `condition` holds."""
    if not condition:
        raise SartorError(message)


def positive(owner: str, **values: float) -> None:
    """Refuse every value that is not a finite number above zero: "FLAME needs rho > 0; got -1.0."."""
    for name, value in _single(values):
        need(math.isfinite(value) and value > 0, f"{owner} needs {name} > 0; got {value}.")


def not_negative(owner: str, **values: float) -> None:
    """Refuse every value that is not a finite number of at least zero."""
    for name, value in _single(values):
        need(math.isfinite(value) and value >= 0, f"{owner} needs {name} >= 0; got {value}.")


def _single(values: Mapping[str, float]) -> list[tuple[str, float]]:
    """Those that are one number: those in a column (core.Method.columns) were checked one by one."""
    return [(name, value) for name, value in values.items() if not getattr(value, "ndim", 0)]


def one_of(owner: str, field: str, value: object, allowed: Iterable[str]) -> None:
    """Refuse a value that is not among the allowed words."""
    allowed = list(allowed)
    need(value in allowed, f"{owner} needs {field} to be one of {', '.join(map(repr, allowed))}; got {value!r}.")
