"""What people would use instead of federated learning: plain scikit-learn models, of all data together or of each
client's alone, scored on the same test samples.

    pooled-linear   one logistic regression (ridge regression for numbers) of everybody's samples
    local-linear    one for each client, of its own samples
    own-intercept-linear    the pooled one with a column for each client
    shrunk-linear   the pooled one, and each client's deviations from it, held near zero: a column for each client and
                    feature beside the common ones
    pooled-trees    one gradient-boosted forest of everybody's samples, with the client as a categorical feature
    local-trees     one for each client

They learn from training and validation samples together, which is all that a federated client may look at, too; the
penalty of a linear model is chosen inside these, by five folds (ridge: leave-one-out). Features are those that the
federated models are given. None of them is federated: pooled ones need everybody's data in one place.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..data.clients import Clients
from ..engines.predictions import predicted
from ..errors import unknown
from ..judge.metric_intervals import values
from ..judge.prediction_metrics import METRICS, NUMBERS, PROBABILITIES, Predicted
from ..seeds import stream

MARK = "reference, not federated"
_PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)  # C of a logistic regression
_ALPHAS = tuple(10.0**e for e in np.arange(-2, 4.5, 0.5))  # of a ridge regression
_FOLDS = 5
_FOLDED = 5000  # samples that a penalty is chosen by, of those that there are
_CATEGORIES = 255  # that a boosted forest can tell apart; more clients than that are a number to it
_STOPPED_EARLY = 10_000  # samples above which scikit-learn's trees hold some back to stop by, of every class
_PASSES = 500

Arrays = tuple[np.ndarray, np.ndarray]
Model = Callable[[np.ndarray], np.ndarray]  # features [n, f] → probabilities [n, k], or numbers [n]


class Reference(NamedTuple):
    """A reference's scores by client, and what it said of every client's test samples."""

    name: str
    scores: dict[str, np.ndarray]  # "accuracy" (R² for numbers; or the named metric) and "loss" [m]; NaN: no samples
    predicted: list[Predicted]
    seconds: float


def reference(name: str, clients: Clients, seed: int = 0, metric: str | None = None) -> Reference:
    """Fit a reference on the clients and score it on their test samples; `metric`: in place of accuracy or R².

    Where targets are −1/+1 the loss is the hinge loss of the log-odds.
    """
    if name not in REFERENCES:
        raise unknown("reference", name, REFERENCES)
    began = time.perf_counter()
    where, fit = REFERENCES[name]
    k = clients.classes
    learn = [_rows(clients, i, "train", "validation") for i in range(len(clients))]
    tests = [_rows(clients, i, "test") for i in range(len(clients))]
    kind = NUMBERS if k is None else PROBABILITIES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fit that stops before it has converged to the last digit
        if where == "both":
            model = fit([x for x, _ in learn], np.concatenate([y for _, y in learn]), k, seed)
            said = model([x for x, _ in tests])
        elif where == "pooled":
            learn, tests = ([_with_client(r, i, name) for i, r in enumerate(rows)] for rows in (learn, tests))
            x, y = (np.concatenate(side) for side in zip(*learn, strict=True))
            categories = x.shape[1] - 1 if name == "pooled-trees" and len(clients) <= _CATEGORIES else None
            model = fit(x, y, k, seed, categories)
            said = [model(x) for x, _ in tests]
        else:
            said = [fit(*rows, k, seed, None)(x) for rows, (x, _) in zip(learn, tests, strict=True)]
    found = [_predicted(kind, y, output, clients) for (_, y), output in zip(tests, said, strict=True)]
    losses = np.array([_loss(clients, p, y, o) for p, (_, y), o in zip(found, tests, said, strict=True)])
    scores = {"accuracy": np.array([score(p, metric) for p in found]), "loss": losses}
    return Reference(name, scores, found, time.perf_counter() - began)


def score(p: Predicted, metric: str | None = None) -> float:
    """Accuracy or R², as a run has it, or the named metric with the sign that makes it the higher the better; NaN where
    there is nothing to score."""
    if not len(p.y):
        return float("nan")
    name = metric or ("r2" if p.kind == NUMBERS else "accuracy")
    found = values([name], p)[name]
    if found is None and name == "r2":  # all targets alike: 1 where they are met, else 0
        return float(bool(((p.said - p.y) ** 2).sum() <= 1e-12 * (1 + (p.y**2).sum())))
    return float("nan") if found is None else METRICS[name].sign * found


def _rows(clients: Clients, client: int, *parts: str) -> Arrays:
    """Features [n, f] and targets [n] of a client; classes are 0..k−1, also where they are −1/+1."""
    rows = np.concatenate([np.r_[clients.rows(client, part)] for part in parts]).astype(np.int64)
    x = clients.x[rows].flatten(1).double().cpu().numpy()
    y = clients.y[rows].cpu().numpy()
    if clients.classes is None:
        return x, y.astype(np.float64)
    return x, (y > 0).astype(np.int64) if y.dtype.kind == "f" else y


def _with_client(rows: Arrays, client: int, name: str) -> Arrays:
    """The same, for trees with the client's number as a last feature."""
    x, y = rows
    return (np.column_stack([x, np.full(len(x), float(client))]) if name == "pooled-trees" else x), y


def _predicted(kind: str, y: np.ndarray, output: np.ndarray, clients: Clients) -> Predicted:
    return predicted(NUMBERS, y, output, clients.inputs) if kind == NUMBERS else Predicted(y, output, kind)


def _loss(clients: Clients, p: Predicted, y: np.ndarray, output: np.ndarray) -> float:
    """The mean loss on test samples, as the federated models have it."""
    if not len(y):
        return float("nan")
    if p.kind == NUMBERS:
        return float((0.5 * (output - y) ** 2).mean())
    own = np.clip(output[np.arange(len(y)), y], np.finfo(float).eps, 1 - np.finfo(float).eps)
    if clients.y.is_floating_point():
        return float(np.maximum(0, 1 - np.log(own / (1 - own))).mean())
    return float(-np.log(own).mean())


# --- models -----------------------------------------------------------------------------------------------------------


def _linear(x: np.ndarray, y: np.ndarray, k: int | None, seed: int, categories: int | None) -> Model:
    from sklearn.linear_model import LogisticRegression, RidgeCV

    if k is None:
        if len(y) < 3:
            return _constant(y)
        ridge = RidgeCV(alphas=_ALPHAS).fit(x, y)
        return lambda new: np.asarray(ridge.predict(new)) if len(new) else np.zeros(0)
    if len(np.unique(y)) == 1:
        return _frequencies(y, k)

    def fitted(x: np.ndarray, y: np.ndarray, penalty: float) -> Any:
        return LogisticRegression(C=penalty, max_iter=_PASSES).fit(x, y)

    best = _penalty(fitted, x, y, seed)
    return _classifier(fitted(x, y, best), y, k)


def _penalty(fitted: Callable[..., Any], x: np.ndarray, y: np.ndarray, seed: int) -> float:
    """The penalty with the lowest log loss in five folds; 1 where a class has a single sample. Of equals the first."""
    from sklearn.model_selection import StratifiedKFold

    if len(y) > _FOLDED:
        some = stream(seed, "reference").permutation(len(y))[:_FOLDED]
        x, y = x[some], y[some]
        x, y = _common(x, y)
    folds = min(_FOLDS, int(np.unique(y, return_counts=True)[1].min()))
    if folds < 2:
        return 1.0
    losses = dict.fromkeys(_PENALTIES, 0.0)
    for learn, check in StratifiedKFold(folds, shuffle=True, random_state=seed % 2**32).split(x, y):
        for penalty in _PENALTIES:
            model = fitted(x[learn], y[learn], penalty)
            losses[penalty] += float(_log_losses(model, x[check], y[check]).sum())
    return min(losses, key=lambda penalty: losses[penalty])


def _common(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Without samples that are the only ones of their class: they cannot be on both sides of a cut."""
    common = np.isin(y, np.flatnonzero(np.bincount(y) > 1))
    return x[common], y[common]


def _log_losses(model: Any, x: Any, y: np.ndarray) -> np.ndarray:
    """[n] of samples whose classes the model has seen."""
    own = model.predict_proba(x)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    found: np.ndarray = -np.log(np.maximum(own, np.finfo(float).eps))
    return found


def _trees(x: np.ndarray, y: np.ndarray, k: int | None, seed: int, categories: int | None) -> Model:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    own: dict[str, Any] = {"random_state": seed % 2**32}
    own |= {"categorical_features": None if categories is None else [categories]}
    if k is None:
        if len(y) < 2:
            return _constant(y)
        forest = HistGradientBoostingRegressor(**own).fit(x, y)
        return lambda new: np.asarray(forest.predict(new)) if len(new) else np.zeros(0)
    if len(y) > _STOPPED_EARLY:  # by a tenth of the samples
        x, y = _common(x, y)
    if len(np.unique(y)) == 1:
        return _frequencies(y, k)
    return _classifier(HistGradientBoostingClassifier(**own).fit(x, y), y, k)


def _constant(y: np.ndarray) -> Model:
    return lambda new: np.full(len(new), y.mean())


def _frequencies(y: np.ndarray, k: int) -> Model:
    """Of one class alone nothing can be learnt but how often it occurs: (n + 1)/(n + k), by the rule of succession."""
    p = (np.bincount(y, minlength=k) + 1) / (len(y) + k)
    return lambda new: np.tile(p, (len(new), 1))


def _classifier(model: Any, y: np.ndarray, k: int) -> Model:
    """Its probabilities [n, k]; a class that it has never seen has 1/(n + k), by the rule of succession."""
    seen = np.asarray(model.classes_)
    rare = 1 / (len(y) + k)

    def probabilities(new: np.ndarray) -> np.ndarray:
        out = np.full((new.shape[0], k), rare)
        if new.shape[0]:
            out[:, seen] = model.predict_proba(new) * (1 - rare * (k - len(seen)))
        return out

    return probabilities


# --- linear models with columns of clients' own -----------------------------------------------------------------------


def _with_columns(
    xs: list[np.ndarray], y: np.ndarray, k: int | None, seed: int, slopes: bool
) -> Callable[[list[np.ndarray]], list[np.ndarray]]:
    """A ridge or logistic regression of the features, of a column for each client and, with `slopes`, of a column for
    each client and feature; these are divided by what decides how near deviations are held. That, and the penalty, by a
    fifth of the samples."""
    from sklearn.linear_model import LogisticRegression, Ridge

    draw = stream(seed, "reference")
    check = draw.random(len(y)) < 1 / _FOLDS

    def fitted(x: Any, y: np.ndarray, penalty: float) -> Any:
        if k is None:
            return Ridge(alpha=1 / penalty, solver="lsqr").fit(x, y)
        return LogisticRegression(C=penalty, max_iter=_PASSES).fit(x, y)

    def error(x: Any, penalty: float) -> float:
        model = fitted(x[~check], y[~check], penalty)
        if k is None:
            return float(((model.predict(x[check]) - y[check]) ** 2).mean())
        known = np.isin(y[check], model.classes_)
        return float(_log_losses(model, x[check][known], y[check][known]).mean())

    wide = {scale: _columns(xs, scale, slopes) for scale in ((0.1, 0.3, 1.0) if slopes else (10.0,))}
    tried = [(scale, penalty) for scale in wide for penalty in _PENALTIES]
    scale, penalty = min(tried, key=lambda one: error(wide[one[0]], one[1]))
    model = fitted(wide[scale], y, penalty)

    def said(news: list[np.ndarray]) -> list[np.ndarray]:
        x, ends = _columns(news, scale, slopes), np.cumsum([0, *map(len, news)])
        found = np.asarray(model.predict(x)) if k is None else _classifier(model, y, k)(x)
        return [found[a:b] for a, b in pairwise(ends)]

    return said


def _columns(xs: list[np.ndarray], scale: float, slopes: bool) -> Any:
    """[n, columns], sparse: the features, then each client's own columns times `scale`."""
    from scipy import sparse

    ones = [np.ones((len(x), 1)) for x in xs]
    own = sparse.block_diag([np.column_stack([x, one]) if slopes else one for x, one in zip(xs, ones, strict=True)])
    return sparse.hstack([sparse.csr_array(np.concatenate(xs)), scale * own], format="csr")


REFERENCES: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "pooled-linear": ("pooled", _linear),
    "local-linear": ("local", _linear),
    "own-intercept-linear": ("both", partial(_with_columns, slopes=False)),
    "shrunk-linear": ("both", partial(_with_columns, slopes=True)),
    "pooled-trees": ("pooled", _trees),
    "local-trees": ("local", _trees),
}
