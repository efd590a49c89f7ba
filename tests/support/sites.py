"""Federations whose sites are function calls in this process: three hospitals with a file each, a server."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from sartor.federation import os_noise, server
from sartor.federation.limits import SiteLimits
from sartor.federation.masks import Identity
from sartor.federation.rounds import decode, remote_engine
from sartor.federation.rounds.remote_engine import Waiting
from sartor.federation.server import Coordinator
from sartor.federation.site import Participant
from sartor.federation.site_config import SiteConfig
from sartor.run.complete import clients_of
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe
from sartor.run.result import Result
from sartor.storage import load_tensors
from sartor.wrappers.privacy import NoiseSource

NAMES = ("a", "b", "c")
SMALL: dict[str, Any] = {"model": "mlp(6)", "rounds": 4, "evaluate_every": 2, "partition": "natural", "seed": 3}
EXACT = SiteLimits(least_scored=1, score_digits=17)  # the numbers of a simulation, to the last bit
QUICK = SMALL | {"model": "softmax", "rounds": 3, "evaluate_every": 3}


def tables(folder: Path, names: Sequence[str] = NAMES, each: int = 40) -> dict[str, Path]:
    """A CSV file for each site, and "all" with every row and a column that says whose it is."""
    draw = np.random.default_rng(1)
    rows: dict[str, list[list[object]]] = {}
    for i, name in enumerate(names):
        rows[name] = []
        for _ in range(each + 7 * i):
            age, dose = draw.normal(), draw.normal()
            ward = draw.choice(["east", "west", "north"][: 2 + (i > 0)])
            rows[name].append([age, dose, ward, ["ill", "well", "gone"][int(age + (i + 1) * dose > 0) + (age > 1.2)]])
    header = ["age", "dose", "ward", "outcome"]
    paths = {name: _write(folder / f"{name}.csv", header, rows[name]) for name in names}
    every = [[*row, name] for name in names for row in rows[name]]
    return paths | {"all": _write(folder / "all.csv", [*header, "hospital"], every)}


def _write(path: Path, header: list[str], rows: list[list[object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@dataclass
class Calls:
    """A transport that calls the sites' functions; tests may look at, change, lose or double what passes."""

    members: dict[str, Callable[[bytes], bytes | None]]
    before: Callable[[str, bytes], list[bytes]] = lambda site, data: [data]
    after: Callable[[str, bytes], list[bytes]] = lambda site, data: [data]
    seen: list[tuple[str, str, bytes]] = field(default_factory=list)
    box: list[tuple[str, bytes]] = field(default_factory=list)
    now: float = 0.0  # the server's clock: it goes on while the server waits, whatever a busy machine needs to compute

    def monotonic(self) -> float:
        return self.now

    def post(self, site: str, request: bytes) -> None:
        self.seen.append(("down", site, request))
        for data in self.before(site, request):
            if (reply := self.members[site](data)) is not None:
                self.seen.append(("up", site, reply))
                self.box += [(site, r) for r in self.after(site, reply)]

    def collect(self, seconds: float) -> list[tuple[str, bytes]]:
        found, self.box = self.box, []
        self.now += 0.0 if found else max(seconds, 0.001)
        return found


@dataclass
class Federation:
    """A server and its sites in folders of their own."""

    folder: Path
    recipe: Recipe
    paths: dict[str, Path]
    said: list[str] = field(default_factory=list)
    waiting: Waiting = field(default_factory=lambda: Waiting(seconds=0.05, clients=1, timeouts=2, again=0.02))
    key: str | None = None
    share: str = "each"
    limits: SiteLimits = EXACT
    target: str = "outcome"
    text: tuple[str, ...] = ()
    noise: NoiseSource = os_noise.standard_normal
    identities: dict[str, Identity] = field(default_factory=dict)

    def member(self, name: str) -> Participant:
        own = SiteConfig(str(self.paths[name]), self.target, self.key, self.share, text=self.text, limits=self.limits)
        said = lambda text: self.said.append(f"{name}: {text}")  # noqa: E731
        return Participant(
            name, self.folder / name, own, log=said, noise=self.noise, identity=self.identities.get(name)
        )

    def calls(self, names: Sequence[str] = NAMES) -> Calls:
        return Calls({name: self.member(name).answer for name in names})

    def lead(self, calls: Calls) -> Coordinator:
        names = list(calls.members)
        own = self.folder / "server"
        lead = Coordinator(
            "trial", own, self.recipe, names, calls, self.waiting, self.said.append, 0.2, self.waiting.again
        )
        lead.authority = next((i.authority for i in self.identities.values()), None)
        play = lead.play

        def timed() -> Iterator[Result]:
            with mock.patch.object(server, "time", calls), mock.patch.object(remote_engine, "time", calls):
                yield from play()

        lead.play = timed  # type: ignore[method-assign]
        return lead

    def play(self, calls: Calls | None = None) -> Result:
        return last(self.lead(calls or self.calls()))

    def patient(self, calls: Calls, seconds: float) -> Coordinator:
        """Who waits so long for answers that do not come, and for sites that join late."""
        self.waiting = replace(self.waiting, seconds=seconds)
        lead = self.lead(calls)
        lead.joining = seconds
        return lead

    def play_lost_and_doubled(self) -> Coordinator:
        """With messages of both directions that come never, once or twice; whoever has led it."""
        draw, calls = np.random.default_rng(5), self.calls()
        calls.before = calls.after = lambda site, data: [data] * int(draw.integers(3))
        lead = self.patient(calls, 60)
        last(lead)
        return lead


def last(lead: Coordinator) -> Result:
    *_, result = lead.play()
    return result


def vectors(folder: Path, names: Sequence[str] = NAMES) -> dict[str, bytes]:
    """Every final vector's bits."""
    return {name: value.tobytes() for name, value in numbers(folder, names).items()}


def numbers(folder: Path, names: Sequence[str] = NAMES) -> dict[str, np.ndarray]:
    """Every final vector: the server's models, and each site's personal models and states."""
    found = {}
    for name in ("server", *names):
        for path in sorted((folder / name).rglob("*.safetensors")):
            place = f"{name}/{path.parent.name}/{path.name}"  # without the run's name, which is drawn anew
            found |= {f"{place} {k}": v.numpy() for k, v in load_tensors(path)[0].items()}
    assert any(k.startswith("server/models") for k in found) and any(k.startswith(f"{names[0]}/models") for k in found)
    return found


def simulated(recipe: Recipe, paths: dict[str, Path], folder: Path) -> Result:
    """The same rows in one process."""
    own = {"data": str(paths["all"]), "target": "outcome", "client_key": "hospital", "diagnostics": False}
    recipe = recipe.replace(**own)
    *_, result = play_recipe(recipe, clients_of(recipe), folder)
    return result


def personal(folder: Path, name: str, at: int = 0) -> np.ndarray:
    """A client's personal model at its site, as one vector."""
    tensors, _ = load_tensors(folder / name / "models" / f"personal-{at}.safetensors")
    return np.concatenate([tensors[k].numpy().ravel() for k in sorted(tensors)])


def is_message(data: bytes, kind: str, stage: str | None, round: int) -> bool:
    message = decode(data)
    return (message.kind, message.round) == (kind, round) and message.note.get("stage") == stage
