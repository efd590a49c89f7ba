"""Models chosen by folds: every client's samples that are not test data say which model it takes, and all train it.

A client's samples are cut into k folds. A run is played with each of them held back, and what the held-back samples say
of the personal and the global model and their mixtures is put together: all of a client's samples have then spoken of
models that have not seen them. The run that is delivered trains on all of them. It takes k more runs, whose bytes and
gradients are counted.

Columns are put to scale as the whole split was: a held-back sample has a part in the mean of its column, but not in any
model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement, islice

import numpy as np
import torch

from ..core import State
from ..data.clients import Clients
from ..errors import SartorError, need
from ..judge.choice import SHARES, Scores, covariance
from ..seeds import stream
from .lockstep import play_together
from .recipe import Evaluation, Traffic
from .result import Result
from .rounds import Run

_SAMPLES = "validation/samples"


@dataclass
class FoldsSaid:
    """What held-back samples say of each client's models, and what it took to know."""

    scores: dict[str, np.ndarray] = field(default_factory=dict)  # as validation scores are called, [m]
    bytes_up: int = 0
    bytes_down: int = 0
    steps: int = 0


def check(evaluation: Evaluation, traffic: Traffic, private: bool) -> None:
    """Refuse what does not go with folds."""
    if not evaluation.folds:
        return
    need(evaluation.folds >= 2, f"--folds takes 2 or more, or 0 for none; got {evaluation.folds}.")
    need(not private, "--folds would spend the privacy budget once for each fold; choose on validation samples.")
    need(evaluation.report == "last", "--report best goes by validation samples, and with --folds there are none.")
    need(traffic.target_accuracy is None, "--target-accuracy goes by validation samples; with --folds there are none.")


def whole(clients: Clients) -> Clients:
    """The same clients, with their validation samples among those they train on."""
    bounds = clients.bounds.copy()
    bounds[:, 1] = bounds[:, 2]
    return replace(clients, bounds=bounds)


def held_back(clients: Clients, folds: int, fold: int, seed: int) -> Clients:
    """Everybody's samples without test data, a fold of them for validation. One of a single sample keeps it."""
    order, bounds, at = [], np.zeros_like(clients.bounds), 0
    for i, (first, _, end, _) in enumerate(clients.bounds.tolist()):
        places = first + stream(seed, "folds", client=i).permutation(end - first)
        mine = np.arange(len(places)) % folds == fold
        mine &= not mine.all()
        order += [places[~mine], places[mine]]
        bounds[i] = at + np.array([0, (~mine).sum(), len(places), len(places)])
        at += len(places)
    rows = torch.from_numpy(np.concatenate(order)).to(clients.x.device)
    return replace(clients, x=clients.x[rows], y=clients.y[rows], bounds=bounds)


def cross_fitted(
    clients: Clients, folds: int, seed: int, play: Callable[[Clients], Iterator[Result]], at_once: int
) -> FoldsSaid:
    """Play a run for each fold, so many at once, and put together what is said."""
    each = (play(held_back(clients, folds, fold, seed)) for fold in range(folds))
    runs = [result.run for some in iter(lambda: list(islice(each, at_once)), []) for result in _last_of(some)]
    spent = [sum(values) for values in zip(*((r.bytes_up, r.bytes_down, r.counts["steps"]) for r in runs), strict=True)]
    return FoldsSaid(joined([r.scores for r in runs]), *spent)


def _last_of(plays: Sequence[Iterator[Result]]) -> list[Result]:
    """What each comes to."""
    if len(plays) == 1:
        *_, last = plays[0]
        return [last]
    found = dict(play_together(plays))
    for said in found.values():
        if isinstance(said, SartorError):
            raise said
    return [said for said in found.values() if isinstance(said, Result)]


def hear(run: Run, said: FoldsSaid) -> None:
    """Before the first round: models are chosen by what folds said, and its cost is this run's."""
    run.validation = said.scores
    run.bytes_up, run.bytes_down = run.bytes_up + said.bytes_up, run.bytes_down + said.bytes_down
    run.counts["steps"] += said.steps


def joined(folds: Sequence[Scores]) -> dict[str, np.ndarray]:
    """Means and covariances over the samples of all folds, from those over each fold's."""
    keys = [k for k in folds[0] if "/validation/" in k and not k.endswith("/covariance")]
    counts = np.stack([np.nan_to_num(f[_SAMPLES]) if _SAMPLES in f else _counted(f) for f in folds])
    out = {k: _mean(np.stack([f[k] for f in folds]), counts) for k in keys}
    if _SAMPLES not in folds[0]:
        return out
    out[_SAMPLES] = counts.sum(0)
    models = [m for m in list(SHARES)[1:] if f"{m}/validation/merit" in out]
    gaps = {m: np.stack([_gap(f, m) for f in folds]) - _gap(out, m) for m in models}
    for a, b in combinations_with_replacement(models, 2):  # within the folds, and between them
        within = np.stack([f[covariance(a, b)] for f in folds])
        out[covariance(a, b)] = _mean(within + gaps[a] * gaps[b], counts)
    return out


def _gap(scores: Scores, model: str) -> np.ndarray:
    return scores[f"{model}/validation/merit"] - scores["personal/validation/merit"]


def _counted(scores: Scores) -> np.ndarray:
    """With one model there is nothing to choose: folds count alike where a client has any samples in them."""
    some = next(v for k, v in scores.items() if k.endswith("/validation/loss"))
    return (~np.isnan(some)).astype(float)


def _mean(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[m] of numbers [folds, m] by counts; NaN where no fold has one."""
    weights = np.where(np.isnan(values), 0.0, counts)
    total = weights.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: np.ndarray = np.where(total > 0, (np.nan_to_num(values) * weights).sum(0) / total, np.nan)
    return found


def as_tensors(said: FoldsSaid) -> State:
    """As they are kept beside a run's checkpoint."""
    spent = {"spent": torch.tensor([said.bytes_up, said.bytes_down, said.steps])}
    return {f"score/{k}": torch.from_numpy(v) for k, v in said.scores.items()} | spent


def of_tensors(tensors: State) -> FoldsSaid:
    """What `as_tensors` made."""
    scores = {k.removeprefix("score/"): v.numpy() for k, v in tensors.items() if k.startswith("score/")}
    return FoldsSaid(scores, *tensors["spent"].tolist())
