"""The cells of an experiment: those with a printed number, from the published files, and those that the experiment adds
(points of figures). A cell says what is run by its keys, and what is read off the runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from ... import spelling
from ...data.known_sets.readers import SOURCES
from ...data.tables.own_data import SUFFIXES
from ...run.recipe import SETTINGS
from .experiment import Experiment, Table, read

# What a cell says beside its keys.
READ = ("model", "budget", "target")
NUMBER = ("value", "printed", "std", "spread", "variance", "unit")
REMARK = ("row", "where", "available", "doubtful", "why")
WHOLE = ("settings", "tune", "run", "label")  # of an experiment's own cells: not lists of values, but tables and a name
UNITS = {"fraction": 1.0, "percent": 100.0}


@dataclass(frozen=True)
class PaperCell:
    """One number of a table, or one point of a figure."""

    keys: Table  # dataset, partition, method and what else makes the run: attack, lam, ...
    model: str
    unit: str = "fraction"
    paper: float | None = None
    printed: str | None = None  # what stands in the table in place of a number
    paper_std: float | None = None  # over runs
    spread: float | None = None  # over clients
    variance: float | None = None  # over clients
    budget: float | None = None  # accuracy within so many bytes
    target: float | None = None  # bytes until this accuracy
    label: str | None = None  # of an experiment's own cells
    row: str = ""
    where: str = ""
    doubtful: str | None = None  # why the printed number is in doubt
    differs: str | None = None  # why the data are not the same
    missing: str | None = None  # why it cannot be run here
    settings: Table = field(default_factory=dict)
    tune: Table = field(default_factory=dict)
    run: Table = field(default_factory=dict)

    @property
    def combination(self) -> str:
        """What its runs are the same for: all that is not read off them afterwards."""
        own = [self.keys, self.settings, self.tune, self.run]
        return json.dumps(own, sort_keys=True, default=str)

    @property
    def name(self) -> str:
        """In a few words."""
        return self.row or ", ".join([*in_words(self.keys), self.model])


def all_cells(experiment: Experiment) -> list[PaperCell]:
    """Every cell, in the order of the files."""
    found: list[PaperCell] = []
    for file in experiment.published:
        found += _published(experiment, read(experiment.folder / "published" / f"{file}.toml")[1])
    return found + [c for table in experiment.cells for c in _own(experiment, table)]


def about(experiment: Experiment) -> list[Table]:
    """What the published files say of themselves."""
    return [read(experiment.folder / "published" / f"{file}.toml")[1] for file in experiment.published]


def papers(experiment: Experiment) -> str:
    """The papers that it is of."""
    return experiment.paper or ", ".join(dict.fromkeys(f["paper"] for f in about(experiment)))


def _published(experiment: Experiment, file: Mapping[str, Any]) -> Iterator[PaperCell]:
    differs: Mapping[str, str] = file.get("differs", {})
    for raw in file.get("cells", []):
        keys = {k: v for k, v in raw.items() if k not in (*READ, *NUMBER, *REMARK)}
        yield PaperCell(
            keys,
            raw["model"],
            unit=raw.get("unit", file["unit"]),
            paper=raw.get("value"),
            printed=raw.get("printed"),
            paper_std=raw.get("std"),
            spread=raw.get("spread"),
            variance=raw.get("variance"),
            budget=raw.get("budget"),
            target=raw.get("target"),
            row=raw["row"],
            where=raw.get("where", file["where"]),
            doubtful=raw.get("why"),
            differs=experiment.stand_ins.get(keys["dataset"]) or differs.get(base(keys["dataset"])),
            missing=missing(experiment, keys),
        )


def _own(experiment: Experiment, table: Mapping[str, Any]) -> Iterator[PaperCell]:
    """The product of a table's lists."""
    whole = {k: v for k, v in table.items() if k in WHOLE}
    rest = {k: v if isinstance(v, list) else [v] for k, v in table.items() if k not in (*WHOLE, "where", "unit")}
    seen: set[str] = set()
    for values in product(*rest.values()):
        keys = plain_attack(dict(zip(rest, values, strict=True)))
        read_off = {k: keys.pop(k) for k in READ if k in keys}
        label = whole.get("label")
        row = ", ".join([*([label] if label else []), *in_words(keys), read_off["model"]])
        if row in seen:  # no attack and no attackers are the same thing
            continue
        seen.add(row)
        yield PaperCell(
            keys,
            unit=table.get("unit", "fraction"),
            row=row,
            where=table.get("where", ""),
            differs=experiment.stand_ins.get(keys["dataset"]),
            missing=missing(experiment, keys),
            **read_off,
            **whole,
        )


def in_words(keys: Mapping[str, Any]) -> Iterator[str]:
    """A cell's keys as a reader would say them: a bare number says which setting it is of."""
    for key, value in keys.items():
        if key == "attackers":
            if value:
                yield f"{value:.0%} attackers"
        elif key == "attack" and value == "none":
            yield "no attack"
        else:
            yield value if isinstance(value, str) else f"{key} = {str(value).lower()}"


def plain_attack(keys: Table) -> Table:
    """No attack and no attackers are the same thing."""
    if keys.get("attack", "none") == "none" or keys.get("attackers") == 0:
        return keys | {k: v for k, v in (("attack", "none"), ("attackers", 0.0)) if k in keys}
    return keys


def base(dataset: str) -> str:
    """The data set without its settings: "synthetic" of "synthetic(0,0)"."""
    return dataset.partition("(")[0]


def is_ours(dataset: str) -> bool:
    """Whether the library has such a data set; a file of one's own counts."""
    own = dataset.lower().endswith(SUFFIXES)
    return own or spelling.find("dataset", SOURCES, spelling.read("data set", dataset)[0]) is not None


def missing(experiment: Experiment, keys: Mapping[str, Any]) -> str | None:
    """Why a cell cannot be run; None: it can."""
    if not is_ours(keys["dataset"]) and keys["dataset"] not in experiment.stand_ins:
        return f"{keys['dataset']} is not one of our data sets"
    if "compression" in keys and "compress" not in SETTINGS:
        return "compression is not in this version"
    return None


def matches(keys: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a cell has these values. A value also stands for all of its settings: labels for labels(k=2)."""

    def same(have: object, want: object) -> bool:
        return have == want or str(have) == str(want) or str(have).startswith(f"{want}(")

    for key, want in wanted.items():
        if not any(same(keys.get(key), w) for w in (want if isinstance(want, list) else [want])):
            return False
    return True


def outline(cell: PaperCell) -> Table:
    """All that `only` and a claim may ask for."""
    label = {} if cell.label is None else {"label": cell.label}
    return cell.keys | {"model": cell.model, "where": cell.where} | label
