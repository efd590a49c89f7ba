"""`sartor bench natural`: advice held against what people would use instead, on data whose clients are real.

For each set and each seed a quarter of every client's rows is held back. `advise` sees the rest only (it cuts it anew,
inside, to choose), and what it recommends, every other candidate with its best settings, and the references of
scikit-learn, trained on the same rest, are then scored on the held-back quarter: nested, so that nothing is chosen by
what it is scored by.

A folder of one's own tables has a bench.toml: a table for each set, with file, target, client_key, and as far as needed
task, title and anchors (what others have published).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ..data import Clients, Dataset, load
from ..errors import need, unknown
from ..judge.significance import cut_factor
from ..run.complete import split
from ..run.recipe import Recipe
from ..storage import read_json, read_toml, write_json
from .advise import advise
from .ahead import in_order, spare_cores
from .references import REFERENCES, reference

HELD_BACK = 0.25
LINEAR = ("pooled-linear", "local-linear", "own-intercept-linear", "shrunk-linear")  # what the advice must not lose to
NATURAL: dict[str, dict[str, Any]] = {
    "heart": {
        "title": "Heart disease, 4 hospitals",
        "file": "heart.csv",
        "target": "disease",
        "client_key": "hospital",
        "anchors": ["FLamby (2022), mean over the same hospitals: best federated 0.731, local 0.730"],
    },
    "contraception": {
        "title": "Contraception, 60 districts",
        "file": "contraception.csv",
        "target": "use",
        "client_key": "district",
    },
    "exam": {
        "title": "Exam, 65 schools",
        "file": "exam.csv",
        "target": "normexam",
        "client_key": "school",
        "task": "regression",
    },
    "hsb82": {
        "title": "High School and Beyond, 160 schools",
        "file": "hsb82.csv",
        "target": "mAch",
        "client_key": "school",
        "task": "regression",
    },
    "school": {
        "title": "School, 139 schools",
        "file": "school.csv",
        "target": "score",
        "client_key": "school",
        "task": "regression",
    },
    "har": {"title": "HAR, 30 people", "file": "har.npz", "read": "windows"},
    "shakespeare": {"title": "Shakespeare, 40 roles", "file": "tinyshakespeare.txt", "read": "next character"},
}
_KEYS = ("title", "file", "target", "client_key", "task", "anchors", "read", "minimum")
_ROLES, _CHARACTERS, _BEFORE = 40, 400, 4  # of Shakespeare: roles, places in each, characters that a place is told by


@dataclass
class Score:
    """One candidate or reference on one set: its mean score for each seed."""

    name: str
    federated: bool
    each: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return float(np.mean(self.each))

    @property
    def error(self) -> float:
        """The standard error of the mean: quarters share rows with what is learnt from the others (see advise.py)."""
        if len(self.each) < 2:
            return float("inf")
        return float(np.std(self.each, ddof=1) * np.sqrt(cut_factor(len(self.each), HELD_BACK)))


@dataclass
class Benched:
    """What was found on one set."""

    name: str
    about: Mapping[str, Any]
    metric: str
    clients: int
    rows: int
    scores: dict[str, Score] = field(default_factory=dict)  # "advised" is what was recommended, whatever it was
    recommended: list[str] = field(default_factory=list)  # by seed
    seconds: list[float] = field(default_factory=list)  # of the advice, by seed
    against_local: list[float] = field(default_factory=list)  # the advised over `local`, by seed

    def plain(self) -> dict[str, Any]:
        """What natural.json holds of it."""
        rows = {
            s.name: {"federated": s.federated, "mean": s.mean, "standard_error": _finite(s.error), "each": s.each}
            for s in self.scores.values()
        }
        known = {k: getattr(self, k) for k in ("metric", "clients", "rows", "recommended", "seconds", "against_local")}
        return {**known, "title": self.about["title"], "anchors": list(self.about.get("anchors", ())), "scores": rows}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def with_error(mean: str, error: float | None) -> str:
    """A mean as it is printed, with its standard error; one seed has none."""
    return mean if error is None or not np.isfinite(error) else f"{mean} ± {error:.3f}"


def sets_of(place: str) -> tuple[Path, dict[str, dict[str, Any]]]:
    """The folder of "natural", or of one's own tables, and its sets."""
    if place == "natural":
        folder = Path(os.environ.get("SARTOR_DATA", "")) / "natural"
        need(
            bool(os.environ.get("SARTOR_DATA")) and folder.is_dir(),
            "the natural sets are looked for in $SARTOR_DATA/natural, and there is no such folder; set SARTOR_DATA, or "
            "name a folder of tables with a bench.toml.",
        )
        return folder, {k: v for k, v in NATURAL.items() if (folder / v["file"]).exists()}
    folder = Path(place)
    found = read_toml(folder / "bench.toml", "A folder of tables has a bench.toml: a table for each set.")
    for name, about in found.items():
        need(isinstance(about, dict), f"{folder / 'bench.toml'}: {name} must be a table; got {about!r}.")
        for key in about:
            if key not in _KEYS:
                raise unknown(f"key of {name} in {folder / 'bench.toml'}", key, _KEYS)
        for key in ("file", "target", "client_key"):
            need(key in about, f"{folder / 'bench.toml'}: {name} lacks {key}.")
    return folder, {name: {"title": name, **about} for name, about in found.items()}


def read_set(folder: Path, about: Mapping[str, Any]) -> tuple[Dataset, Recipe]:
    """A set's data, and what is common to all runs on it."""
    path = folder / str(about["file"])
    minimum = int(about.get("minimum", 8))  # a quarter of eight rows is two
    if about.get("read") == "windows":
        return _windows(path), Recipe(data=about["title"], target="activity", client_key="subject", minimum=minimum)
    if about.get("read") == "next character":
        return _next_character(path), Recipe(data=about["title"], target="next", client_key="role", minimum=minimum)
    target, key, task = str(about["target"]), str(about["client_key"]), str(about.get("task", "auto"))
    made = Recipe(data=str(path), target=target, client_key=key, task=task, minimum=minimum)
    return load(path, target=target, client_key=key, task=task), made


def _windows(path: Path) -> Dataset:
    """Statistics of each channel of each window: mean, deviation, extremes, quartiles, mean step, root mean square."""
    import pyarrow as pa

    with np.load(path) as found:
        x, y, subject = found["x"].astype(np.float64), found["y"], found["subject"]
    each = {
        "mean": x.mean(2),
        "std": x.std(2),
        "min": x.min(2),
        "max": x.max(2),
        "low": np.quantile(x, 0.25, axis=2),
        "high": np.quantile(x, 0.75, axis=2),
        "step": np.abs(np.diff(x, axis=2)).mean(2),
        "rms": np.sqrt((x**2).mean(2)),
    }
    columns = {f"{name}{i}": values[:, i] for name, values in each.items() for i in range(x.shape[1])}
    table = pa.table({**columns, "activity": [f"a{v}" for v in y], "subject": [f"p{v:02}" for v in subject]})
    return load(table, target="activity", client_key="subject")


def _next_character(path: Path) -> Dataset:
    """The roles that speak most: the next character, told by those before it."""
    import pyarrow as pa

    spoken: dict[str, str] = {}
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        role, _, words = block.partition(":\n")
        spoken[role] = spoken.get(role, "") + words + " "
    most = sorted(spoken, key=lambda r: -len(spoken[r]))[:_ROLES]
    rows: dict[str, list[str]] = {"role": [], "next": [], **{f"before{i + 1}": [] for i in range(_BEFORE)}}
    draw = np.random.default_rng(0)
    for role in most:
        text = spoken[role].lower()
        for at in np.sort(draw.choice(np.arange(_BEFORE, len(text)), _CHARACTERS, replace=False)):
            rows["role"].append(role)
            rows["next"].append(_named(text[at]))
            for i in range(_BEFORE):
                rows[f"before{i + 1}"].append(_named(text[at - 1 - i]))
    return load(pa.table(rows), target="next", client_key="role", task="classification")


def _named(character: str) -> str:
    return {" ": "space", "\n": "line"}.get(character, character)


def bench(
    place: str,
    only: Sequence[str] = (),
    seeds: int = 5,
    minutes: float = 3.0,
    folder: Path | None = None,
    references: Sequence[str] = tuple(REFERENCES),
) -> Iterator[tuple[dict[str, Benched], str]]:
    """Advise on every set with every seed; yields (all so far, what is being done). With a folder, what an earlier call
    has finished there is not done again."""
    where, sets = sets_of(place)
    for name in only:
        if name not in sets:
            raise unknown("set", name, sets)
    for name in references:
        if name not in REFERENCES:
            raise unknown("reference", name, REFERENCES)
    need(seeds >= 1 and minutes > 0, f"bench needs at least 1 seed and minutes > 0; got {seeds} and {minutes}.")
    found: dict[str, Benched] = {}
    for name, about in ((n, a) for n, a in sets.items() if not only or n in only):
        dataset, base = read_set(where, about)
        for seed in range(seeds):
            yield found, f"{name}, seed {seed}"
            kept = None if folder is None else folder / name / f"seed-{seed}.json"
            if kept is not None and kept.exists():
                one = read_json(kept)
            else:
                one = _one(dataset, base.replace(seed=seed), minutes, references)
                if kept is not None:
                    write_json(kept, one)
            _add(found, name, about, dataset, one)
        if folder is not None:
            write_json(folder / "natural.json", {n: b.plain() for n, b in found.items()})
    yield found, ""


def _one(dataset: Dataset, base: Recipe, minutes: float, references: Sequence[str]) -> dict[str, Any]:
    """One set with one seed: mean scores by name."""
    base = base.replace(parts=[0.92 - HELD_BACK, 0.08, HELD_BACK])
    with TemporaryDirectory() as folder:
        *_, (advice, _, _) = advise(base, dataset, minutes=minutes, trials=12, folder=Path(folder))
    seconds = advice.seconds
    clients = split(base.replace(partition="natural", parts=[1 - HELD_BACK, 0.0, HELD_BACK]), dataset)
    weights = np.ones(len(clients)) if dataset.classes is not None else clients.counts("test").astype(float)
    scores = {name: _mean(each, weights) for name, each in advice.test.items()}
    calls = [partial(_reference, name, clients, base.seed, weights) for name in references]
    others = dict(zip(references, in_order(calls, spare_cores()), strict=True))
    return {
        "clients": len(clients),
        "recommended": advice.recommended,
        "settings": advice.best(advice.recommended).settings,
        "seconds": round(seconds, 1),
        "scores": scores,
        "references": others,
        "words": advice.words(),
    }


def _reference(name: str, clients: Clients, seed: int, weights: np.ndarray) -> float:
    given = reference(name, clients, seed).scores
    return _mean(given["accuracy"] if clients.classes is not None else 1 - 2 * given["loss"], weights)


def _mean(each: np.ndarray, weights: np.ndarray) -> float:
    there = ~np.isnan(each)
    return float((each[there] * weights[there]).sum() / weights[there].sum())


def _add(
    found: dict[str, Benched], name: str, about: Mapping[str, Any], dataset: Dataset, one: Mapping[str, Any]
) -> None:
    metric = "R²" if dataset.classes is None else "accuracy"
    on = found.setdefault(name, Benched(name, about, metric, one["clients"], len(dataset)))
    all_of_them = {"advised": one["scores"][one["recommended"]], **one["scores"]}
    for kind, federated in ((all_of_them, True), (one["references"], False)):
        for who, value in kind.items():
            on.scores.setdefault(who, Score(who, federated)).each.append(value)
    on.recommended.append(one["recommended"])
    on.seconds.append(one["seconds"])
    on.against_local.append(all_of_them["advised"] - one["scores"]["local"])


def verdicts(found: Mapping[str, Benched]) -> dict[str, dict[str, Any]]:
    """For each set: the advised against the best linear reference and the best federated candidate, and its rank."""
    out = {}
    for name, on in found.items():
        ours = on.scores["advised"]
        rivals = [on.scores[r] for r in LINEAR if r in on.scores]
        best = max(rivals, key=lambda s: s.mean, default=None)
        candidates = (s for s in on.scores.values() if s.federated and s.name != "advised")
        others = [s for s in candidates if len(s.each) == len(ours.each)]
        first = max(others, key=lambda s: s.mean)
        out[name] = {
            "advised": ours.mean,
            "best_linear": None if best is None else best.name,
            "over_best_linear": None if best is None else _over(ours, best),
            "best_candidate": first.name,
            "over_best_candidate": _over(ours, first),
            "rank": 1 + sum(s.mean > ours.mean for s in others),
            "of": len(others),
        }
    return out


def _over(ours: Score, theirs: Score) -> dict[str, float | None]:
    """The mean difference over seeds, and its standard error."""
    d = Score("", True, [a - b for a, b in zip(ours.each, theirs.each, strict=True)])
    return {"mean": d.mean, "standard_error": _finite(d.error)}
