"""scikit-learn's grid search, whose fits go in lockstep.

scikit-learn's own loop fits one candidate on one split after the other (or each in a process), and asks nobody what
could be computed at once. So the candidates are fitted before it asks: all of them on all splits, stacked like the
trials of `sartor tune` (run/lockstep.py). An estimator that is fitted with settings and rows that are known takes over
what is there. All else is scikit-learn's: splits, scores, `cv_results_`, the best one fitted again on all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import sklearn
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV as OneByOne
from sklearn.model_selection import ParameterGrid, check_cv
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.metaestimators import _safe_split

from .errors import SartorError
from .run.lockstep import at_once, play_together
from .run.result import Result


class GridSearchCV(OneByOne):  # type: ignore[misc]
    """scikit-learn's GridSearchCV for PersonalizedClassifier and PersonalizedRegressor: the same search, faster where
    models are linear. Networks, other estimators (a Pipeline) and a search with `n_jobs` are fitted one by one.

    `fits_together_` says how many fits went together. Times in `cv_results_` are of taking them over.

        >>> X, y, hospital = [[0.0], [1.0]] * 40, [0, 1] * 40, ["north"] * 40 + ["south"] * 40
        >>> ditto = st.PersonalizedClassifier("ditto", model="softmax", rounds=3)
        >>> search = st.GridSearchCV(ditto, {"lam": [0.1, 1.0]}, cv=2).fit(X, y)
        >>> search.fits_together_
        4
    """

    def fit(self, X: Any, y: Any = None, **params: Any) -> GridSearchCV:
        """Search; as scikit-learn's."""
        self.fits_together_ = 0
        if not hasattr(self.estimator, "fitting") or self.n_jobs not in (None, 1):
            super().fit(X, y, **params)
            return self
        try:
            rows, targets = indexable(X, y)
            self.estimator.ahead = self._fitted(rows, targets, params)
            super().fit(X, y, **params)
        finally:
            self.estimator.__dict__.pop("ahead", None)
        if hasattr(self, "best_estimator_"):
            self.best_estimator_.__dict__.pop("ahead", None)
        return self

    def _fitted(self, X: Any, y: Any, params: dict[str, Any]) -> dict[str, Any]:
        """What is made ahead, by its mark. Whatever fails is left out: scikit-learn meets it again, and decides."""
        own, to_splits = {k: v for k, v in params.items() if k != "groups"}, {"groups": params.get("groups")}
        if sklearn.get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **params)
            own, to_splits = routed.estimator.fit, routed.splitter.split
        if set(own) - {"groups"}:
            return {}
        splits = list(check_cv(self.cv, y, classifier=is_classifier(self.estimator)).split(X, y, **to_splits))
        made: list[tuple[str, Any]] = []
        ready, together = list[tuple[str, Any, Iterator[Result]]](), 0
        for candidate, (train, _) in product(ParameterGrid(self.param_grid), splits):
            try:
                one = clone(self.estimator).set_params(**clone(candidate, safe=False))
                rows = *_safe_split(one, X, y, train), _safe_indexing(own.get("groups"), train) if own else None
                together = together or at_once(next(one.fitting(*rows)).run.engine)
            except Exception:
                continue
            if together == 1:
                return {}
            ready.append((one.mark(*rows), one, _all_failures_told(one.fitting(*rows))))
            if len(ready) == together:
                made += _play(ready)
                ready = []
        made += _play(ready)
        self.fits_together_ = len(made)
        return dict(made)


def _play(ready: list[tuple[str, Any, Iterator[Result]]]) -> list[tuple[str, Any]]:
    """The estimators that came to an end, fitted, and their marks."""
    said = dict(play_together([play for _, _, play in ready]))
    return [ready[i][:2] for i, last in said.items() if isinstance(last, Result)]


def _all_failures_told(play: Iterator[Result]) -> Iterator[Result]:
    """One that fails does not end the others."""
    try:
        yield from play
    except SartorError:
        raise
    except Exception as e:
        raise SartorError(str(e)) from e
