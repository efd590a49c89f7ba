"""The only round loop; its history, checkpoints and resumption. Simulation and deployment share it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..client_table import Rows
from ..core import Engine, Method, Problem, Server, Stage, State
from ..engines.threads import one_thread
from ..errors import Diverged, SartorError, Silent, need, see
from ..judge.choice import Scores, unguided
from ..judge.metrics import means_alone, summarise, validated
from ..seeds import stream
from ..storage import load_tensors, save_tensors, shaped
from ..wrappers.compression import DOWN, UP
from . import versions
from .absences import Answers, draw_absences, finite, joined, pick
from .bytes import Goal, count_bytes
from .folder_schema import CHECKPOINT, COUNTS
from .recipe import Federation

_AT_ONCE = 4096  # clients that are scored in one go, so that scoring a large federation takes little memory
_HOPELESS = 1e6  # a loss above this, at an R² below −this, is that of a model that has run away
Line = dict[str, Any]  # one line of history.jsonl
MEANS_ONLY = (
    "secure aggregation: scores are means over all clients. Nobody's own left its site, so how they are spread is not "
    "known, and chosen is the model that is best in the mean."
)


def draw_cohort(problem: Problem, size: int, sampling: str, round: int) -> Tensor:
    """Who is asked in this round, sorted: `size` clients, all alike ("uniform") or by number of samples ("size"); or
    everyone by a coin of its own, `size` in the mean ("poisson")."""
    m = problem.clients
    if size == m:
        return torch.arange(m)
    if sampling == "poisson":
        return torch.from_numpy(np.flatnonzero(stream(problem.seed, "cohort", round).random(m) < size / m))
    p = problem.share.double().cpu().numpy() if sampling == "size" else None
    drawn = stream(problem.seed, "cohort", round).choice(m, size, replace=False, p=None if p is None else p / p.sum())
    return torch.from_numpy(np.sort(drawn))


@dataclass
class BestRound:
    """A round worth keeping: every client's scores and models as they were after it."""

    round: int
    value: float  # what the chosen models are expected to be worth (judge.validated)
    scores: dict[str, np.ndarray]
    models: State  # as Run.models gives them


@dataclass
class Run:
    """A federation at work: the server's state and what has happened so far.

    With report="best" the round that is best on validation data (judge.validated) is kept, scores and models.
    """

    method: Method
    engine: Engine
    problem: Problem
    server: Server
    cohort: int
    federation: Federation = Federation()
    store: Path | None = None  # where per-client tables are kept; none: in memory
    report: str = "last"  # the round whose scores and models are reported: the last, or the best on validation data
    training_loss: bool = False  # whether evaluations also score models on the samples that they were trained with
    metric: str | None = None  # by which models are scored and chosen, where it is not accuracy or R²
    goal: Goal = Goal()  # what may end it before its last round
    round: int = 0
    seconds: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    next_round_bytes: int = 0  # bytes that the next round can take at most
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    silent: int = 0  # rounds in a row in which nobody answered, up to now
    late: Answers | None = None  # who answered late in the last round, and what
    history: list[Line] = field(default_factory=list)
    scores: dict[str, np.ndarray] = field(default_factory=dict)  # of the last evaluated round
    best: BestRound | None = None
    validation: Scores = field(default_factory=dict)  # what folds said, in place of validation samples

    def __post_init__(self) -> None:
        m = self.problem.clients
        need(1 <= self.cohort <= m, f"the cohort needs 1 to {m} clients (all there are); got {self.cohort}.")
        need(
            self.report == "last" or self.store is None,
            "--report best keeps models in memory, so it does not work with --store disk; use --report last.",
        )
        self.server = {k: v.at(self.store, f"server-{k}") if isinstance(v, Rows) else v for k, v in self.server.items()}

    def step(self) -> None:
        """One round: downlink, clients, server."""
        with one_thread():
            self._step()

    def _step(self) -> None:
        answered, messages = self._answers()
        good = finite(messages, answered.shape[0])
        if not bool(good.all()):
            self.counts["excluded"] += int((~good).sum())
            answered, messages = pick(answered, messages, good)
        there = answered.shape[0] > 0
        if there:
            weights = self.method.client_weights(self.problem.share[answered])
            self.server = self.method.server(self.server, answered, messages, weights, self.round)
            if self.store is None:
                self._settle()
            self.server = _owned(self.server, messages)
        self.silent = 0 if there else self.silent + 1
        self.counts["skipped"] += not there
        self.round += 1

    def _answers(self) -> Answers:
        """Who answers in this round, and what: the cohort without those that fail, and those late from the last."""
        late, self.late = self.late, None
        cohort = draw_cohort(self.problem, self.cohort, self.federation.sampling, self.round)
        asked = torch.arange(self.problem.clients) if self.method.train_all else cohort
        dropped, slow = draw_absences(self.federation, self.problem, self.round)
        reached = asked
        if dropped is not None:
            self.counts["dropped"] += int(dropped[cohort].sum())
            reached = asked[~dropped[asked]]
        answered = reached
        messages: State = {}
        if reached.shape[0]:
            down = self.method.downlink(self.server, reached, self.round)
            before = self.engine.steps
            answered, messages = self.engine.map("train", self.round, reached, down)
            self.counts["trained"] += answered.shape[0]
            self.counts["steps"] += self.engine.steps - before
            spent, each, messages = count_bytes(DOWN, messages, down)
            self.bytes_down += spent
            at_most = asked.shape[0] * each
        if self.method.train_all:  # everybody trained, the cohort is heard
            answered, messages = pick(answered, messages, torch.isin(answered, cohort))
        if answered.shape[0]:
            spent, each, messages = count_bytes(UP, messages, messages)
            self.bytes_up += spent
            self.next_round_bytes = at_most + cohort.shape[0] * each
        if slow is not None and bool((behind := slow[answered]).any()):
            self.counts["late"] += int(behind.sum())
            late_ids, theirs = pick(answered, messages, behind)
            self.late = (
                (late_ids, {k: v.clone() for k, v in theirs.items()}) if self.federation.stale == "use" else None
            )
            answered, messages = pick(answered, messages, ~behind)
        return (answered, messages) if late is None else joined(late, (answered, messages))

    def evaluate(self, diagnose: bool) -> Line:
        """Score every client's models as they are now, and add a line to the history."""
        found = self.query_clients("evaluate")
        self.counts["finetune_steps"] = finetune_steps(found)
        hostile = self.hostile
        self.scores = _benign(found, hostile) | dict(self.validation)
        _check_scores(self.scores, self.round, self.metric is not None)
        benign = torch.from_numpy(~hostile)
        facts = _reduce({k: v[benign] for k, v in self.query_clients("diagnose").items()}) if diagnose else {}
        warnings = [*self.method.warnings(self.server, self.round, facts), *unguided(self.scores)]
        training = {"training": self._training(found)} if self.training_loss else {}
        models = summarise(self.scores)
        if self.means_only:
            models = {name: means_alone(block) for name, block in models.items()}
            warnings.append(MEANS_ONLY)
        line: Line = {
            "round": self.round,
            "seconds": round(self.seconds, 3),
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            **self.counts,
            "gradients_per_client": self.gradients_per_client,
            **models,
            "validation": validated(self.scores),
            **training,
            "diagnostics": facts,
            "warnings": warnings,
        }
        self.history.append(line)
        if self.report == "best":
            self._keep()
        return line

    def _training(self, scores: State) -> dict[str, float]:
        """The mean over benign clients of the loss on training samples, by model. Where some are hostile also that of
        everyone, and everyone's validation accuracy: all that a server sees which does not know who is who."""
        losses = self.query_clients("training")
        benign = torch.from_numpy(~self.hostile)
        out = {f"{k.partition('/')[0]}_loss": float(v.double()[benign].mean()) for k, v in losses.items()}
        if self.hostile.any():
            out |= {f"{k.partition('/')[0]}_loss_everyone": float(v.double().mean()) for k, v in losses.items()}
            seen = {k: v for k in ("personal", "global") if (v := scores.get(f"{k}/validation/accuracy")) is not None}
            out |= {f"{k}_validation_everyone": float(v.double().nanmean()) for k, v in seen.items()}
        return {k: v for k, v in out.items() if math.isfinite(v)}

    def _keep(self) -> None:
        """Keep this round where it is better than the best so far; of equals the first."""
        value = validated(self.scores)
        if value is not None and (self.best is None or value > self.best.value):
            self.best = BestRound(self.round, value, self.scores, self.models())

    def models(self) -> State:
        """All models as they are now: "client/personal" [m, d] with the clients' statistics beside it, "global" [d] and
        FedAMP's "collaboration" [m, m], where there are such."""
        own = {f"client/{k}": v for k, v in self.query_clients("personal").items()}
        common = {"global": self.method.shared(self.server), "collaboration": self.method.collaboration(self.server)}
        return own | {k: v.clone() for k, v in common.items() if v is not None}

    @property
    def gradients_per_client(self) -> dict[str, float]:
        """The mean over all clients of the minibatch gradients that each has evaluated: up to now in training, in
        fine-tuning for its last personal model, and both together."""
        m, trained, tuned = self.problem.clients, self.counts["steps"], self.counts["finetune_steps"]
        return {"training": trained / m, "finetuning": tuned / m, "total": (trained + tuned) / m}

    @property
    def stopped(self) -> str | None:
        """Why no further round is played: its target is reached, or its budget is spent; None: there is no reason."""
        if self.goal.reached(self.history) is not None:
            return "target"
        return None if self.goal.affords(self.bytes_up + self.bytes_down, self.next_round_bytes) else "budget"

    @property
    def means_only(self) -> bool:
        """Whether the engine brings means over all clients as everybody's scores: secure aggregation hides the rest."""
        return bool(getattr(self.engine, "means_only", False))

    @property
    def hostile(self) -> np.ndarray:
        """[m] True where a client attacks."""
        attacks = self.method.hostile
        if not attacks:
            return np.zeros(self.problem.clients, dtype=bool)
        return np.isin(np.arange(self.problem.clients), list(attacks))

    def query_clients(self, stage: Stage) -> State:
        """Run a stage that changes nothing at every client, some at a time."""
        shared = self.method.shared(self.server)
        found: list[State] = []
        for ids in torch.split(torch.arange(self.problem.clients), _AT_ONCE):
            down = self.method.downlink(self.server, ids, self.round)
            each = None if shared is None else shared.expand(len(ids), -1)
            found.append(self.engine.map(stage, self.round, ids, down, each)[1])
        return {k: torch.cat([f[k] for f in found]) for k in found[0]}

    def save(self, path: Path, settings: str) -> None:
        """A checkpoint: everything needed to go on, in one file, atomically."""
        tensors = {f"client/{k}": v for k, v in self.engine.save().items()}
        for k, v in self.server.items():
            tensors |= v.saved(f"server/{k}") if isinstance(v, Rows) else {f"server/{k}": v}
        if self.late is not None:
            tensors |= {"late ids": self.late[0]} | {f"late/{k}": v for k, v in self.late[1].items()}
        about = {
            "sartor": versions.VERSION,
            "settings": settings,
            "round": self.round,
            "seconds": self.seconds,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "most": self.next_round_bytes,
            "counts": self.counts,
            "silent": self.silent,
            "history": self.history,
        }
        if self.best is not None:
            about["best"] = {"round": self.best.round, "value": self.best.value, "scores": list(self.best.scores)}
            tensors |= {f"best/model/{k}": v for k, v in self.best.models.items()}
            tensors |= {f"best/score/{k}": torch.from_numpy(v) for k, v in self.best.scores.items()}
        save_tensors(path, tensors, about)
        self.engine.settle()
        self._settle()

    def _settle(self) -> None:
        self.server = {k: v.settle() if isinstance(v, Rows) else v for k, v in self.server.items()}

    def restore(self, path: Path, settings: str) -> None:
        """Go on from a checkpoint of a run with the same settings."""
        tensors, about = load_tensors(path, self.problem.start.device)
        versions.check_reads(about.get("sartor", versions.UNMARKED), str(path))
        if about.get("settings") != settings:
            raise SartorError(
                f"{path} belongs to a run with other settings or other data; "
                f"choose another folder, or use the old settings and data.{see('resuming')}"
            )
        shaped(about, CHECKPOINT, str(path))
        try:
            self._restore(tensors, about)
        except (KeyError, RuntimeError) as e:  # a tensor that is not there, or of another shape
            raise SartorError(
                f"{path} was changed after it was written: {e}. Take it from a copy, or run again."
            ) from e

    def _restore(self, tensors: State, about: dict[str, Any]) -> None:
        for k, v in self.server.items():
            self.server[k] = v.restored(f"server/{k}", tensors) if isinstance(v, Rows) else tensors[f"server/{k}"]
        self.engine.restore({k.removeprefix("client/"): v for k, v in tensors.items() if k.startswith("client/")})
        self.round, self.seconds, self.history = about["round"], about["seconds"], about["history"]
        self.bytes_up, self.bytes_down = about["bytes_up"], about["bytes_down"]
        self.counts, self.silent, self.next_round_bytes = about["counts"], about["silent"], about["most"]
        waiting = {k.removeprefix("late/"): v for k, v in tensors.items() if k.startswith("late/")}
        self.late = (tensors["late ids"], waiting) if "late ids" in tensors else None
        if (best := about.get("best")) is not None:
            models = {k.removeprefix("best/model/"): v for k, v in tensors.items() if k.startswith("best/model/")}
            scores = {k: tensors[f"best/score/{k}"].cpu().numpy() for k in best["scores"]}
            self.best = BestRound(best["round"], best["value"], scores, models)


def play(
    run: Run,
    rounds: int,
    *,
    evaluate_every: int = 1,
    diagnose: bool = False,
    checkpoint: Path | None = None,
    checkpoint_every: int = 10,
    settings: str = "",
) -> Iterator[Line | None]:
    """Play up to `rounds` rounds; yields after each one: its history line where it was evaluated, else None."""
    need(rounds >= 1, f"a run needs at least 1 round; got {rounds}.")
    need(evaluate_every >= 1 and checkpoint_every >= 1, "evaluate_every and checkpoint_every are at least 1.")
    run.goal.check(run.bytes_up + run.bytes_down, run.round)
    while run.round < rounds and run.stopped is None:
        began = time.perf_counter()
        run.step()
        run.seconds += time.perf_counter() - began
        run.goal.check(run.bytes_up + run.bytes_down, run.round)
        last = run.round == rounds or run.stopped is not None
        line = run.evaluate(diagnose) if last or run.round % evaluate_every == 0 else None
        last = last or run.stopped is not None
        if run.silent >= run.federation.patience and not last:
            _stop(run, checkpoint, settings)
        if checkpoint is not None and (last or run.round % checkpoint_every == 0):
            run.save(checkpoint, settings)
        yield line
    if not run.scores:  # resumed after the last round: score again, in place of the line that said so
        run.history = [line for line in run.history if line["round"] < run.round]
        run.evaluate(diagnose)


def _benign(found: State, hostile: np.ndarray) -> dict[str, np.ndarray]:
    """Scores are of benign clients: a hostile one has none, as if it had no samples."""
    all_ = torch.stack([v.double() for v in found.values()]).cpu().numpy()
    return dict(zip(found, np.where(hostile, np.nan, all_), strict=True))


def finetune_steps(found: State) -> int:
    """Take the steps out of what an evaluation brought, and add them up; a client that does not tell has none."""
    steps = found.pop("personal/steps", torch.zeros(0))
    return int(steps.nansum().round())


def _owned(server: Server, messages: State) -> Server:
    """The server's state, with copies of what is a view of the messages: an engine may use their memory again."""
    lent = {v.untyped_storage().data_ptr() for v in messages.values()}
    return {
        k: v.clone() if isinstance(v, Tensor) and v.untyped_storage().data_ptr() in lent else v
        for k, v in server.items()
    }


def _stop(run: Run, checkpoint: Path | None, settings: str) -> None:
    """Nobody has answered for too long: keep the state, say so, and stop."""
    silent, run.silent = run.silent, 0  # who goes on later is patient anew
    kept = "Nothing was kept: pass --out to be able to go on"
    if checkpoint is not None:
        run.save(checkpoint, settings)
        kept = f"Everything up to round {run.round} is kept: go on with --resume"
    raise Silent(
        f"nobody answered in {silent} round{'s' if silent > 1 else ''} in a row, up to round {run.round} "
        f"(patience {run.federation.patience}). {kept}, or ask more clients with --cohort, or lower --drop."
    )


def _reduce(found: State) -> dict[str, float]:
    """Per-client numbers become mean and maximum; per-client vectors the norm of their mean."""
    out: dict[str, float] = {}
    for name, value in found.items():
        if value.dim() == 2:
            out[f"{name}_norm"] = float(value.mean(0).norm())
        else:
            out[f"{name}_mean"], out[f"{name}_max"] = float(value.mean()), float(value.max())
    return {k: v for k, v in out.items() if math.isfinite(v)}


def _plain(scores: Scores) -> bool:
    """Whether nothing is wrong with scores at a glance: none is large, and there is a loss where there is accuracy."""
    names = [name.removesuffix("loss") for name in scores if name.endswith("/loss")]
    loss, right = (np.array([scores[f"{name}{what}"] for name in names]) for what in ("loss", "accuracy"))
    large = np.abs(np.array(list(scores.values()))) > _HOPELESS
    return not large.any() and np.array_equal(np.isnan(loss), np.isnan(right))


def _check_scores(scores: Scores, round: int, gaps: bool = False) -> None:
    """Refuse scores from which no mean and variance can be computed, and those of a model that has run away. NaN
    accuracy and loss together say: no samples; with `gaps` the accuracy, which is then a metric by name, may be NaN
    where it is not defined."""
    if _plain(scores):
        return
    for name, value in scores.items():
        bad = np.abs(value) > 1e100
        if name.endswith("/loss"):
            accuracy = scores[name.removesuffix("loss") + "accuracy"]
            missing = np.isnan(accuracy)
            bad |= np.isnan(value) & ~missing if gaps else np.isnan(value) != missing
            bad |= (value > _HOPELESS) & (accuracy < -_HOPELESS)
        if bad.any():
            client = int(np.flatnonzero(bad)[0])
            raise Diverged(
                f"diverged by round {round}: the {name.replace('/', ' ')} of client {client} is {value[client]:.3g}. "
                f"The likely cause is a step size too large: lower lr or lam.{see('divergence')}"
            )
