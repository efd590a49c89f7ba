"""scikit-learn estimators: `fit(X, y, groups=hospital)`, `predict(X, groups=hospital)`.

A group is a client. Each trains on its own rows and is served by its own (chosen) model; a group that was not there in
`fit` is served by the global model, or where the method has none by the average of what all groups' models say. Without
groups all rows are one client's, which is training alone. A data frame (pandas, pyarrow) may hold text, dates and gaps:
its columns become what those of a file do (docs/own-data.md). To pass groups through Pipeline or GridSearchCV, switch
on scikit-learn's metadata routing (docs/own-data.md) and split within groups (`WithinGroups`): GroupKFold holds whole
groups out, and so measures the cold start, not the personal models.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import joblib  # type: ignore[import-untyped]
import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    check_random_state,
    column_or_1d,
    validate_data,
)
from torch import nn

from . import models
from .core import Method
from .data.dataset import Dataset
from .data.tables.columns import Column, learn
from .data.tables.objects import as_source
from .data.tables.own_data import as_text, features_like, features_of
from .data.tables.scan import is_number, to_numbers
from .errors import SartorError, need, one_of
from .run.assemble import prepare
from .run.complete import TYPES
from .run.export import said
from .run.named_parts import method_from
from .run.recipe import Evaluation, Execution, Federation, Recipe
from .run.result import Result
from .run.rounds import play


class WithinGroups(BaseCrossValidator):  # type: ignore[misc]
    """Folds that cut through every group: each group's rows are shuffled and dealt out to `n_splits` test sets.

    For example:

        >>> X, y, hospital = [[0.0], [1.0]] * 40, [0, 1] * 40, ["north"] * 40 + ["south"] * 40
        >>> train, test = next(st.WithinGroups(n_splits=4).split(X, y, groups=hospital))
        >>> [hospital[row] for row in test].count("north"), len(train), len(test)
        (10, 60, 20)
    """

    __metadata_request__split = {"groups": True}  # noqa: RUF012 (scikit-learn's form)

    def __init__(self, n_splits: int = 5, random_state: int = 0) -> None:
        need(n_splits >= 2, f"WithinGroups needs n_splits >= 2; got {n_splits}.")
        self.n_splits, self.random_state = n_splits, random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """How many folds there are."""
        return self.n_splits

    def _iter_test_indices(self, X: Any = None, y: Any = None, groups: Any = None) -> Iterator[np.ndarray]:
        need(groups is not None, "WithinGroups needs groups: one value for each row.")
        fold, draw = np.empty(len(groups), dtype=np.int64), np.random.default_rng(self.random_state)
        _, place = np.unique(np.asarray(groups), return_inverse=True)
        for group in range(place.max() + 1):
            rows = draw.permutation(np.flatnonzero(place == group))
            fold[rows] = (np.arange(len(rows)) + draw.integers(self.n_splits)) % self.n_splits
        for k in range(self.n_splits):
            yield np.flatnonzero(fold == k)


class _Personalized(BaseEstimator):  # type: ignore[misc]
    """What both estimators share. See the module."""

    def __init__(
        self,
        method: str | Method = "flame",
        *,
        model: str | nn.Module = "auto",
        rounds: int = Recipe.rounds,
        lr: float | None = None,
        epochs: int | None = None,
        batch: int | None = None,
        lam: float | None = None,
        speed: float | None = None,
        rho: float | None = None,
        settings: Mapping[str, Any] | None = None,
        cohort: int | None = Recipe.cohort,
        scale: str = "pooled",
        validation: float = 0.1,
        loss: str | Callable[..., Any] | None = None,
        engine: str = Recipe.engine,
        dtype: str = "float32",
        random_state: Any = 0,
    ) -> None:
        self.method, self.model, self.rounds = method, model, rounds
        self.lr, self.epochs, self.batch, self.lam = lr, epochs, batch, lam
        self.speed, self.rho = speed, rho
        self.settings, self.cohort, self.scale, self.validation = settings, cohort, scale, validation
        self.loss, self.engine, self.dtype, self.random_state = loss, engine, dtype, random_state

    # --- fitting ------------------------------------------------------------------------------------------------------

    def _read(self, X: Any, y: Any, y_numeric: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Features and targets; sets what scikit-learn's users look at: feature_names_in_, n_features_in_."""
        self.columns_: tuple[Column, ...] = ()
        if not _has_text_or_gaps(X):
            X, y = validate_data(self, X, y, y_numeric=y_numeric)
            return X, y
        one_of(type(self).__name__, "dtype", self.dtype, TYPES)
        source = as_source("X", X)
        features, self.columns_ = features_of(source, self.dtype)
        self.feature_names_in_ = np.array(source.columns, dtype=object)
        self.n_features_in_ = len(source.columns)
        return features, self._targets(features, y, y_numeric)

    def _targets(self, X: np.ndarray, y: Any, y_numeric: bool) -> np.ndarray:
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        found: np.ndarray = np.asarray(y, dtype=np.float64) if y_numeric else as_text(y)
        missing = not np.isfinite(found).all() if found.dtype.kind == "f" else any(v is None or v != v for v in found)
        need(not missing, "some targets in y are missing, NaN or Inf; drop those rows first.")
        return found

    def _features(self, X: Any) -> np.ndarray:
        """Later rows as those of fit were read."""
        if not self.columns_:
            found: np.ndarray = validate_data(self, X, reset=False)
            return found
        need(
            hasattr(X, "columns"),
            f"fit was given a table with the columns {', '.join(self.feature_names_in_)}; give one here, not an array.",
        )
        return features_like(as_source("X", X), self.columns_, self.dtype)

    def fitting(self, X: Any, y: Any, groups: Any = None) -> Iterator[Result]:
        """Fit round by round; yields the run as it stands."""
        raise NotImplementedError

    def mark(self, X: Any, y: Any, groups: Any) -> str:
        """What says that a fit is the same: settings and rows."""
        found: str = joblib.hash((sorted(self.get_params().items()), X, y, groups))
        return found

    def _fitted(self, X: Any, y: Any, groups: Any) -> Any:
        """Fit, or take over what a search has fitted ahead (search.py)."""
        ahead = self.__dict__.pop("ahead", {})
        if ahead and (made := ahead.get(self.mark(X, y, groups))) is not None:
            settings = self.get_params(deep=False)
            self.__dict__.update({k: v for k, v in vars(made).items() if k not in settings})
            return self
        for _ in self.fitting(X, y, groups):
            pass
        return self

    def __sklearn_clone__(self) -> Any:
        made = super().__sklearn_clone__()
        if "ahead" in self.__dict__:
            made.ahead = self.ahead
        return made

    def _playing(self, X: np.ndarray, y: np.ndarray, classes: int | None, groups: Any) -> Iterator[Result]:
        need(0 <= self.validation < 1, f"validation is a share of each group's rows in [0, 1); got {self.validation}.")
        one_of(type(self).__name__, "dtype", self.dtype, TYPES)
        keys = np.zeros(len(X), dtype=np.int64)
        self.groups_ = np.array([None], dtype=object)
        if groups is not None:
            self.groups_, keys = np.unique(_groups(groups, len(X)), return_inverse=True)
        columns = self.columns_ or tuple(Column(f"x{i}", "number") for i in range(X.shape[1]))
        data = Dataset(X.astype(self.dtype), y, classes, "X", keys, columns=columns)
        parts, seed = (1 - self.validation, self.validation, 0.0), self._seed()
        target = "raw" if callable(self.loss) else "pooled"  # a loss of the user's own means the user's own units
        clients = data.split("natural", None, seed, parts, 1, TYPES[self.dtype], columns=self.scale, target=target)
        result = prepare(
            self._method(),
            self._model(X.shape[1], 1 if classes is None else classes),
            clients,
            self.rounds,
            seed=seed,
            loss=self.loss,
            federation=Federation(cohort=self.cohort),
            execution=Execution(engine=self.engine, workers=1, dtype=self.dtype),
            evaluation=Evaluation(evaluate_every=self.rounds, diagnostics=False),
        )
        yield result
        for _ in play(result.run, self.rounds, evaluate_every=self.rounds):
            yield result
        assert clients.inputs is not None
        self._result, self.inputs_ = result, clients.inputs
        self.models_ = [result.chosen(i) for i in range(len(clients))]
        common = result._common("global")
        self.global_ = None if common is None else result.shared()
        self.guests_: dict[Any, tuple[nn.Module, Any]] = {}

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _method(self) -> Method:
        own = {k: v for k in ("lam", "speed", "rho") if (v := getattr(self, k)) is not None}
        solver = {k: v for k, v in (("lr", self.lr), ("epochs", self.epochs), ("batch", self.batch)) if v is not None}
        if isinstance(self.method, str):
            return method_from(self.method, {**(self.settings or {}), **own}, solver)
        given = [*own, *solver, *(self.settings or {})]
        need(not given, f"a method that is an object has its settings already; got {', '.join(given)} beside it.")
        return self.method

    def _model(self, features: int, outputs: int) -> nn.Module:
        if isinstance(self.model, nn.Module):
            return copy.deepcopy(self.model)
        auto = "linear" if isinstance(self, RegressorMixin) else "mlp"
        return models.build(auto if self.model == "auto" else self.model, (features,), outputs)

    def adapt(self, X: Any, y: Any, group: Any, steps: int = 10) -> Any:
        """Give a group that was not there in `fit` a model of its own, from its labelled rows, as the method's cold
        start has it; nothing of the others changes. From ten rows on, its numbers are scaled by its own statistics."""
        check_is_fitted(self)
        need(hasattr(self, "_result"), "adapt needs the estimator as it was fitted: a copy from a file lacks the data.")
        need(group not in list(self.groups_), f"group {group!r} has a model already: it took part in fit.")
        if self.columns_:
            X = self._features(X)
            y = self._targets(X, y, isinstance(self, RegressorMixin))
        else:
            X, y = validate_data(self, X, y, reset=False)
        inputs, client = self.inputs_, None
        if self.scale == "own" and len(X) >= 10:
            inputs, client = inputs.with_own(learn(X, [slice(0, len(X))], inputs.columns, "own")), 0
        ready = inputs.ready(np.asarray(X, dtype=np.float64), client, TYPES[self.dtype])
        targets = inputs.scaled_target(self._encoded(y))
        self.guests_[group] = self._result.newcomer((ready.numpy(), targets), steps), (inputs, client)
        return self

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_result", None)  # the federation with everyone's data stays here
        state.pop("ahead", None)
        return state

    # --- predicting ---------------------------------------------------------------------------------------------------

    def _said(self, X: Any, groups: Any) -> np.ndarray:
        """[n, k] probabilities or values, each row by its group's model."""
        check_is_fitted(self)
        X = self._features(X)
        if groups is None:  # the one client of a fit without groups; else a group that nobody knows
            return self._by(None, X)
        groups = _groups(groups, len(X))
        out: np.ndarray | None = None
        for group in np.unique(groups):
            rows = np.flatnonzero(groups == group)
            said = self._by(group, X[rows])
            out = np.empty((len(X), said.shape[1])) if out is None else out
            out[rows] = said
        assert out is not None
        return out

    def _by(self, group: Any, X: np.ndarray) -> np.ndarray:
        if group in self.guests_:
            module, (inputs, client) = self.guests_[group]
            return _outputs(module, inputs, client, X, TYPES[self.dtype])
        place = [i for i, known in enumerate(self.groups_) if known == group]
        if not place:
            return self._unknown(X)
        return _outputs(self.models_[place[0]], self.inputs_, place[0], X, TYPES[self.dtype])

    def _unknown(self, X: np.ndarray) -> np.ndarray:
        """What rows of a group that took no part are told."""
        if self.global_ is not None:
            return _outputs(self.global_, self.inputs_, None, X, TYPES[self.dtype])
        each = [_outputs(m, self.inputs_, i, X, TYPES[self.dtype]) for i, m in enumerate(self.models_)]
        mean: np.ndarray = np.mean(each, axis=0)
        return mean

    def _encoded(self, y: np.ndarray) -> np.ndarray:
        return y


class PersonalizedClassifier(ClassifierMixin, _Personalized):  # type: ignore[misc]
    """A classifier with a model for each group, trained by a personalised federated method.

    `method` is a name (sartor list methods) or an object; `lam`, `speed`, `rho` and `settings` are its settings, `lr`,
    `epochs` and `batch` its solver's. `scale`: features to scale by all groups' rows ("pooled"), by the group's "own",
    or "raw". `validation` of each group's rows are kept to choose between its personal model, the global one and
    mixtures. In fit, X is an array of numbers or a data frame, which may hold text, dates and gaps.

        >>> X, y, hospital = [[0.0], [1.0]] * 40, [0, 1] * 40, ["north"] * 40 + ["south"] * 40
        >>> model = st.PersonalizedClassifier(method="ditto", rounds=5).fit(X, y, groups=hospital)
        >>> model.predict([[0.0], [1.0]], groups=["north", "south"]).tolist()
        [0, 1]
    """

    def fit(self, X: Any, y: Any, groups: Any = None) -> PersonalizedClassifier:
        """Train; `groups` says whose each row is. Without it all rows are one client's."""
        self._fitted(X, y, groups)
        return self

    def fitting(self, X: Any, y: Any, groups: Any = None) -> Iterator[Result]:
        """Fit round by round; yields the run as it stands."""
        X, y = self._read(X, y)
        check_classification_targets(y)
        self.classes_, place = np.unique(y, return_inverse=True)
        yield from self._playing(X, place.astype(np.int64), len(self.classes_), groups)

    def predict_proba(self, X: Any, groups: Any = None) -> np.ndarray:
        """[n, classes], each row by its group's model."""
        return self._said(X, groups)

    def predict(self, X: Any, groups: Any = None) -> np.ndarray:
        """[n], each row by its group's model."""
        found = self._said(X, groups).argmax(1)
        labels: np.ndarray = self.classes_[found]
        return labels

    def score(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> float:
        """The accuracy over all rows."""
        return float(accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def _encoded(self, y: np.ndarray) -> np.ndarray:
        known = np.isin(y, self.classes_)
        need(bool(known.all()), f"the classes are {', '.join(map(str, self.classes_))}; got {y[~known][:1]}.")
        place: np.ndarray = np.searchsorted(self.classes_, y)
        return place


class PersonalizedRegressor(RegressorMixin, _Personalized):  # type: ignore[misc]
    """A regressor with a model for each group; the parameters are those of PersonalizedClassifier. Models learn y to
    scale, by the mean and standard deviation of all groups' rows; predictions are in the units of y. A `loss` of your
    own is given y as it is.

        >>> X, y, hospital = [[0.0], [1.0]] * 40, [5.0, 7.0] * 40, ["north"] * 40 + ["south"] * 40
        >>> model = st.PersonalizedRegressor(method="ditto", rounds=5).fit(X, y, groups=hospital)
        >>> model.predict([[1.0]], groups=["north"]).round().tolist()
        [7.0]
    """

    def fit(self, X: Any, y: Any, groups: Any = None) -> PersonalizedRegressor:
        """Train; `groups` says whose each row is. Without it all rows are one client's."""
        self._fitted(X, y, groups)
        return self

    def fitting(self, X: Any, y: Any, groups: Any = None) -> Iterator[Result]:
        """Fit round by round; yields the run as it stands."""
        X, y = self._read(X, y, y_numeric=True)
        yield from self._playing(X, np.asarray(y, dtype=np.float64), None, groups)

    def predict(self, X: Any, groups: Any = None) -> np.ndarray:
        """[n], each row by its group's model."""
        return self._said(X, groups)[:, 0]

    def score(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> float:
        """R² over all rows."""
        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))


@torch.no_grad()
def _outputs(module: nn.Module, inputs: Any, client: int | None, X: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    x = inputs.ready(np.ascontiguousarray(X), client, dtype)
    return said(module(x), inputs)


def _has_text_or_gaps(X: Any) -> bool:
    """Whether this is a data frame that scikit-learn would not take as numbers."""
    if not hasattr(X, "columns"):
        return False
    table = as_source("X", X)
    for batch in table.batches():
        for values in batch.columns:
            numbers = is_number(values.type) or str(values.type) == "bool"
            if not numbers or values.null_count or np.isnan(to_numbers(values)).any():
                return True
    return False


def _groups(groups: Any, n: int) -> np.ndarray:
    found = np.asarray(groups)
    need(found.ndim == 1 and len(found) == n, f"groups are one value per row; got shape {found.shape} for {n} rows.")
    if found.dtype.kind == "O":
        if any(g is None or g != g for g in found):
            raise SartorError("groups hold missing values; say whose each row is.")
        kinds = {type(g) for g in found}
        need(len(kinds) == 1, f"groups mix {' and '.join(sorted(k.__name__ for k in kinds))}; bring them to one type.")
        found = found.astype(str) if kinds == {str} else found
    need(found.dtype.kind != "f" or not np.isnan(found).any(), "groups hold missing values; say whose each row is.")
    return found
