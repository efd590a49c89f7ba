"""From a model's probabilities to an answer, by what a client's validation samples say: recalibration and thresholds.

    temperature   p ∝ p^a, one a for each client: sharper (a > 1) or flatter probabilities, the same most probable class
    Platt         of two classes: logit p = a logit p + b
    threshold     of two classes: the second is decided for where its probability is at least t

A client has few validation samples, so what they say is held near what all clients' say together: log a and b of a
client are normal about those of all, with standard deviation 0.5, and those of all about 0, with 1 (which also bounds a
where probabilities are always right). A client's threshold is the best for its own samples and PRIOR samples that speak
as all clients' do in the mean. Nothing here sees test samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import SartorError, need
from .prediction_metrics import PROBABILITIES, Predicted, together

BY_THRESHOLD = ("balanced-accuracy", "accuracy", "f1")  # what a threshold can be the best for
PRIOR = 30  # samples
_LEAST = 1e-12  # a probability that is 0 would stay 0
_NEAR, _FAR = 0.5, 1.0  # standard deviations: of a client about all, of all about no change
_CUTS = np.linspace(0.01, 0.99, 99)


@dataclass(frozen=True)
class Decision:
    """What a client's probabilities go through before they become an answer."""

    scale: float = 1.0  # a
    shift: float = 0.0  # b, of the second class
    threshold: float | None = None  # none: the most probable class

    def probabilities(self, said: np.ndarray) -> np.ndarray:
        """[n, k] → [n, k]."""
        if self.scale == 1.0 and self.shift == 0.0:
            return said
        logits = self.scale * np.log(np.maximum(said, _LEAST))
        logits[:, 1] += self.shift
        weights = np.exp(logits - logits.max(1, keepdims=True))
        found: np.ndarray = weights / weights.sum(1, keepdims=True)
        return found

    def classes(self, probabilities: np.ndarray) -> np.ndarray:
        """[n, k] → [n]."""
        found: np.ndarray = probabilities.argmax(1)
        return found if self.threshold is None else (probabilities[:, 1] >= self.threshold).astype(np.int64)

    def on(self, p: Predicted) -> Predicted:
        """The same samples, decided."""
        said = self.probabilities(p.said)
        return p._replace(said=said, answers=None if self.threshold is None else self.classes(said))

    def plain(self) -> dict[str, Any]:
        """As decisions.json and exported models have it."""
        return dict(vars(self))


def read_threshold(text: str) -> str | float:
    """ "none", "tuned", or a probability."""
    if text in ("none", "tuned"):
        return text
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    need(0 < value < 1, f"--threshold takes none, tuned, or a probability between 0 and 1; got {text!r}.")
    return value


def check(calibrate: str, threshold: str, kind: str, classes: int | None, validation: int) -> None:
    """Refuse what these targets and samples cannot have, before anything is trained."""
    wanted, cut = calibrate != "none", read_threshold(threshold)
    if not wanted and cut == "none":
        return
    what = "--calibrate" if wanted else "--threshold"
    need(kind == PROBABILITIES, f"{what} is for models that give probabilities of classes; these give {kind}.")
    two = calibrate == "platt" or cut != "none"
    need(not two or classes == 2, f"--calibrate platt and --threshold are for two classes; there are {classes}.")
    need(
        validation > 0 or not (wanted or cut == "tuned"),
        f"{what} is set by validation samples, and there are none; see --parts.",
    )


def decisions(calibrate: str, threshold: str, metric: str, seen: Sequence[Predicted]) -> list[Decision]:
    """A decision for each client from its validation samples; `metric`: what a threshold is to be the best for, where
    it depends on one, else balanced accuracy."""
    made = [Decision() for _ in seen]
    if calibrate != "none":
        pooled = _fit(together(seen), calibrate == "platt", np.zeros(2), _FAR)
        fitted = [_fit(p, calibrate == "platt", pooled, _NEAR) for p in seen]
        made = [Decision(float(np.exp(v[0])), float(v[1])) for v in fitted]
    cut = read_threshold(threshold)
    if cut == "none":
        return made
    if cut != "tuned":
        return [Decision(d.scale, d.shift, float(cut)) for d in made]
    by = metric if metric in BY_THRESHOLD else BY_THRESHOLD[0]
    ready = [d.on(p) for d, p in zip(made, seen, strict=True)]
    common = _by_cut(together(ready), by)
    if common is None:
        raise SartorError("--threshold tuned needs validation samples of both classes; all there are are of one.")
    return [Decision(d.scale, d.shift, _best(common, p, by)) for d, p in zip(made, ready, strict=True)]


def _fit(p: Predicted, shifts: bool, about: np.ndarray, spread: float) -> np.ndarray:
    """(log a, b) with the lowest log loss over the samples, normal about `about`."""
    from scipy.optimize import minimize

    if not len(p.y):
        return about
    logs, rows = np.log(np.maximum(p.said, _LEAST)), np.arange(len(p.y))

    def objective(v: np.ndarray) -> tuple[float, np.ndarray]:
        scale = np.exp(v[0])
        z = scale * logs
        z[:, 1] += v[1]
        z -= z.max(1, keepdims=True)
        q = np.exp(z)
        total = q.sum(1, keepdims=True)
        off = q / total
        off[rows, p.y] -= 1.0  # ∂ log loss / ∂ z
        loss = float((np.log(total[:, 0]) - z[rows, p.y]).sum() + (((v - about) / spread) ** 2).sum() / 2)
        slope = np.array([(off * logs).sum() * scale, off[:, 1].sum() if shifts else 0.0]) + (v - about) / spread**2
        return loss, slope

    found: np.ndarray = minimize(objective, about, jac=True, method="BFGS").x
    return found


def _by_cut(p: Predicted, by: str) -> np.ndarray | None:
    """[cuts] how good each threshold is for some samples; None where they do not say."""
    said = p.said[:, 1] >= _CUTS[:, None]
    true = p.y == 1
    if by == "accuracy":
        return (said == true).mean(1) if len(true) else None
    if not true.any() or true.all():
        return None
    hits, rejects = (said & true).sum(1), (~said & ~true).sum(1)
    wrong = (said != true).sum(1)
    found: np.ndarray = (hits / true.sum() + rejects / (~true).sum()) / 2
    return found if by == "balanced-accuracy" else hits / (2 * hits + wrong) + rejects / (2 * rejects + wrong)


def _best(common: np.ndarray, p: Predicted, by: str) -> float:
    """The threshold that is best for a client's samples and PRIOR of everybody's; of equals the one nearest to 1/2."""
    own = _by_cut(p, by)
    value = PRIOR * common + (0.0 if own is None else len(p.y) * own)
    top = np.flatnonzero(value >= value.max() - 1e-9)
    return float(_CUTS[top[np.abs(_CUTS[top] - 0.5).argmin()]])
