"""The scikit-learn estimators: scikit-learn's own checks, groups, and routing through GridSearchCV and Pipeline."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import sartor as st
from sartor.estimators import PersonalizedClassifier, PersonalizedRegressor, WithinGroups

QUICK = {"model": "softmax", "rounds": 8}


# None is expected to fail. What groups add to the contract is tested below, as scikit-learn's checks know no groups.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([PersonalizedClassifier("ditto", rounds=12), PersonalizedRegressor("ditto", rounds=12)])
def test_scikit_learns_checks(estimator, check) -> None:
    check(estimator)


@pytest.fixture
def hospitals() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three hospitals; at one of them the second measurement means the opposite."""
    draw = np.random.default_rng(0)
    X, g = draw.normal(size=(360, 4)), draw.choice(["City", "Hill", "Park"], 360)
    y = np.where(X[:, 0] + np.where(g == "Park", -2, 2) * X[:, 1] > 0, "ill", "well")
    return X, y, g


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_each_group_has_its_own_model(hospitals) -> None:
    X, y, g = hospitals
    model = PersonalizedClassifier("ditto", lam=0.01, lr=0.5, **QUICK).fit(X[:240], y[:240], groups=g[:240])
    assert model.score(X[240:], y[240:], groups=g[240:]) > 0.85
    odd = X[240:][g[240:] == "Park"]
    swapped = model.predict(odd, groups=["City"] * len(odd))
    assert (swapped != model.predict(odd, groups=["Park"] * len(odd))).mean() > 0.5
    p = model.predict_proba(odd, groups=np.full(len(odd), "Park"))
    np.testing.assert_allclose(p.sum(1), 1)
    assert model.classes_.tolist() == ["ill", "well"] and model.groups_.tolist() == ["City", "Hill", "Park"]
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(X, groups=g), model.predict(X, groups=g))
    with pytest.raises(st.SartorError, match="a copy from a file"):
        again.adapt(X, y, "New")


@pytest.mark.parametrize("method", ["flame", "local"])
def test_an_unknown_group_has_the_cold_start(hospitals, method: str) -> None:
    """The global model, row by row; without one the average of all models. With labels: a model of its own."""
    X, y, g = hospitals
    model = PersonalizedClassifier(method, scale="raw", **QUICK).fit(X, y, groups=g)
    p = model.predict_proba(X[:50], groups=["Seaside"] * 50)
    each = np.mean([model.predict_proba(X[:50], groups=[name] * 50) for name in model.groups_], axis=0)
    if method == "local":
        np.testing.assert_allclose(p, each)
    else:
        import torch

        module = model.global_
        wanted = module(torch.from_numpy(X[:50]).float()).double().softmax(1).detach().numpy()
        np.testing.assert_allclose(p, wanted, atol=1e-6)
        assert not np.allclose(p, each)
    assert np.array_equal(model.predict_proba(X[:50]), p)  # nobody's rows
    before = model.predict(X, groups=g)
    there = g == "Park"
    model.adapt(X[there][:60], y[there][:60], "Seaside", steps=30)
    mine = model.predict(X[there][60:], groups=["Seaside"] * (there.sum() - 60))
    assert (mine == y[there][60:]).mean() > 0.8 and np.array_equal(before, model.predict(X, groups=g))


def test_flame_in_a_grid_search_over_lambda_and_rho(hospitals, routing: None) -> None:
    X, y, g = hospitals
    flame = PersonalizedClassifier(method="flame", lr=0.5, **QUICK)
    flame = flame.set_fit_request(groups=True).set_score_request(groups=True)
    grid = {"lam": [0.01, 100.0], "rho": [0.01, 0.3]}
    search = GridSearchCV(flame, grid, cv=WithinGroups(3)).fit(X, y, groups=g)
    assert search.best_params_["lam"] == 0.01  # one model for all cannot serve Park
    assert search.best_estimator_.groups_.tolist() == ["City", "Hill", "Park"]  # groups reached fit
    scores = search.cv_results_["mean_test_score"]
    assert scores.max() > scores.min() + 0.03
    piped = make_pipeline(StandardScaler(), flame).fit(X, y, groups=g)
    assert piped.score(X, y, groups=g) > 0.8
    whole = cross_validate(flame.set_params(lam=0.01), X, y, cv=GroupKFold(3), params={"groups": g})
    assert whole["test_score"].min() < 0.4  # holds Park out: that is the cold start, not its own model


def test_within_groups_cuts_through_every_group() -> None:
    g = np.repeat(["a", "b", "c"], [30, 7, 2])
    folds = list(WithinGroups(3).split(np.zeros(39), groups=g))
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(39))
    for train, test in folds:
        assert not set(train) & set(test)
        counts = [int((g[test] == name).sum()) for name in "abc"]
        assert counts[0] == 10 and counts[1] in (2, 3) and counts[2] in (0, 1)
    with pytest.raises(st.SartorError, match="n_splits >= 2"):
        WithinGroups(1)


def test_regression_and_settings(hospitals) -> None:
    X, _, g = hospitals
    y = 50 + 20 * X[:, 0] + np.where(g == "Park", -30, 30) * X[:, 1]
    model = PersonalizedRegressor("ditto", rounds=30, lam=0.001).fit(X, y, groups=g)
    assert (
        model.score(X, y, groups=g)
        > 0.95
        > PersonalizedRegressor("fedavg", rounds=30).fit(X, y, groups=g).score(X, y, groups=g)
    )
    copy = clone(PersonalizedClassifier("flame", lam=2.0, settings={"anchor": "global"}))
    assert copy.get_params()["lam"] == 2.0 and copy._method() == st.FLAME(lam=2.0, anchor="global")
    same = PersonalizedClassifier(st.Ditto(lam=0.5), rounds=3, model=st.models.layers(4, 2))
    assert same.fit(X, g == "Park", groups=g).classes_.tolist() == [False, True]


@pytest.mark.parametrize(
    ("make", "groups", "message"),
    [
        (lambda: PersonalizedClassifier("flam"), None, "did you mean flame"),
        (lambda: PersonalizedClassifier(lam=-1), None, "FLAME needs lam > 0"),
        (lambda: PersonalizedClassifier(st.Ditto(), lam=1.0), None, "has its settings already; got lam"),
        (lambda: PersonalizedClassifier(validation=1.0), None, "validation is a share"),
        (lambda: PersonalizedClassifier(scale="mine"), None, "columns to be one of"),
        (lambda: PersonalizedClassifier(dtype="float16"), None, "dtype to be one of"),
        (PersonalizedClassifier, ["a", "b"], "one value per row"),
        (PersonalizedClassifier, ["a", None] * 10, "missing values"),
        (PersonalizedClassifier, np.array(["a", 1] * 10, dtype=object), "mix int and str"),
    ],
)
def test_mistakes_are_one_line(make, groups, message: str) -> None:
    with pytest.raises(st.SartorError, match=message):
        make().fit(np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2, groups=groups)
