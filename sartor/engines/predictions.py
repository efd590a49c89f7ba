"""What a model's outputs say of a sample, in the terms of judge/prediction_metrics.py; and how good they are of every
single one, where models are scored and chosen by a metric that has a name (--metric)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..core import Task
from ..data.clients import Clients
from ..data.inputs import Inputs
from ..judge.prediction_metrics import LEAST_PROBABILITY, NUMBERS, PROBABILITIES, SCORES, Predicted

_WORST_MARGIN = 10.0  # a sample that is more wrong counts as this


def kind_of(task: Task, data: Clients) -> str:
    """What the models' outputs are: numbers, probabilities (their softmax), or scores of classes."""
    if data.classes is None:
        return NUMBERS
    return PROBABILITIES if task.kind == "cross-entropy" and not data.y.is_floating_point() else SCORES


def predicted(kind: str, y: np.ndarray, output: np.ndarray, inputs: Inputs | None = None) -> Predicted:
    """Targets as a client has them, and a model's outputs [n, k] or [n] for them."""
    if kind == NUMBERS:
        numbers = [v.reshape(len(y)).astype(np.float64) for v in (y, output)]
        truth, said = numbers if inputs is None else [inputs.in_units(v) for v in numbers]
        return Predicted(truth, said, NUMBERS)
    if y.dtype.kind == "f":  # −1/+1
        margin = output.reshape(len(y))
        return Predicted((y > 0).astype(np.int64), np.stack([-margin, margin], 1), SCORES)
    if kind == SCORES:
        both = output - output[:, ::-1] if output.shape[1] == 2 else output  # of two, what ranks is the difference
        return Predicted(y, both, SCORES)
    weights = np.exp(output - output.max(1, keepdims=True)) if len(y) else output
    return Predicted(y, weights / weights.sum(1, keepdims=True), PROBABILITIES)


# What each named metric is of a single sample, where it is that of one; else what stands for it.
EACH = {
    "log-loss": "−log loss",
    "auroc": "−log loss",
    "auprc": "−log loss",
    "brier": "−Brier score",
    "balanced-accuracy": "right answers, every class with the same weight",
    "f1": "right answers, every class with the same weight",
    "mae": "−|error|",
    "rmse": "−error²",
}


def merit_of_each(metric: str, kind: str, output: Tensor, y: Tensor, share: Tensor) -> Tensor:
    """[a, b] how good a prediction is of each sample, the higher the better, as EACH has it: outputs [a, b, k], targets
    [a, b]; share [a, k]: of each client's validation samples those of each class, times the classes it has.

    AUROC, AUPRC and F1 are of many samples together. Ranking well takes good probabilities, so the log loss stands for
    the first two (cut off where the true class has less than 10⁻⁶; margins: the hinge loss, cut off at 10). In the mean
    over a client's samples the others are the metric itself (rmse: its square).
    """
    if kind == NUMBERS:
        off = (output.reshape(y.shape) - y).double()
        return -off.abs() if metric == "mae" else -(off**2)
    scores, truth = output.double(), y
    if y.is_floating_point():
        margin = output.reshape(y.shape).double()
        scores, truth = torch.stack([-margin, margin], -1) / 2, (y > 0).long()
    if metric in ("balanced-accuracy", "f1"):
        right = (scores.argmax(-1) == truth).double()
        return right / share.gather(1, truth)
    own = scores.gather(-1, truth[..., None])[..., 0]
    if kind == SCORES:
        others = scores.scatter(-1, truth[..., None], -torch.inf).amax(-1)
        return -(1 - (own - others)).clamp(0, _WORST_MARGIN)
    p = scores.softmax(-1)
    if metric == "brier":
        off = p - torch.nn.functional.one_hot(truth, p.shape[-1])
        return -(off[..., 1] ** 2) if p.shape[-1] == 2 else -(off**2).sum(-1)
    return p.gather(-1, truth[..., None])[..., 0].clamp(min=LEAST_PROBABILITY).log()
