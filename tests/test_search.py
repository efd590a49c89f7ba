"""The grid search in lockstep: scikit-learn's numbers, and who is fitted one by one."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import GridSearchCV as OneByOne
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sartor.estimators import PersonalizedClassifier, PersonalizedRegressor, WithinGroups
from sartor.search import GridSearchCV

Table = tuple[np.ndarray, np.ndarray, np.ndarray]


@pytest.fixture
def hospitals() -> Table:
    """Three hospitals of unequal size; at one of them the second measurement means the opposite."""
    draw = np.random.default_rng(0)
    X, g = draw.normal(size=(120, 3)), draw.choice(["City", "Hill", "Park"], 120, p=[0.5, 0.2, 0.3])
    return X, X[:, 0] + np.where(g == "Park", -2, 2) * X[:, 1], g


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """An entry for each fit that was begun."""
    begun, real = list[None](), PersonalizedClassifier.fitting

    def watched(self: PersonalizedClassifier, *rows: Any) -> Any:
        begun.append(None)
        return real(self, *rows)

    monkeypatch.setattr(PersonalizedClassifier, "fitting", watched)
    return begun


def asking(estimator: Any) -> Any:
    """The same, with groups in fit and score."""
    return estimator.set_fit_request(groups=True).set_score_request(groups=True)


def test_the_same_search_as_scikit_learns(hospitals: Table, routing: None, fits: list[None]) -> None:
    X, z, g = hospitals
    y = np.where(z > 0, "ill", "well")
    flame = asking(PersonalizedClassifier("flame", model="softmax", rounds=3, lr=0.5))
    grid = {"lam": [0.01, 3.0], "speed": [0.3, 1.0]}
    ours = GridSearchCV(flame, grid, cv=WithinGroups(3)).fit(X, y, groups=g)
    assert ours.fits_together_ == 12
    assert len(fits) == 12 + 2  # the first, to see what it is, and the best on all rows: the loop itself fitted nothing
    theirs = OneByOne(flame, grid, cv=WithinGroups(3)).fit(X, y, groups=g)
    assert len(fits) == 14 + 13
    for key in ("split0_test_score", "split1_test_score", "split2_test_score"):
        assert ours.cv_results_[key].tolist() == theirs.cv_results_[key].tolist()
    assert len(set(ours.cv_results_["mean_test_score"])) > 1
    assert ours.best_params_ == theirs.best_params_
    said, wanted = (search.best_estimator_.predict_proba(X, groups=g) for search in (ours, theirs))
    assert np.array_equal(said, wanted)
    assert "ahead" not in vars(flame) and "ahead" not in vars(ours.best_estimator_)
    again = pickle.loads(pickle.dumps(ours)).best_estimator_
    assert np.array_equal(again.predict_proba(X, groups=g), said)


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite:UserWarning")
def test_regression_and_a_candidate_that_fails(hospitals: Table, routing: None) -> None:
    """What cannot be fitted is scikit-learn's to report, and the others are fitted together."""
    X, y, g = hospitals
    ditto = asking(PersonalizedRegressor("ditto", rounds=3))
    grid = {"lam": [0.01, 1.0], "lr": [0.1, -1.0]}
    with pytest.warns(FitFailedWarning, match="lr > 0"):
        ours = GridSearchCV(ditto, grid, cv=WithinGroups(2)).fit(X, y, groups=g)
    assert ours.fits_together_ == 4
    with pytest.warns(FitFailedWarning):
        theirs = OneByOne(ditto, grid, cv=WithinGroups(2)).fit(X, y, groups=g)
    scores, wanted = (search.cv_results_["mean_test_score"] for search in (ours, theirs))
    assert np.isnan(scores).tolist() == [False, True, False, True]
    np.testing.assert_allclose(scores, wanted, atol=1e-6)


@pytest.mark.parametrize("which", ["pipeline", "network", "processes"])
def test_who_is_fitted_one_by_one(hospitals: Table, which: str) -> None:
    X, z, _ = hospitals
    flame = PersonalizedClassifier("flame", model="mlp(3)" if which == "network" else "softmax", rounds=1)
    estimator = make_pipeline(StandardScaler(), flame) if which == "pipeline" else flame
    grid = {"personalizedclassifier__lam" if which == "pipeline" else "lam": [0.1, 1.0]}
    search = GridSearchCV(estimator, grid, cv=2, n_jobs=2 if which == "processes" else None, pre_dispatch=1)
    with sklearn.config_context(enable_metadata_routing=False):
        search.fit(X, z > 0)
    assert search.fits_together_ == 0 and len(search.cv_results_["mean_test_score"]) == 2
