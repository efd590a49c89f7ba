"""From a recipe, or from Python objects, to a run that is ready to play. All that can be refused is refused here."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import aggregators, compressors, spelling
from ..aggregators import Aggregator
from ..compressors import Compressor
from ..core import Engine, Method
from ..data import Clients
from ..engines import LocalEngine, SerialEngine
from ..engines.local import problem_of
from ..engines.predictions import kind_of
from ..engines.threads import cores, one_thread
from ..errors import SartorError, need, one_of, unknown
from ..judge import decisions
from ..judge.prediction_metrics import CHOOSABLE, METRICS, NUMBERS, SCORES
from ..methods.entries import personal_model
from ..tasks.frozen import own_copy
from ..tasks.frozen_outputs import frozen_outputs
from ..tasks.task import Loss, ModelTask
from ..wrappers import (
    Attack,
    Compressed,
    Hostile,
    PersonalParts,
    Privacy,
    Private,
    Reporting,
    Wrapper,
    attacks,
    hostile_clients,
)
from ..wrappers.privacy import NoiseSource
from ..wrappers.sample_privacy import SamplePrivate
from ..wrappers.secure_sum import LEAST, SecureSum
from . import memory, privacy_account
from .complete import (
    TYPES,
    attackers_of,
    completed,
    goal,
    method_of,
    model_of,
    natural_loss,
    privacy,
    samples_with,
)
from .named_parts import attack, compressor, to_table
from .newcomers import hold_out
from .recipe import Attacked, Evaluation, Execution, Federation, Learning, Recipe, Traffic
from .result import Result
from .rounds import Run

Tasks = dict[Hashable, ModelTask]


def assemble(recipe: Recipe, clients: Clients, folder: Path | None = None, noise: NoiseSource | None = None) -> Result:
    """The run of a recipe, ready to play. `noise`: where a real site's comes from; none: from the seed."""
    return assembled(recipe, clients, folder, noise=noise)[0]


def assembled(
    recipe: Recipe,
    clients: Clients,
    folder: Path | None = None,
    tasks: Tasks | None = None,
    noise: NoiseSource | None = None,
) -> tuple[Result, Recipe]:
    """The same, and the complete recipe. `tasks` are those that runs of one study have made already: they are used
    again, by one run at a time."""
    method = method_of(recipe)
    full = completed(recipe, clients, method)
    exact = [k for k, v in full.settings.items() if isinstance(v, dict) and v.get("kind") == "exact"]
    need(
        not exact or (full.model == "linear" and full.loss == "squared"),
        f"the exact solver needs linear with squared loss; got {full.model} with {full.loss}. Use sgd or inexact.",
    )
    named = ("method", "settings", "data", "partition", "model", "seed", "local_steps")
    about = {name: getattr(full, name) for name in named}
    shapes = tuple(clients.x.shape[1:]), clients.classes
    mark = full.model, full.loss, str(full.dtype), full.device, *shapes, method.neighbours
    tasks = tasks if recipe.class_weights == "none" else None  # weights of classes are of these clients
    task = None if tasks is None else tasks.get(mark)
    result = prepare(
        method,
        model_of(full, clients) if task is None else task.original,
        clients,
        recipe.rounds,
        seed=recipe.seed,
        personal=recipe.personal,
        loss=full.loss,
        local_steps=full.local_steps if full.dp_unit == "sample" else None,
        class_weights=recipe.class_weights,
        federation=recipe.group(Federation),
        attack=full.group(Attacked),
        privacy=privacy(full),
        traffic=recipe.group(Traffic),
        execution=recipe.group(Execution),
        evaluation=recipe.group(Evaluation),
        folder=folder,
        about=about,
        task=task,
        noise=noise,
    )
    if tasks is not None and result.frozen is None:  # frozen parts are given other inputs
        tasks.setdefault(mark, result.task)
    return result, full


def prepare(
    method: Method,
    model: nn.Module,
    clients: Clients,
    rounds: int = Learning.rounds,
    *,
    local_steps: int | None = Learning.local_steps,
    seed: int = Learning.seed,
    personal: str | None = Learning.personal,
    loss: str | Loss | None = None,
    metric: Loss | None = None,
    class_weights: str = Learning.class_weights,
    pretrained: bool = False,
    compile: bool = False,
    unseen: Clients | None = None,
    federation: Federation | None = None,
    attack: Attacked | None = None,
    privacy: Privacy | None = None,
    traffic: Traffic | None = None,
    execution: Execution | None = None,
    evaluation: Evaluation | None = None,
    folder: Path | None = None,
    about: dict[str, Any] | None = None,
    task: ModelTask | None = None,
    noise: NoiseSource | None = None,
) -> Result:
    """Everything a run needs, before its first round; `fit` says what the arguments are. `task`: what another run has
    made of the same model, loss and shapes of data.

    With attackers but no attack nobody attacks, and the same clients as with one are left out of the scores.
    """
    method = method if local_steps is None else method.spending(local_steps)
    method = method if personal is None else PersonalParts(method, personal)
    federation, attacked = federation or Federation(), attack or Attacked()
    traffic, execution, evaluation = traffic or Traffic(), execution or Execution(), evaluation or Evaluation()
    dtype, device = _place(execution)
    need(rounds >= 1, f"a run needs at least 1 round; got {rounds}.")
    need(
        evaluation.report != "best" or clients.counts("validation").sum() > 0,
        "--report best needs validation data, and no client has any; use --report last, or change --parts.",
    )
    if federation.unseen:
        need(unseen is None, "unseen clients are a share of the clients, or others; got both.")
        clients, unseen = hold_out(clients, federation.unseen, seed)
    need(
        evaluation.report == "last" or unseen is None,
        "with --unseen use --report last: new clients join after the last round.",
    )
    need(federation.unseen_steps >= 0, f"a newcomer makes 0 visits or more; got {federation.unseen_steps}.")
    loss = loss or natural_loss(clients)
    cohort = len(clients) if federation.cohort is None else federation.cohort
    hostility, share = _attack(attacked)
    hostile = hostile_clients(len(clients), share, seed)
    clients = clients.to(device, dtype)
    clients = hostility.data(clients, hostile, seed) if hostile else clients
    kept, seen = None, clients
    if task is None:
        own = own_copy(model, device, dtype)  # the user's model stays as it is
        task = ModelTask(own, loss, compile=compile, metric=metric, neighbours=method.neighbours)
        _check_fit(task, clients)
        with one_thread():  # the same bits, whatever the number of cores
            kept = frozen_outputs(task, clients.x)
        task, seen = (task, clients) if kept is None else (kept.rest, replace(clients, x=kept.of_all))
        task.probe(seen.x[:1], seen.y[:1])
    else:
        task = copy.copy(task)
    task.class_weights = _class_weights(class_weights, task, clients)
    task.named_metric = _named_metric(evaluation.metric, metric, task, clients, traffic)
    if method.neighbours is not None:
        task.neighbours = method.neighbours.among(clients.counts("train"))
    there = int(clients.counts("validation").sum())
    decisions.check(evaluation.calibrate, evaluation.threshold, kind_of(task, clients), clients.classes, there)
    problem = problem_of(task, seen, seed, pretrained)
    server, start = method.init(problem)
    played = _with_aggregator(method, method.shared(server) is not None, cohort, len(clients))
    sends = len(method.downlink(server, torch.zeros(1, dtype=torch.int64), 0)) > 0
    samples = None
    covers = sends or (privacy is not None and privacy.unit == "sample")  # samples also of models that stay
    if privacy is not None and covers and 1 <= cohort <= len(clients):  # another cohort is refused by the run
        draws = privacy_account.CohortDraws(len(clients), cohort, federation.sampling, seed)
        if privacy.unit == "sample":
            need(not task.has_statistics, "dp_unit = sample does not go with batch normalisation, which mixes samples.")
            need(
                task.neighbours is None,
                "dp_unit = sample does not go with knn-per, whose personal models hold training samples' features and "
                "classes; use dp_unit = client, or mr-mtl.",
            )
            samples = samples_with(privacy, draws, method, clients, local_steps, rounds)
        _check_private(draws, federation, evaluation)
        privacy = privacy if samples is not None else privacy_account.with_noise(privacy, draws, rounds)
    if privacy is not None and samples is not None:
        played = SamplePrivate(played, privacy, samples.noise, seed, noise)
        server, start = played.init(problem)
    elif privacy is not None and sends and 1 <= cohort <= len(clients):
        shared_noise = federation.secure_sites if federation.secure_aggregation and privacy.where == "server" else None
        played = Private(method, privacy, cohort, seed, noise, shared_noise)
        server, start = played.init(problem)
    up, down = _compressor(traffic.compress), _compressor(traffic.compress_down)
    if federation.secure_aggregation and sends:
        _check_secure(federation, traffic, method, cohort, len(clients), privacy)
        played = SecureSum(played, privacy is not None and privacy.unit == "client", up, seed)
        server, start = played.init(problem)
    played = Hostile(played, hostility, hostile, seed, cohort) if hostile else played
    each = None if federation.secure_aggregation else up  # else it is the sum that is coded
    if each is not None or down is not None:
        played = Compressed(played, each, down, seed)
        server, start = played.init(problem)
    store = None if execution.store == "memory" or folder is None else folder / "state" / "rows"
    memory.check(method, problem.start, len(clients), server, start, cohort, store is not None)
    engine = _engine(execution, played, task, seen, start, seed, store, folder)
    if isinstance(engine, LocalEngine):
        engine.mixes = bool(there or evaluation.folds)
    run = Run(played, engine, problem, server, cohort, federation, store, report=evaluation.report, goal=goal(traffic))
    run.metric, run.training_loss = task.named_metric, evaluation.training_loss
    about = about or {}
    settings = {
        "method": method.name.lower(),
        "settings": about.get("settings") or to_table(method),
        "personal": method.parts if isinstance(method, PersonalParts) else None,
        "personal_model": _personal_model(method),
        "data": clients.about.get("source", "own"),
        "partition": _partition(clients),
        "model": type(model).__name__,
        "local_steps": local_steps,
        "own_work": method.unsplit() or None,
        "seed": seed,
        "attack": spelling.write(attacks.NAMES, hostility, short=True) if hostility != Attack() else "none",
        "attackers": share,
        "aggregator": _rule(method),
        "compress": _spelled(up),
        "compress_down": _spelled(down),
        "oracle": evaluation.oracle,
        "metric": task.named_metric,
        "calibrate": evaluation.calibrate,
        "threshold": evaluation.threshold,
    }
    late = None if unseen is None else unseen.to(device, dtype)
    return Result(run, task, clients, settings | about, privacy, late, federation.unseen_steps, kept, samples)


def _class_weights(wanted: str, task: ModelTask, clients: Clients) -> torch.Tensor | None:
    """[k] with n samples in all clients' training data, n_c of a class: n / (number of classes there are · n_c)."""
    one_of("a run", "class_weights", wanted, ("none", "balanced"))
    if wanted == "none":
        return None
    classes = clients.classes is not None and not clients.y.is_floating_point() and clients.y.dim() == 1
    need(classes, "--class-weights balanced needs targets that are classes, not numbers or -1/+1; use none.")
    need(
        not task.has_statistics,
        "--class-weights balanced does not go with batch normalisation, whose statistics would be weighted, too; "
        "use another model, or none.",
    )
    rows = [clients.y[clients.rows(i, "train")] for i in range(len(clients))]
    counts = torch.bincount(torch.cat(rows), minlength=clients.classes or 0).to(clients.x.dtype)
    return torch.where(counts > 0, counts.sum() / ((counts > 0).sum() * counts.clamp(min=1)), 1.0)


def _named_metric(name: str, own: Loss | None, task: ModelTask, clients: Clients, traffic: Traffic) -> str | None:
    """The metric that models are scored and chosen by, where it is not accuracy or R²; one that does not fit is
    refused."""
    kind, classes = kind_of(task, clients), clients.classes
    if name == "auto":
        return None
    need(own is None, f"models are scored by a metric of your own or by a named one; got both, and {name}.")
    need(clients.y.dim() == 1, f"metric {name} is of one prediction per sample; sequences have auto: right tokens.")
    fits = [known for known in CHOOSABLE if METRICS[known].fits(kind, classes)]
    what = {NUMBERS: "numbers", SCORES: "classes without probabilities"}.get(kind, "classes")
    need(name in fits, f"metric {name} does not fit targets that are {what}; use one of auto, {', '.join(fits)}.")
    if name == ("r2" if kind == NUMBERS else "accuracy"):
        return None
    need(
        traffic.target_accuracy is None,
        f"--target-accuracy is of accuracy or R², and does not go with --metric {name}; remove one of them.",
    )
    return name


def _place(execution: Execution) -> tuple[torch.dtype, str]:
    """The dtype and the device."""
    name = str(execution.dtype).removeprefix("torch.")
    if name not in TYPES:
        raise unknown("dtype", name, TYPES)
    device = execution.device
    need(
        device == "cpu" or (device.startswith("cuda") and torch.cuda.is_available()),
        f"device is cpu, or cuda where there is one; got {device!r}.",
    )
    return TYPES[name], device


def _attack(attacked: Attacked) -> tuple[Attack, float]:
    """What hostile clients do, and their share."""
    wanted = attack(attacked.attack) if isinstance(attacked.attack, str) else attacked.attack
    return wanted or Attack(), attackers_of(wanted, attacked.attackers)


def _compressor(wanted: str | Compressor) -> Compressor | None:
    return compressor(wanted) if isinstance(wanted, str) else wanted


def _engine(
    execution: Execution,
    played: Method,
    task: ModelTask,
    clients: Clients,
    start: dict[str, torch.Tensor],
    seed: int,
    store: Path | None,
    folder: Path | None,
) -> Engine:
    """Where the clients live."""
    kind, chunk, workers, address = execution.engine, execution.chunk, execution.workers, execution.address
    need(address is None or kind == "ray", f"--address works only with --engine ray; got {address!r}.")
    need(chunk is None or chunk >= 1, f"a chunk holds at least 1 client; got {chunk}.")
    need(workers is None or workers >= 1, f"a run needs at least 1 worker; got {workers}.")
    if workers is not None and workers > cores() and address is None:
        text = f"{workers} workers on {cores()} cores take turns: that is slower than {cores()}."
        warnings.warn(text, stacklevel=4)
    if kind == "ray":
        from ..engines.ray.engine import RayEngine

        shared = None if folder is None else folder / "state" / "ray"
        return RayEngine(played, task, clients, start, seed, chunk, workers, store, address, shared)
    if kind == "serial":
        return SerialEngine(played, task, clients, start, seed, store)
    return LocalEngine(played, task, clients, start, seed, chunk, workers, store)


def _check_private(draws: privacy_account.CohortDraws, federation: Federation, evaluation: Evaluation) -> None:
    """Refuse all that would break the guarantee."""
    need(draws.sampling != "size", "privacy needs cohorts that do not depend on data; sample uniform or poisson.")
    need(
        not federation.stragglers or federation.stale == "discard",
        "privacy needs every message to count in its own round; with --stragglers use --stale discard.",
    )
    last = evaluation.report == "last"
    need(
        last,
        "--report best chooses a round on clients' data, outside of the privacy guarantee; use --report last.",
    )


def _check_secure(
    federation: Federation, traffic: Traffic, method: Method, cohort: int, clients: int, privacy: Privacy | None
) -> None:
    """Refuse what a sum cannot carry."""
    least = federation.secure_sites
    need(least >= LEAST, f"secure aggregation needs --secure-sites of at least {LEAST}; got {least}.")
    need(
        cohort >= least,
        f"secure aggregation needs at least {least} clients in a round (--secure-sites), as the sum of two tells each "
        f"the other's message; got {cohort}.",
    )
    need(
        not method.train_all or cohort == clients,
        f"{method.name} has all clients train and hears some; with secure aggregation all of them are heard. Leave "
        "--cohort out.",
    )
    need(
        not federation.stragglers or federation.stale == "discard",
        "secure aggregation adds up the messages of one round; with --stragglers use --stale discard.",
    )
    both = traffic.compress != "none" and traffic.compress_down != "none"
    need(
        not both, "with secure aggregation compress messages or downlinks, not both: sums are of changes to one model."
    )
    need(
        traffic.compress == "none" or privacy is None or privacy.where == "client" or privacy.unit == "sample",
        "noise that only the sum carries does not go with --compress: what a code leaves out comes later, with its "
        "noise. Use --dp-where client, or compress downlinks only.",
    )
    need(
        privacy is None or privacy.where == "client" or federation.sampling != "poisson" or cohort == clients,
        "with secure aggregation the server knows who takes part, so --sampling poisson hides nobody; use uniform.",
    )


def _spelled(compressor: Compressor | None) -> str:
    return "none" if compressor is None else spelling.write(compressors.NAMES, compressor, short=True)


def _rule(method: Method) -> str | None:
    """The method's aggregator in short; None where it takes no mean."""
    averaging = method.averaging()
    if averaging is None or averaging.aggregate is None:
        return None
    return spelling.write(aggregators.NAMES, averaging.aggregate, short=True)


def _with_aggregator(method: Method, receives_model: bool, cohort: int, clients: int) -> Method:
    """The method, whose clients report their losses where its aggregator needs them; refuses too few messages."""
    averaging = method.averaging()
    if averaging is None or (rule := averaging.aggregate) is None:
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
        reason = str(e).splitlines()[0].rstrip(".")
        raise SartorError(f"the model does not take samples of shape {list(clients.x.shape[1:])}: {reason}.") from e
    wide = output.shape[-1] if output.dim() > 2 else 1
    if clients.classes is not None and not clients.y.is_floating_point() and task.kind == "cross-entropy":
        need(wide >= clients.classes, f"the model has {wide} outputs but the data have {clients.classes} classes.")
    if task.neighbours is not None:
        task.check_features(clients.x[:8])


def _personal_model(method: Method) -> str | None:
    """Which model is scored as the personal one, in words; of methods that nobody has described, None."""
    if isinstance(method, PersonalParts):
        return personal_model(method.method, method.parts)
    return personal_model(method.method if isinstance(method, Wrapper) else method)


def _partition(clients: Clients) -> str:
    found = clients.about.get("partition", {})
    return str(found.get("text", "own")) if isinstance(found, dict) else "own"
