"""The errors a user can meet. One form: what was asked, what is allowed, what was got, what to do."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable


class SartorError(ValueError):
    """Something in the request is wrong. The message is one line and says what to do; the command line exits with 2."""


class Diverged(SartorError):
    """A run produced NaN or Inf. Names the round, the client and the likely cause."""


class OverBudget(SartorError):
    """A round takes more bytes than there are to spend."""


class Silent(SartorError):
    """Nobody answered for many rounds. What was saved is kept; the run can go on."""


def unknown(kind: str, name: object, known: Iterable[str], do: str = "") -> SartorError:
    """An error for a name that is not known, with the nearest known ones: unknown("method", "flam", [...])."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}."
    return SartorError(f"unknown {kind} {str(name)!r}: {hint}{' ' + do if do else ''}")


def reason(error: Exception) -> str:
    """Why a file could not be read or written, in the system's words where it has some."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def need(condition: bool, message: str) -> None:
    """Refuse with `message` unless `condition` holds."""
    if not condition:
        raise SartorError(message)


def positive(owner: str, **values: float) -> None:
    """Refuse every value that is not a finite number above zero: "FLAME needs rho > 0; got -1.0."."""
    for name, value in values.items():
        need(math.isfinite(value) and value > 0, f"{owner} needs {name} > 0; got {value}.")


def not_negative(owner: str, **values: float) -> None:
    """Refuse every value that is not a finite number of at least zero."""
    for name, value in values.items():
        need(math.isfinite(value) and value >= 0, f"{owner} needs {name} >= 0; got {value}.")


def one_of(owner: str, field: str, value: object, allowed: Iterable[str]) -> None:
    """Refuse a value that is not among the allowed words."""
    allowed = list(allowed)
    need(value in allowed, f"{owner} needs {field} to be one of {', '.join(map(repr, allowed))}; got {value!r}.")


def readable(text: object, most: int = 300) -> str:
    """Somebody else's text, fit for a terminal: what cannot be printed is written out, and long texts are cut."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)[: 10 * most])
    return shown if len(shown) <= most else f"{shown[: most * 3 // 4]} ... {shown[-most // 8 :]}"
