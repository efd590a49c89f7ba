"""The scikit-learn estimators: scikit-learn's own checks, groups, and routing through GridSearchCV and Pipeline."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
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
    grid = {"lam": [0.01, 3.0], "rho": [0.01, 0.3]}
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


def frame_of(n: int = 300) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Text, a date, gaps, a flag; what is ill is told by ward and age together."""
    draw = np.random.default_rng(1)
    g, ward, age = draw.choice(["City", "Park"], n), draw.choice(["east", "west"], n), draw.normal(50, 10, n)
    frame = pd.DataFrame({"age": np.where(draw.random(n) < 0.1, np.nan, age), "ward": ward})
    frame["seen"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(draw.integers(0, 300, n), unit="D")
    frame["smoker"] = draw.random(n) < 0.3
    risk = (age - 50) / 10 + np.where(ward == "east", 2.0, -2.0)
    return frame, risk, g


@pytest.mark.parametrize("kind", ["pandas", "pyarrow"])
def test_data_frames_with_text_dates_and_gaps(kind: str) -> None:
    frame, risk, g = frame_of()
    y = np.where(risk > 0, "ill", "well")
    model = PersonalizedClassifier("ditto", **QUICK)
    as_given = (lambda f: pa.Table.from_pandas(f, preserve_index=False)) if kind == "pyarrow" else (lambda f: f)
    model.fit(as_given(frame[:200]), y[:200], groups=g[:200])
    assert model.feature_names_in_.tolist() == ["age", "ward", "seen", "smoker"] and model.n_features_in_ == 4
    assert model.score(as_given(frame[200:]), y[200:], groups=g[200:]) > 0.85
    turned = frame[200:][["smoker", "seen", "ward", "age"]]  # found by name, wherever they stand
    assert np.array_equal(
        model.predict_proba(as_given(turned), g[200:]), model.predict_proba(as_given(frame[200:]), g[200:])
    )
    strange = frame[200:].assign(ward="nobody knows it")
    assert np.isfinite(model.predict_proba(as_given(strange), groups=g[200:])).all()
    model.adapt(as_given(frame[:40]), y[:40], group="New")
    assert set(model.predict(as_given(frame[:9]), groups=["New"] * 9)) <= {"ill", "well"}
    with pytest.raises(st.SartorError, match="there was one in fit 'ward'"):
        model.predict(as_given(frame.drop(columns="ward")), groups=g)
    with pytest.raises(st.SartorError, match="fit was given a table with the columns age, ward, seen, smoker"):
        model.predict(np.zeros((3, 4)))


def test_a_regressor_answers_in_the_units_of_y() -> None:
    """y far from zero: each group's least squares, known from NumPy; the same whatever the unit."""
    draw = np.random.default_rng(0)
    X, g = draw.normal(size=(400, 2)), np.repeat(["a", "b"], 200)
    y = 1e5 + np.where(g == "a", 0.0, 4e3) + 900 * X[:, 0] + draw.normal(size=400)
    model = PersonalizedRegressor("local", rounds=60, validation=0.0).fit(X, y, groups=g)
    for name in ("a", "b"):
        rows = g == name
        design = np.column_stack([X[rows], np.ones(rows.sum())])
        wanted = design @ np.linalg.lstsq(design, y[rows], rcond=None)[0]
        np.testing.assert_allclose(model.predict(X[rows], groups=g[rows]), wanted, atol=30)
    other = PersonalizedRegressor("local", rounds=60, validation=0.0).fit(X, y / 1000, groups=g)
    np.testing.assert_allclose(other.predict(X, groups=g) * 1000, model.predict(X, groups=g), rtol=1e-5)
    assert model.score(X, y, groups=g) > 0.999
    guest = model.adapt(X[:50], y[:50] + 1e4, group="new").predict(X[:50], groups=["new"] * 50)
    assert abs(guest.mean() - (y[:50] + 1e4).mean()) < 2500  # it moves towards its own level, from the others' one
    frame, risk, groups = frame_of()
    regressor = PersonalizedRegressor("ditto", rounds=30).fit(frame, 500 + 40 * risk, groups=groups)
    assert regressor.score(frame, 500 + 40 * risk, groups=groups) > 0.85


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
