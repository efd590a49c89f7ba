"""A Ray cluster: joined where there is one, else started on this machine; and actors in it that are replaced when lost.

Only what was started here is ever ended: a cluster that was joined is left as it is, without our actors.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from ...errors import SartorError, need, see
from ...federation.rounds.agreement import check
from ..threads import cores
from .shard import Part, Shard, versions

_LOOK = 20.0  # seconds after which somebody who waits is told for what
_TRIES = 5  # lost actors in a row, of one shard, after which it is given up
_QUIET = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
}


def needs_ray() -> None:
    """Say what to install."""
    have = importlib.util.find_spec("ray") is not None
    need(have, "the engine ray needs Ray: pip install 'sartor[ray]', or use --engine local." + see("extras"))


def _ray() -> Any:
    """Ray, whose annotations are half done."""
    return importlib.import_module("ray")


def connect(address: str | None, actors: int) -> int:
    """Join the cluster at `address` ("auto": the one that this machine belongs to), or start one here; its CPUs.

    A cluster to which this process is connected already is taken as it is.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if address is None:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # listens on this machine only
    ray = _ray()
    if not ray.is_initialized():
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if address is None:
            _start(ray, max(cores(), actors), quiet)
        else:
            _join(ray, address, quiet)
            atexit.register(ray.shutdown)  # leaves the cluster as it is
        # Ray would print on standard output that a process was lost; who asked for JSON does not expect it there.
        ray._private.worker.print_to_stdstream = lambda *_, **__: None
    return int(ray.cluster_resources().get("CPU", 0))


def _start(ray: Any, cpus: int, options: dict[str, Any]) -> None:
    """A cluster that ends with this process, with its files."""
    short = tempfile.gettempdir() if len(tempfile.gettempdir()) < 30 else "/tmp"  # names of sockets are short
    folder = tempfile.mkdtemp(prefix="sartor-ray-", dir=short)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(ray.shutdown)  # before: what was registered last is done first
    ray.init(address="local", num_cpus=cpus, include_dashboard=False, _temp_dir=folder, **options)
    Actors.own_cluster = True


def _join(ray: Any, address: str, options: dict[str, Any]) -> None:
    start = "start one with `ray start --head`, or leave --address away to have one on this machine"
    if address != "auto":
        host, colon, port = address.rpartition(":")
        need(bool(colon and host) and port.isdigit(), f"--address is auto or HOST:PORT; got {address!r}.")
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as e:
            raise SartorError(f"no Ray cluster answers at {address} ({e.strerror or e}); {start}.") from e
    try:
        ray.init(address=address, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as e:
        said = str(e).strip().splitlines() or [type(e).__name__]
        raise SartorError(f"cannot join a Ray cluster with --address {address}: {said[0]} Or {start}.") from e


class Actors:
    """A transport: an actor for each shard. One that is lost is replaced, and asked again what it was asked.

    A process has one run at work at a time: the one that asks takes the actors of the one that asked before, which can
    have them back, as its states are in its folder. So a result that is kept is in nobody's way.
    """

    own_cluster: ClassVar[bool] = False
    at_work: ClassVar[Actors | None] = None
    spare: ClassVar[list[Any]] = []  # of runs that are over, in a cluster of our own: to start one takes seconds

    def __init__(self, parts: dict[str, Part], mark: Path, everywhere: bool, say: Callable[[str], None]) -> None:
        """`mark` is a file that every machine must see, if the folder in which it lies is said to be everywhere."""
        self.ray, self.mark, self.everywhere, self.say = _ray(), mark, everywhere, say
        self.parts = {site: self.ray.put(part) for site, part in parts.items()}
        self.actors: dict[str, Any] = {}
        self.lost = dict.fromkeys(parts, 0)  # in a row
        self.asked: dict[str, bytes] = {}
        self.standing: dict[Any, str] = {}
        self._take()

    def _take(self) -> None:
        if Actors.at_work is not None:
            Actors.at_work._give()
        Actors.at_work = self
        fresh = {site: self._new() for site in self.parts}  # all at once, as each takes a while
        if not Actors.own_cluster:
            Actors.spare.clear()
        for site, actor in fresh.items():
            self._enter(site, actor)

    def _give(self) -> None:
        """Let go of all actors; those that are still at work are ended."""
        for site, actor in self.actors.items():
            if site in self.standing.values():
                self._kill(site)
            else:
                Actors.spare.append(actor)
        self.actors, self.standing, Actors.at_work = {}, {}, None

    def end(self) -> None:
        """The run is over."""
        if self.ray.is_initialized() and Actors.at_work is self:
            self._give()
            if not Actors.own_cluster:
                Actors.spare.clear()  # an actor that nobody knows is ended

    def _new(self) -> Any:
        if Actors.spare:
            return Actors.spare.pop()
        options = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        return self.ray.remote(Shard).options(**options).remote()

    def _enter(self, site: str, actor: Any) -> None:
        """Give a shard to an actor; to another one where this one is lost before it has it."""
        while True:
            self.actors[site] = actor
            try:
                return self._begin(site, actor)
            except self.ray.exceptions.RayError as e:
                self._count(site, e)
                self._kill(site)
                Actors.spare.clear()  # they may be lost, too
                actor = self._new()

    def _begin(self, site: str, actor: Any) -> None:
        """Wait for the actor, look whether it fits, and give it its clients."""
        actor.alone.remote()
        about = actor.about.remote(str(self.mark))
        while not self.ray.wait([about], timeout=_LOOK)[0]:
            free = self.ray.available_resources().get("CPU", 0)
            self.say(f"waiting for the cluster to start {site}: {free:g} of its CPUs are free")
        found = self.ray.get(about)
        check(found["versions"], versions(), f"the machine {found['host']}")
        need(
            found["sees"] or not self.everywhere,
            f"the machine {found['host']} does not see {self.mark.parent}: --out must be a folder that all machines "
            "of the cluster share.",
        )
        self.ray.get(actor.begin.remote(self.parts[site]))

    def _count(self, site: str, error: Exception) -> None:
        """One more lost actor; the last of too many is an error."""
        self.lost[site] += 1
        if self.lost[site] >= _TRIES:
            said = next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "")
            raise SartorError(
                f"{site} was lost {_TRIES} times in a row ({type(error).__name__}: {said}). Out of memory? Then take "
                "more --workers or a smaller --chunk. Or a machine of the cluster without this sartor? What was saved "
                "is unharmed; go on with --resume."
            ) from error

    def post(self, site: str, request: bytes) -> None:
        if Actors.at_work is not self:
            self._take()
        self.standing = {ref: other for ref, other in self.standing.items() if other != site}
        self.asked[site] = request
        self.standing[self.actors[site].answer.remote(request)] = site

    def collect(self, seconds: float) -> list[tuple[str, bytes]]:
        until = time.monotonic() + seconds
        found: list[tuple[str, bytes]] = []
        while not found and self.standing:
            left = until - time.monotonic()
            for ref in self.ray.wait(list(self.standing), timeout=max(0.0, left))[0]:
                site = self.standing.pop(ref)
                try:
                    found.append((site, self.ray.get(ref)))
                    self.lost[site] = 0
                except self.ray.exceptions.RayTaskError as e:
                    raise e.cause if isinstance(e.cause, SartorError) else e from None
                except self.ray.exceptions.RayError as e:
                    self._count(site, e)
                    self.say(f"{site} was lost; another actor goes on where it was")
                    self._kill(site)
                    Actors.spare.clear()  # they may be lost, too
                    self._enter(site, self._new())
                    self.post(site, self.asked[site])
            if left <= 0:
                break
        return found

    def _kill(self, site: str) -> None:
        with contextlib.suppress(Exception):  # it is gone already, or the cluster is
            self.ray.kill(self.actors[site])
