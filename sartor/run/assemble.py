"""`fit`: a method, a model and clients become a result. The same few lines stand behind the command line."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import aggregators, compressors, spelling
from ..aggregators import Aggregator
from ..compressors import Compressor
from ..core import Engine, Method
from ..data.clients import Clients
from ..engines import LocalEngine, SerialEngine
from ..engines.local import problem_of
from ..engines.threads import cores
from ..errors import SartorError, need, one_of
from ..tasks.task import Loss, ModelTask
from ..wrappers import Attack, Compressed, Hostile, Privacy, Private, Reporting, attacks, hostile_clients
from . import memory, privacy_account
from .absences import Failures
from .bytes import Goal
from .result import Result
from .rounds import Run
from .settings import to_table

ENGINES = ("local", "serial", "ray")


def natural_loss(clients: Clients) -> str:
    """The loss that fits the targets: numbers, −1/+1 or classes."""
    return "squared" if clients.classes is None else "hinge" if clients.y.is_floating_point() else "cross-entropy"


def prepare(
    method: Method,
    model: nn.Module,
    clients: Clients,
    *,
    seed: int = 0,
    loss: str | Loss | None = None,
    metric: Loss | None = None,
    cohort: int | None = None,
    sampling: str = "uniform",
    engine: str = "local",
    chunk: int | None = None,
    workers: int | None = None,
    store: Path | None = None,
    address: str | None = None,
    folder: Path | None = None,
    compile: bool = False,
    attack: Attack | None = None,
    attackers: float = 0.0,
    failures: Failures | None = None,
    compress: Compressor | None = None,
    compress_down: Compressor | None = None,
    goal: Goal | None = None,
    report: str = "last",
    oracle: bool = False,
    privacy: Privacy | None = None,
    rounds: int | None = None,
    unseen: Clients | None = None,
    unseen_steps: int = 10,
    pretrained: bool = False,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    settings: dict[str, Any] | None = None,
) -> Result:
    """Everything a run needs, before its first round. All that can be refused is refused here.

    With `attackers` but no `attack` nobody attacks, and the same clients as with one are left out of the scores.
    """
    one_of("a run", "engine", engine, ENGINES)
    need(
        address is None or engine == "ray", f"an address is that of a Ray cluster, for the engine ray; got {address!r}."
    )
    need(chunk is None or chunk >= 1, f"a chunk holds at least 1 client; got {chunk}.")
    need(workers is None or workers >= 1, f"a run needs at least 1 worker; got {workers}.")
    need(
        report != "best" or clients.counts("validation").sum() > 0,
        "the best round is chosen on validation data, and no client has any; report the last, or see --parts.",
    )
    need(
        report == "last" or unseen is None,
        "clients that join meet the server as it is after the last round; with unseen clients report the last.",
    )
    need(unseen_steps >= 0, f"a newcomer makes 0 visits or more; got {unseen_steps}.")
    loss = loss or natural_loss(clients)
    cohort = len(clients) if cohort is None else cohort
    attack = attack or Attack()
    hostile = hostile_clients(len(clients), attackers, seed)
    clients = attack.data(clients.to(device, dtype), hostile, seed) if hostile else clients.to(device, dtype)
    own = copy.deepcopy(model).to(device, dtype)  # the user's model stays as it is
    task = ModelTask(own, loss, compile=compile, metric=metric)
    _check_fit(task, clients)
    problem = problem_of(task, clients, seed, pretrained)
    server, start = method.init(problem)
    played = _with_aggregator(method, method.shared(server) is not None, cohort, len(clients))
    sends = len(method.downlink(server, torch.zeros(1, dtype=torch.int64), 0)) > 0
    if privacy is not None and sends and 1 <= cohort <= len(clients):  # another cohort is refused by the run
        draws = privacy_account.CohortDraws(len(clients), cohort, sampling, seed)
        privacy = _checked(privacy, draws, rounds, failures or Failures(), report)
        played = Private(method, privacy, cohort, seed)
        server, start = played.init(problem)
    played = Hostile(played, attack, hostile, seed, cohort) if hostile else played
    if compress is not None or compress_down is not None:
        played = Compressed(played, compress, compress_down, seed)
        server, start = played.init(problem)
    memory.check(method, problem.start, len(clients), server, start, cohort, store is not None)
    if workers is not None and workers > cores() and address is None:
        text = f"{workers} workers on {cores()} cores take turns: that is slower than {cores()}."
        warnings.warn(text, stacklevel=2)
    made: Engine
    if engine == "ray":
        from ..engines.ray.engine import RayEngine

        made = RayEngine(played, task, clients, start, seed, chunk, workers, store, address, folder)
    elif engine == "local":
        made = LocalEngine(played, task, clients, start, seed, chunk, workers, store)
    else:
        made = SerialEngine(played, task, clients, start, seed, store)
    run = Run(played, made, problem, server, cohort, sampling, store, failures or Failures(), report, goal or Goal())
    about = {
        "method": type(getattr(method, "method", method)).__name__.lower(),  # of a wrapped one, what is inside
        "settings": to_table(method),
        "data": clients.about.get("source", "own"),
        "partition": _partition(clients),
        "model": type(model).__name__,
        "seed": seed,
        "attack": spelling.write(attacks.NAMES, attack, short=True) if attack != Attack() else "none",
        "attackers": attackers,
        "aggregator": _rule(method),
        "compress": _spelled(compress),
        "compress_down": _spelled(compress_down),
        "oracle": oracle,
    }
    return Result(
        run, task, clients, about | (settings or {}), privacy, unseen and unseen.to(device, dtype), unseen_steps
    )


def _checked(
    privacy: Privacy, draws: privacy_account.CohortDraws, rounds: int | None, failures: Failures, report: str
) -> Privacy:
    """The same with its noise; all that would break the guarantee is refused."""
    need(draws.sampling != "size", "privacy needs cohorts that do not depend on data; sample uniform or poisson.")
    need(
        not failures.stragglers or failures.stale == "discard",
        "privacy counts on a client's message in the round it was asked in; use --stale discard with stragglers.",
    )
    need(report == "last", "the best round is chosen on clients' data, outside of the guarantee; report the last.")
    need(privacy.noise is not None or rounds is not None, "to find the noise for an epsilon the rounds must be known.")
    return privacy_account.with_noise(privacy, draws, rounds or 1)


def _spelled(compressor: Compressor | None) -> str:
    return "none" if compressor is None else spelling.write(compressors.NAMES, compressor, short=True)


def _rule(method: Method) -> str | None:
    """The method's aggregator in short; None where it takes no mean."""
    rule = getattr(getattr(method, "method", method), "aggregate", None)
    return None if rule is None else spelling.write(aggregators.NAMES, rule, short=True)


def _with_aggregator(method: Method, receives_model: bool, cohort: int, clients: int) -> Method:
    """The method, whose clients report their losses where its aggregator needs them; refuses too few messages."""
    averaging = getattr(method, "method", method)  # of a wrapped one, what is inside
    rule = getattr(averaging, "aggregate", None)
    if rule is None:
        return method
    need(isinstance(rule, Aggregator), f"an aggregator is one of sartor.aggregators; got {rule!r}.")
    rule.check(clients if averaging.keeps_last else max(1, min(cohort, clients)))
    return Reporting(method, receives_model) if rule.needs_losses else method


def _check_fit(task: ModelTask, clients: Clients) -> None:
    """Refuse a model that does not fit the data, before any work."""
    sample = clients.x[:1][None]
    try:
        output = task.predict(torch.zeros(1, task.size).to(sample), sample)
    except (RuntimeError, ValueError) as e:
        reason = str(e).splitlines()[0]
        raise SartorError(f"the model does not take samples of shape {list(clients.x.shape[1:])}: {reason}.") from e
    wide = output.shape[-1] if output.dim() > 2 else 1
    if clients.classes is not None and not clients.y.is_floating_point() and task.kind == "cross-entropy":
        need(wide >= clients.classes, f"the model has {wide} outputs but the data have {clients.classes} classes.")
    task.probe(clients.x[:1], clients.y[:1])


def _partition(clients: Clients) -> str:
    found = clients.about.get("partition", {})
    return str(found.get("text", "own")) if isinstance(found, dict) else "own"
