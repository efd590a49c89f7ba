"""AUROC, AUPRC, log loss, calibration, MAE and the rest of what practitioners report, of a model's predictions.

What each of them is; metric_intervals.py computes them. Values are scikit-learn's, but for the expected calibration
error, which it does not have. Where a metric is not defined for some samples (AUROC where all are of one class) it is
None, and `missing` says why.

    AUROC, AUPRC     of the second class in sorted order where there are two; else the mean over the classes that occur,
                     each against the rest (one-vs-rest, macro)
    sensitivity      recall of the second class in sorted order; specificity: recall of the first; two classes only
    balanced accuracy, macro F1     means over the classes that occur (F1: or are predicted)
    Brier            mean squared error of the second class's probability; with more classes summed over all of them
    ECE              10 even bins of the highest probability: mean |share that is right − mean probability|
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# What a model says of a sample: a probability of each class; a score of each class that is none (margins of an SVM,
# outputs under a loss of one's own); or a number.
PROBABILITIES, SCORES, NUMBERS = "probabilities", "scores", "numbers"
_CLASSES = (PROBABILITIES, SCORES)
BINS = 10  # of the expected calibration error
LEAST_PROBABILITY = 1e-6  # below it a log loss of a single sample is cut off, where models are chosen by it


class Predicted(NamedTuple):
    """What a model said of n samples, and what was true."""

    y: np.ndarray  # [n] classes 0..k−1, or numbers
    said: np.ndarray  # [n, k] probabilities or scores of the classes, or [n] numbers
    kind: str
    answers: np.ndarray | None = None  # [n] the classes that were decided for, where a threshold decides

    @property
    def classes(self) -> np.ndarray:
        """[n] the classes that were predicted: those of the highest probability or score, if nothing else decides."""
        return self.first if self.answers is None else self.answers

    @property
    def first(self) -> np.ndarray:
        """[n] the classes of the highest probability or score."""
        found: np.ndarray = self.said.argmax(1)
        return found

    @property
    def confidence(self) -> np.ndarray:
        """[n] the probabilities of the most probable classes."""
        found: np.ndarray = self.said.max(1)
        return found


def together(each: Sequence[Predicted]) -> Predicted:
    """What was said of all clients' samples, one client after the other."""
    y, said = (np.concatenate([getattr(p, name) for p in each]) for name in ("y", "said"))
    decided = any(p.answers is not None for p in each)
    return Predicted(y, said, each[0].kind, np.concatenate([p.classes for p in each]) if decided else None)


class Metric(NamedTuple):
    """A metric by name."""

    title: str
    kinds: tuple[str, ...]  # what it can be computed of
    higher: bool = True  # the higher the better
    two: bool = False  # for two classes only

    def fits(self, kind: str, classes: int | None) -> bool:
        """Whether it says anything about such predictions."""
        return kind in self.kinds and (not self.two or classes == 2)

    @property
    def sign(self) -> float:
        """What makes of it a score that is the higher the better."""
        return 1.0 if self.higher else -1.0

    @property
    def score(self) -> str:
        """What that score is called."""
        return self.title if self.higher else f"−{self.title}"


def missing(name: str, predicted: Predicted) -> str:
    """Why a metric is not defined for some predictions: "one class only"; empty: it is."""
    y = predicted.y
    if not len(y):
        return "no test samples"
    if not np.isfinite(predicted.said).all():
        return "predictions that are not finite"
    if name in ("auroc", "auprc") and (y == y[0]).all():
        return "one class only"
    if name == "sensitivity" and not (y == 1).any():
        return "no sample of the second class"
    if name == "specificity" and not (y == 0).any():
        return "no sample of the first class"
    if name == "r2" and np.ptp(y) <= 1e-12 * np.abs(y).max():
        return "targets that are all alike"
    return ""


def brier_of_each(p: Predicted) -> np.ndarray:
    """[n] the squared error of each sample's probabilities; of two classes that of the second."""
    off = p.said - (p.y[:, None] == np.arange(p.said.shape[1]))
    found: np.ndarray = off[:, 1] ** 2 if p.said.shape[1] == 2 else (off**2).sum(1)
    return found


def bins_of(p: Predicted) -> np.ndarray:
    """[n] the bin of each sample's confidence."""
    found: np.ndarray = np.minimum((p.confidence * BINS).astype(np.int64), BINS - 1)
    return found


METRICS: dict[str, Metric] = {
    "auroc": Metric("AUROC", _CLASSES),
    "auprc": Metric("AUPRC", _CLASSES),
    "accuracy": Metric("accuracy", _CLASSES),
    "balanced-accuracy": Metric("balanced accuracy", _CLASSES),
    "sensitivity": Metric("sensitivity", _CLASSES, two=True),
    "specificity": Metric("specificity", _CLASSES, two=True),
    "f1": Metric("macro F1", _CLASSES),
    "log-loss": Metric("log loss", (PROBABILITIES,), higher=False),
    "brier": Metric("Brier score", (PROBABILITIES,), higher=False),
    "ece": Metric("ECE", (PROBABILITIES,), higher=False),
    "mae": Metric("MAE", (NUMBERS,), higher=False),
    "rmse": Metric("RMSE", (NUMBERS,), higher=False),
    "r2": Metric("R²", (NUMBERS,)),
}
# What a run can go by (--metric). The others say something of a model, but not how good it is.
CHOOSABLE = ("accuracy", "auroc", "auprc", "balanced-accuracy", "f1", "log-loss", "brier", "r2", "mae", "rmse")


def fitting(kind: str, classes: int | None) -> list[str]:
    """The metrics of such predictions."""
    return [name for name, metric in METRICS.items() if metric.fits(kind, classes)]


def score_name(metric: str | None, classes: bool | None = None) -> str:
    """What the score is called that models are compared by: of a named metric, else accuracy or R², where it is known
    which of them."""
    if metric is not None and metric in METRICS:
        return METRICS[metric].score
    return "accuracy (R² for regression)" if classes is None else "accuracy" if classes else "R²"


# --- more than a number -----------------------------------------------------------------------------------------------


def confusion(p: Predicted) -> list[list[int]]:
    """[k, k] how many samples of each class (rows) were predicted to be of each (columns)."""
    k = p.said.shape[1]
    found: list[list[int]] = np.bincount(p.y * k + p.classes, minlength=k * k).reshape(k, k).tolist()
    return found


def reliability(p: Predicted) -> list[dict[str, float | int]]:
    """By bin of confidence that has samples: its bounds, how many there are, how sure the model is of them in the mean,
    and which share of them it predicts rightly."""
    at, right = bins_of(p), p.first == p.y
    rows: list[dict[str, float | int]] = []
    for i in np.unique(at):
        here = at == i
        rows.append({"from": i / BINS, "to": (i + 1) / BINS, "samples": int(here.sum())})
        rows[-1] |= {"confidence": float(p.confidence[here].mean()), "right": float(right[here].mean())}
    return rows
