"""An experiment of a paper, as a TOML file says it: what is common to all runs, each method's settings as the paper
writes them, what the authors' code does differently, a quick size, and cells beyond those with a printed number."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ...errors import SartorError, need, unknown
from .lines import line_of

FOLDER = Path(__file__).parent.parent / "recipes"
Table = dict[str, Any]
OWN = (
    "title",
    "about",
    "published",
    "cells",
    "quick",
    "reduced",
    "remarks",
    "unequal",
    "mended",
    "questions",
    "figure",
    "like",
    "without",
    "paper",
)  # what `like` does not take over


# What a claim is about. `values.measured` says what they are; those that are not in HIGH are best if low.
Measure = Literal[
    "accuracy", "spread", "loss_var", "training_loss", "training_curve", "accuracy_curve", "wobble", "inside", "bytes"
]
HIGH = ("accuracy", "accuracy_curve", "inside")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Reading(_Part):
    """How a number is read off a run's history."""

    round: Literal["last", "best", "best-test"] = "last"  # best: on validation data; best-test is an oracle
    first_round: int = 1  # the first round that may be the best
    accuracy: Literal["mean", "pooled"] = "mean"  # over clients, or over their test samples
    choice: Literal["validation", "test"] = "validation"  # personal or global model; on test data it is an oracle
    bytes: Literal["bytes", "floats"] = "bytes"  # what is counted as one byte


class Rule(_Part):
    """Settings for cells of a kind."""

    when: Table  # a cell's keys and their values, or lists of them
    run: Table = {}
    settings: Table = {}
    tune: Table = {}


class Authors(_Part):
    """What the authors' code does, where it differs from the paper."""

    why: str
    read: Reading = Reading()
    tune: Literal["validation", "test", "none"] = "validation"  # the data on which the grid's best is chosen
    run: Table = {}
    methods: dict[str, Table] = {}
    datasets: dict[str, Table] = {}
    rules: list[Rule] = []
    partitions: dict[str, str] = {}  # as printed → as the code cuts
    attacks: dict[str, str] = {}


class Quick(_Part):
    """The size that takes about a minute."""

    seeds: list[int] = [0]
    tune: bool = False
    run: Table = {}
    datasets: dict[str, Table] = {}
    only: dict[str, Any] = {}


class Reduced(_Part):
    """A size between quick and full in which a claim can hold or fail: verdicts rest on it where the full size is not
    there. Its settings take the place of the experiment's; what a cell itself or a rule says stands."""

    what: str  # what was reduced, for the reader
    seeds: list[int] = [0, 1, 2]
    only: list[Table] = []  # kinds of cells; a cell of any kind is in
    run: Table = {}
    datasets: dict[str, Table] = {}
    methods: dict[str, Table] = {}
    tune: dict[str, Table] = {}  # in place of the experiment's grid of that method
    tune_seeds: int = 1  # how many of the seeds a grid is searched with
    rules: list[Rule] = []
    read: Reading | None = None  # in place of the experiment's
    authors: bool = False  # whether the authors' column is run, too


class Claim(_Part):
    """Something a paper says of its results, or a question of ours, and how it can be checked in a table."""

    text: str
    where: str = ""
    orders: list[list[Table]] = []  # each: kinds of cells, the one that should be best first
    of: Table = {}  # only among cells of this kind
    measure: Measure = "accuracy"
    claimed: list[float] = []  # of each order the difference that the paper gives, in points
    least: float | None = None  # every cell of this kind has at least so many percent
    within: float | None = None  # "similar", "comparable": the second is at most so many points better
    also: list[Measure] = []  # other measures in which the orders are to hold, too
    most: bool = False  # "most", "usually": more than half of the comparisons decide
    fall: list[Table] = []  # two kinds of cells: orders are of how far a number falls from the first to the second
    fair: str = ""  # an experiment in which the same cells have equal gradients and grids
    theory: list[str] = []  # checks of `sartor theory` that decide it
    undecidable: str = ""  # why no order of cells can decide it here


class Experiment(_Part):
    """One file of recipes/."""

    name: str
    title: str
    paper: str = ""  # none: that of the published files
    about: str = ""
    like: str | None = None  # another experiment, whose settings are taken over,
    without: list[str] = []  # but for these tables
    published: list[str]  # files with the papers' numbers
    seeds: list[int] = [0, 1, 2, 3, 4]
    tune_seeds: int | None = None  # how many of the seeds a grid is searched with; none: all
    read: Reading = Reading()
    run: Table = {}
    methods: dict[str, Table] = {}
    tune: dict[str, Table] = {}
    datasets: dict[str, Table] = {}
    stand_ins: dict[str, str] = {}  # data sets that are not here: in what words another takes their place
    rules: list[Rule] = []
    authors: Authors | None = None
    quick: Quick = Quick()
    reduced: Reduced | None = None
    cells: list[Table] = []
    figure: Literal["robustness", "fairness", "rounds", "accuracy", "weights", "agreement"] | None = None
    remarks: list[str] = []
    unequal: str = ""  # what methods that are compared do not have alike: gradients, who trains, settings tried
    mended: list[str] = []  # mistakes of ours that were in earlier numbers: before and after
    questions: list[Claim] = []  # our own
    folder: Path = FOLDER


class Faults:
    """Turns a mistake at a place of a file into one line that names the place."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text

    def at(self, place: Sequence[str | int], error: object) -> SartorError:
        number = line_of(self.text, place)
        where = f"{self.path}, line {number}" if number else f"{self.path}"
        return SartorError(f"{where}: {'.'.join(map(str, place))}: {str(error).strip()}")


def names() -> list[str]:
    """The experiments that there are."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str | Path) -> tuple[Experiment, Faults]:
    """The experiment of that name, or of a TOML file of one's own; only its form is checked."""
    path = Path(name)
    if path.suffix != ".toml":
        if str(name) not in names():
            raise unknown("experiment", name, names(), "Or give the path of a .toml file.")
        path = FOLDER / f"{name}.toml"
    text, values = read(path)
    faults = Faults(path, text)
    need("name" not in values and "folder" not in values, f"{path}: name and folder are those of the file itself.")
    for key in values:
        if key not in _fields([]):
            raise faults.at([key], unknown("key", key, _fields([])))
    if (like := values.get("like")) is not None and not (path.parent / f"{like}.toml").exists():
        raise faults.at(["like"], unknown("experiment", like, [p.stem for p in path.parent.glob("*.toml")]))
    return _checked(_with_base(path), path, faults), faults


def _with_base(path: Path) -> Table:
    """A file's values on top of those that it is like."""
    values = read(path)[1]
    if "like" not in values:
        return values
    without = values.get("without", [])
    skipped = (*OWN, *(without if isinstance(without, list) else []))
    base = {k: v for k, v in _with_base(path.parent / f"{values['like']}.toml").items() if k not in skipped}
    return merged(base, values)


def read(path: Path) -> tuple[str, Table]:
    """A TOML file's text and values."""
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except OSError as e:
        raise SartorError(f"cannot read {path}: {e.strerror}.") from e
    except (ValueError, RecursionError) as e:
        raise SartorError(f"{path} is not valid TOML: {e}.") from e


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> Table:
    """Tables on top of tables: inner ones are merged, everything else is replaced."""
    out = dict(base)
    for key, value in more.items():
        both = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
        out[key] = merged(out[key], value) if both else value
    return out


def _checked(values: Mapping[str, Any], path: Path, faults: Faults) -> Experiment:
    folder = path.parent
    known: Table = {"name": path.stem, "folder": folder}
    if "published" not in values:
        known["published"] = [path.stem] if (folder / "published" / path.name).exists() else []
    if (
        isinstance(values.get("authors"), Mapping) and "read" in values
    ):  # the authors read as we do, but for what differs
        values = merged(values, {"authors": merged({"read": values["read"]}, values["authors"])})
    try:
        made = Experiment.model_validate({**values, **known})
    except ValidationError as e:
        first = e.errors()[0]
        place = list(first["loc"])
        if first["type"] == "extra_forbidden":
            raise faults.at(place, unknown("key", place[-1], _fields(place[:-1]))) from e
        got = "" if first["type"] == "missing" else f"; got {first['input']!r}"
        raise faults.at(place, f"{first['msg']}{got}.") from e
    for i, file in enumerate(made.published):
        if not (folder / "published" / f"{file}.toml").exists():
            there = [p.stem for p in (folder / "published").glob("*.toml")]
            raise faults.at(["published", i], unknown("file of published numbers", file, there))
    return made


def _fields(place: Sequence[str | int]) -> list[str]:
    """The keys that a table of the file may have."""
    inner: dict[str, type[BaseModel]] = {"read": Reading, "authors": Authors, "quick": Quick, "rules": Rule}
    inner |= {"questions": Claim, "reduced": Reduced}
    words = [p for p in place if isinstance(p, str)]
    kind = inner[words[-1]] if words else Experiment
    return [f for f in kind.model_fields if f not in ("name", "folder")]
