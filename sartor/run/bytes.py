"""What goes over the wire: how many bytes, and when there have been enough of them or of accuracy.

Bytes are those of all clients that were asked, both ways. A message that is not compressed counts with its numbers
alone; a compressed one with all that `compressors.encode` writes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core import State
from ..errors import OverBudget, SartorError, need

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_bytes(text: str | int) -> int:
    """How many bytes "4MB", "500 kB", "1.5MiB" or "328020" are."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(text))
    if match is None or match.group(2).upper() not in _UNITS:
        raise SartorError(f"a budget is a number of bytes, as in 328020, 500kB, 4MB or 1GiB; got {str(text)!r}.")
    count = float(match.group(1)) * _UNITS[match.group(2).upper()]
    need(0.5 < count < 2**63, f"a budget is at least 1 byte, and below 2^63; got {text!r}.")
    return round(count)


def written(count: float) -> str:
    """Bytes to read: "4.12 MB"."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} bytes"


def count_bytes(way: str, messages: State, sent: State) -> tuple[int, int, State]:
    """The bytes of what was sent one way, the most that one client's next message can take, and the messages without
    the note on it."""
    if way not in messages:
        shapes = [v.shape for v in sent.values()]
        rows = max((shape[0] for shape in shapes), default=0)
        each = sum(  # an expanded (broadcast) row is sent to each
            math.prod(shape[1:]) * v.element_size() for shape, v in zip(shapes, sent.values(), strict=True) if shape[0]
        )
        return rows * each, each, messages
    note = messages[way]
    rest = {k: v for k, v in messages.items() if k != way}
    return int(note[:, 0].sum()), int(note[:, 1].max()) if len(note) else 0, rest


@dataclass(frozen=True)
class Goal:
    """When a run may stop before its last round."""

    budget: int | None = None  # bytes, up and down together, that are never exceeded
    target: float | None = (
        None  # what validation data let expect of the chosen models (judge.validated): accuracy, or R²
    )

    def __post_init__(self) -> None:
        need(self.budget is None or self.budget >= 1, f"a budget is at least 1 byte; got {self.budget}.")
        need(
            self.target is None or (math.isfinite(self.target) and self.target <= 1),
            f"a target accuracy is at most 1; got {self.target}.",
        )

    def check(self, spent: int, rounds: int) -> None:
        """Refuse a budget that is gone: with its first round, or before a run goes on."""
        if self.budget is None or spent <= self.budget:
            return
        what = "one round takes" if rounds == 1 else f"{rounds} rounds have taken"
        raise OverBudget(
            f"{what} {spent} bytes up and down, more than the budget of {self.budget}; raise --budget, ask fewer "
            "clients with --cohort, or compress more (sartor list compressors)."
        )

    def affords(self, spent: int, more: int) -> bool:
        """Whether another round of at most so many bytes fits."""
        return self.budget is None or spent + more <= self.budget

    def reached(self, history: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """The first evaluated round that met the target; None: not yet, or there is none."""
        for line in history if self.target is not None else ():
            value = line["validation"]
            if value is not None and value >= self.target:
                return line
        return None
