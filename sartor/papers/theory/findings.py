"""What a check finds: a table of theory against measurement, curves to draw, and a sentence that says what it means."""

from __future__ import annotations

import csv
import io
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from ...errors import need, positive

SURE = 4.0  # standard errors
ROUNDING = 1e-7  # what two ways to compute the same number may differ by, relatively
COLUMNS = ("what", "relation", "theory", "measured", "standard_error", "agrees", "note")


@dataclass(frozen=True)
class Row:
    """One number: what the theory says, and what the library measured."""

    what: str
    theory: float
    measured: float
    error: float = 0.0  # the measurement's standard error; 0: there is no chance in it
    relation: str = "="  # the measurement equals the theory, or is at most ("<=") or at least (">=") that
    within: float = 0.0  # how far a fit may be off, relatively
    absolute: float = 1e-12  # how far any number may be off
    factor: float | None = None  # of a place on a grid: by which factor it may be off
    erratum: bool = False  # the paper's own form, which is not expected to agree
    note: str = ""

    @property
    def agrees(self) -> bool:
        if not math.isfinite(self.measured):
            return False
        if self.factor is not None:
            return self.theory / self.factor <= self.measured <= self.theory * self.factor
        size = max(abs(self.theory), abs(self.measured))
        slack = SURE * self.error + (self.within + ROUNDING) * size + self.absolute
        below, above = self.measured <= self.theory + slack, self.measured >= self.theory - slack
        return {"=": below and above, "<=": below, ">=": above}[self.relation]

    def record(self) -> dict[str, Any]:
        """The row of table.json and table.csv."""
        note = "; ".join(filter(None, ["as printed in the paper" if self.erratum else "", self.note]))
        values = (self.what, self.relation, self.theory, self.measured, self.error, self.agrees, note)
        return dict(zip(COLUMNS, (_plain(v) for v in values), strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return bool(value) if isinstance(value, bool | np.bool_) else value


@dataclass(frozen=True)
class Curve:
    """A line (theory) or dots with error bars (measurement)."""

    label: str
    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    error: Sequence[float] | np.ndarray | None = None
    dots: bool = False
    colour: int = 0
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One picture: curves, and places on the x-axis that are worth a word."""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    marks: Sequence[tuple[float, str]] = ()
    log: str = ""  # "x", "y" or "xy"


@dataclass(frozen=True)
class Finding:
    """A check's answer."""

    rows: list[Row]
    panels: list[Panel]
    verdict: str
    outside: list[str] = field(default_factory=list)  # which of the theorem's assumptions the parameters leave

    @property
    def agrees(self) -> bool:
        """Whether everything agrees that is expected to: the paper's misprints are not."""
        return all(r.agrees for r in self.rows if not r.erratum)

    @property
    def sentence(self) -> str:
        """The verdict, and where the parameters leave the theorem."""
        label = f" (outside the theorem's assumptions: {'; '.join(self.outside)})" if self.outside else ""
        return self.verdict + label

    def csv(self) -> str:
        """The text of table.csv."""
        out = io.StringIO()
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(r.record() for r in self.rows)
        return out.getvalue()


class Check(ABC):
    """A frozen dataclass of parameters; `look` computes theory and measurement.

    `sartor theory --list` shows the first line of its docstring.
    """

    name: ClassVar[str]
    paper: ClassVar[str]

    @abstractmethod
    def look(self) -> Finding:
        """Do it. The same parameters give the same numbers."""

    def report(self, finding: Finding) -> dict[str, Any]:
        """The content of table.json."""
        return {
            "name": self.name,
            "paper": self.paper,
            "parameters": {f.name: _plain(getattr(self, f.name)) for f in fields(self)},  # type: ignore[arg-type]
            "verdict": finding.verdict,
            "outside": finding.outside,
            "agrees": finding.agrees,
            "rows": [r.record() for r in finding.rows],
        }


@dataclass(frozen=True)
class RandomProblems(Check):
    """A check on several random problems, each played with many replicas of its federation."""

    settings: int = 5
    replicas: int = 400
    seed: int = 0

    def __post_init__(self) -> None:
        positive(self.name, settings=self.settings)
        need(self.replicas >= 2, f"{self.name} needs replicas >= 2.")

    def seeds(self) -> range:
        """One for each problem."""
        return range(100 * self.seed, 100 * self.seed + self.settings)


def tally(rows: Sequence[Row]) -> str:
    """How many numbers agree, in words."""
    own = [r for r in rows if not r.erratum]
    good = sum(r.agrees for r in own)
    few = f"{good} of {len(own)} numbers agree"
    return few + (f" within {SURE:g} standard errors" if any(r.error for r in own) else "")


def holds(rows: Sequence[Row]) -> str:
    """The first word of a verdict."""
    return "Holds" if all(r.agrees for r in rows if not r.erratum) else "DOES NOT AGREE"


def scatter(rows: list[Row]) -> Panel:
    """Measurement against theory, relative, one dot for each row."""
    kept = [r for r in rows if r.error > 0 and not r.erratum]
    z = [(r.measured - r.theory) / r.error for r in kept]
    x = np.arange(1, len(kept) + 1)
    lines = [Curve("±4 standard errors", [1, len(kept)], [v, v], colour=6, dashed=True) for v in (4.0,)]
    lines.append(Curve("", [1, len(kept)], [-4.0, -4.0], colour=6, dashed=True))
    dots = Curve("each number of the table", x, z, dots=True)
    return Panel("Distance from theory", "row of the table", "standard errors", [*lines, dots])
