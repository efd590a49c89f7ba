"""What every engine must give: a table of runs, what the local engine makes of each, and a comparison.

The clients are three hospitals with a table each (sites.tables): three sites with one client, or one site with all.
An engine plays `case.recipe()` (on `data()["all"]`, or with a site for each of `NAMES`), its models and its history are
read from the folders that it leaves, and `agrees` compares them with the local engine's: bit for bit at the same chunk
(how many clients are computed together), and to 1e-6 at the chunk that the local engine would choose itself.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from faulty import noise
from faulty.faults import Fault, installed
from frozen_models import in_processes, known
from sites import NAMES, tables
from torch import Tensor

from sartor.core import Engine, Stage, State
from sartor.run.assemble import assemble
from sartor.run.complete import clients_of
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe
from sartor.storage import load_tensors

TOLERANCE = 1e-6  # where another number of clients is computed together, sums are taken in another order
METHODS: dict[str, dict[str, Any]] = {
    "flame": {},
    "pfedme": {"R": 2},
    "ditto": {},
    "lp-proj-2": {"d_sub": 5},
    "fedamp": {},  # every client is sent a model of its own
    "apfl": {},
}
OWN_PARTS = "ditto, own intercepts"
COMPRESSED = {"compress": "top-k(k=0.1)", "compress_down": "int8"}
FROZEN = {f"{method}, {model}": (method, model) for model in known() for method in ("ditto", "fedrod")}
_COMMON: dict[str, Any] = {"model": "mlp(6)", "rounds": 5, "evaluate_every": 2, "partition": "natural", "seed": 3}


@dataclass(frozen=True)
class Case:
    """One run."""

    name: str
    values: dict[str, Any] = field(hash=False)
    fault: Fault | None = None  # a client that raises, or is slow, in one round

    def recipe(self, **own: Any) -> Recipe:
        """What is played; of three sites without the fields that say where all data are."""
        return Recipe(**_COMMON | self.values | own)

    def whole(self, **own: Any) -> Recipe:
        """The same with all clients in one place."""
        return self.recipe(data=str(data()["all"]), target="outcome", client_key="hospital", **own)

    def environment(self) -> dict[str, str]:
        """For processes of an engine's own: there the same client fails as within `disturbed`, and models of tests are
        known."""
        private = self.values.keys() & {"dp_noise", "dp_epsilon"}
        found = (self.fault.environment() if self.fault else {}) | (in_processes() if self.name in FROZEN else {})
        return found | (noise.environment(_COMMON["seed"]) if private else {})

    @property
    def means(self) -> bool:
        """Whether a server knows means of scores and nobody's own."""
        return bool(self.values.get("secure_aggregation"))


def _cases() -> Iterator[Case]:
    for method, settings in METHODS.items():
        values = {"method": method, "settings": settings}
        yield Case(method, values)
        yield Case(f"{method}, two of three", values | {"cohort": 2})
    yield Case(OWN_PARTS, {"method": "ditto", "personal": "bias"})
    for method in ("flame", "ditto"):
        yield Case(f"{method}, compressed", {"method": method} | COMPRESSED)
    for name, (method, model) in FROZEN.items():
        yield Case(name, {"method": method, "model": model})
    for method in ("flame", "fedamp"):
        values = {"method": method, "settings": METHODS[method]}
        yield Case(f"{method}, one raises", values, Fault(client=1, round=2))
        yield Case(f"{method}, one is slow", values, Fault(client=1, round=2, seconds=0.3))


def _deployed() -> Iterator[Case]:
    """What a real federation has besides; the noise is a simulation's, handed to the sites."""
    client = {"dp_noise": 1.0, "dp_clip": 0.5, "dp_where": "client"}
    sample = {"dp_epsilon": 6.0, "dp_clip": 0.5, "dp_unit": "sample", "local_steps": 4}
    masked = {"secure_aggregation": True}
    for method in ("flame", "ditto", "fedamp"):
        yield Case(f"{method}, client privacy", {"method": method} | client)
    for method in ("flame", "ditto", "mr-mtl"):
        yield Case(f"{method}, patient privacy", {"method": method} | sample)
    for method in ("flame", "ditto", "lp-proj-2"):
        values = {"method": method, "settings": METHODS[method]}
        yield Case(f"{method}, secure aggregation", values | masked)
    yield Case("ditto, common grid", {"method": "ditto", "compress": "grid"} | masked)
    distributed = {"dp_noise": 1.0, "dp_clip": 0.5, "compress_down": "int8"}
    yield Case("flame, distributed noise", {"method": "flame"} | distributed | masked)
    yield Case("mr-mtl, everything", {"method": "mr-mtl", "compress": "projection(k=0.5)"} | sample | masked)


CASES = {case.name: case for case in _cases()}
DEPLOYED = {case.name: case for case in _deployed()}
PLAIN = [*METHODS, OWN_PARTS, *FROZEN, "flame, compressed", "ditto, compressed"]  # all take part, nobody fails
PARTIAL = [name for name in CASES if "two of three" in name]
RAISES = [name for name in CASES if "raises" in name]
SLOW = [name for name in CASES if "slow" in name]


@functools.cache
def data() -> dict[str, Path]:
    """Each site's file, and "all" with every row; gone when this process ends."""
    folder = tempfile.mkdtemp(prefix="conformance-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return tables(Path(folder))


@dataclass(frozen=True)
class Outcome:
    """What a run leaves."""

    personal: np.ndarray | None  # [m, d]
    common: np.ndarray | None  # [d]
    history: list[dict[str, Any]]


def of_run(folder: Path) -> Outcome:
    """Of a run with all clients in one place: the folder that `sartor run --out` leaves."""
    place = folder / "models" / "personal.safetensors"
    if not place.exists():
        return Outcome(None, _common(folder), _history(folder))
    tensors, _ = load_tensors(place)
    rows = [np.concatenate([tensors[k][i].numpy().ravel() for k in sorted(tensors)]) for i in range(len(NAMES))]
    return Outcome(np.stack(rows), _common(folder), _history(folder))


def of_sites(run: Path, sites: Sequence[Path]) -> Outcome:
    """Of a federation: the server's run folder, and each site's folder with its models, in the order of the clients."""
    rows = []
    for site in sites:
        for place in sorted((site / "models").glob("personal-*.safetensors"), key=lambda p: int(p.stem.split("-")[1])):
            rows.append(_flat(place))
    return Outcome(np.stack(rows) if rows else None, _common(run), _history(run))


def _common(folder: Path) -> np.ndarray | None:
    place = folder / "models" / "global.safetensors"
    return _flat(place) if place.exists() else None


def _flat(place: Path) -> np.ndarray:
    tensors, _ = load_tensors(place)
    return np.concatenate([tensors[k].numpy().ravel() for k in sorted(tensors)])


def _history(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


class _Without:
    """The local engine, to which one client does not answer in one round."""

    def __init__(self, engine: Engine, fault: Fault) -> None:
        self.engine, self.fault = engine, fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def map(
        self, stage: Stage, round: int, ids: Tensor, down: State, shared: Tensor | None = None
    ) -> tuple[Tensor, State]:
        there = torch.ones(len(ids), dtype=torch.bool)
        if stage == "train" and round == self.fault.round:
            there = ids != self.fault.client
        rows = {k: v[there] for k, v in down.items()}
        return self.engine.map(stage, round, ids[there], rows, None if shared is None else shared[there])


@functools.cache
def expected(case: Case, chunk: int | None = 1) -> Outcome:
    """What the local engine gives with so many clients computed together; None: as many as it likes.

    A client that is slow changes nothing. One that raises is, in a federation, not there in that round: its state and
    its model stay as they were, and the others go on. (A simulation stops there and says whose error it was.)
    """
    recipe = case.whole(chunk=chunk, workers=1)
    clients = clients_of(recipe)
    engine: Engine | None = None
    if case.fault is not None and case.fault.seconds is None:
        engine = _Without(assemble(recipe, clients).run.engine, case.fault)
    with tempfile.TemporaryDirectory() as folder:
        list(play_recipe(recipe, clients, Path(folder), engine))
        return of_run(Path(folder))


def agrees(case: Case, got: Outcome, chunk: int | None = 1, tolerance: float = 0.0) -> None:
    """Assert that an engine which computes `chunk` clients together (1: a site for each) gave what it should.

    `tolerance` is for an engine whose batches nobody else has; say why where you pass one.
    """
    _compare(got, expected(case, chunk), tolerance, case.means)
    _compare(got, expected(case, None), TOLERANCE, case.means)


_HIDDEN = re.compile(r"chosen/|validation$|(personal|global)/(?!(accuracy|loss)_mean)")  # of what single scores tell


def _compare(got: Outcome, wanted: Outcome, tolerance: float, means: bool) -> None:
    for found, right in ((got.personal, wanted.personal), (got.common, wanted.common)):
        assert (found is None) == (right is None)
        if found is not None and right is not None:
            assert found.dtype == right.dtype and found.shape == right.shape
            if tolerance:
                np.testing.assert_allclose(found, right, atol=tolerance, rtol=tolerance)
            else:
                assert found.tobytes() == right.tobytes()
    assert len(got.history) == len(wanted.history)
    for line, right_line in zip(got.history, wanted.history, strict=True):
        asked = bool(line["diagnostics"]) and not tolerance  # not of sites; and curvature magnifies the order of sums
        left_out = {"seconds"} | (set() if asked else {"diagnostics", "warnings"})
        found_numbers, right_numbers = (_numbers(entry, left_out) for entry in (line, right_line))
        assert found_numbers.keys() == right_numbers.keys()
        near = max(tolerance, 1e-13) if means else tolerance  # a sum is rounded once
        for k, v in found_numbers.items():
            if not (means and _HIDDEN.match(k)):
                assert v == right_numbers[k] or abs(v - right_numbers[k]) <= near * (1 + abs(v)), k


def _numbers(line: dict[str, Any], left_out: set[str], prefix: str = "") -> dict[str, float]:
    """Everything in a line of history as one table."""
    out: dict[str, float] = {}
    for k, v in line.items():
        if k in left_out:
            continue
        if isinstance(v, dict):
            out |= _numbers(v, set(), f"{prefix}{k}/")
        elif isinstance(v, list):
            out |= {f"{prefix}{k}/{text}": 1.0 for text in v}
        else:
            out[f"{prefix}{k}"] = float("-inf") if v is None else float(v)
    return out


@contextmanager
def disturbed(case: Case) -> Iterator[None]:
    """In this process the case's client fails."""
    if case.fault is None:
        yield
        return
    with installed(case.fault):
        yield


@contextmanager
def disturbed_processes(case: Case) -> Iterator[None]:
    """In processes that are started within, the case's client fails."""
    with mock.patch.dict(os.environ, case.environment()):
        yield
