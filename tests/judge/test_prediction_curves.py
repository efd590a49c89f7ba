"""Curves at fixed places: by hand on few samples, against scikit-learn on many; and no sample can be read off them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as sk

from sartor.judge.metric_intervals import client_resamples, drawn
from sartor.judge.metric_table import ROOM, metric_table
from sartor.judge.prediction_curves import (
    GROUPS,
    LEAST,
    NUMBERS_OF_ONE,
    RATES,
    STEPS,
    calibration,
    curves,
    fit,
    residuals,
    roc,
    roc_band,
)
from sartor.judge.prediction_metrics import NUMBERS, PROBABILITIES, SCORES, Predicted


def binary(n: int, seed: int = 0, lead: float = 1.0, digits: int = 6) -> Predicted:
    """Probabilities of two classes, with ties where they have few digits."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 2, n)
    one = np.round(1 / (1 + np.exp(-(draw.normal(size=n) + lead * (2 * y - 1)))), digits)
    return Predicted(y, np.stack([1 - one, one], 1), PROBABILITIES)


def test_a_roc_curve_by_hand() -> None:
    """Falling scores: +, −, +, −: at once half of the positives, and all of them from half of the negatives on."""
    score = np.array([0.9, 0.8, 0.7, 0.1])
    p = Predicted(np.array([1, 0, 1, 0]), np.stack([1 - score, score], 1), PROBABILITIES)
    found = roc(p, np.ones((4, 1)))[:, 0]
    assert (found[RATES < 0.5] == 0.5).all() and (found[RATES >= 0.5] == 1).all()
    tied = Predicted(p.y, np.full((4, 2), 0.5), PROBABILITIES)
    assert roc(tied, np.ones((4, 1)))[:, 0] == pytest.approx(RATES)  # all scores alike: the diagonal


@pytest.mark.parametrize("digits", [1, 6])
def test_a_roc_curve_is_scikit_learns(digits: int) -> None:
    p = binary(400, digits=digits)
    w = np.concatenate(list(drawn(np.array([100, 300]), 3, seed=1)), axis=1)
    found = roc(p, w)
    for b in range(3):
        x, y, _ = sk.roc_curve(p.y, p.said[:, 1], sample_weight=w[:, b], drop_intermediate=False)
        known = [np.interp(r, x, y) if not (x == r).any() else y[x == r].max() for r in RATES]
        assert found[:, b] == pytest.approx(known)


def test_of_many_classes_it_is_the_mean_of_each_against_the_rest() -> None:
    draw = np.random.default_rng(0)
    y = draw.integers(0, 3, 300)
    said = np.exp(draw.normal(size=(300, 4)) + 1.5 * np.eye(4)[y])
    p = Predicted(y, said / said.sum(1, keepdims=True), PROBABILITIES)  # nobody is of the fourth class
    each = [sk.roc_curve(y == c, p.said[:, c], drop_intermediate=False)[:2] for c in range(3)]
    off = np.abs(roc(p, np.ones((300, 1)))[:, 0] - np.mean([np.interp(RATES, *one) for one in each], 0))
    assert off.max() < 0.01 and np.trapezoid(roc(p, np.ones((300, 1)))[:, 0], RATES) == pytest.approx(
        np.mean([sk.roc_auc_score(y == c, p.said[:, c]) for c in range(3)]), abs=0.01
    )
    assert roc_band(p, np.array([300]), 0) is None


def test_one_class_has_no_curve() -> None:
    p = binary(40)
    sick = Predicted(np.ones(40, dtype=np.int64), p.said, PROBABILITIES)
    assert curves(sick)["roc"] is None and curves(sick)["calibration"] is not None
    assert roc_band(sick, np.array([40]), 0) is None
    broken = Predicted(p.y, np.full((40, 2), np.nan), PROBABILITIES)
    assert curves(broken) == {"roc": None, "calibration": None}
    assert set(curves(p._replace(kind=SCORES))) == {"roc"}


def test_the_band_is_around_the_curve_and_narrower_with_more_samples() -> None:
    wide = {}
    for n in (50, 5000):
        p = binary(n)
        band = roc_band(p, np.array([n]), 0)
        assert band is not None and band == roc_band(p, np.array([n]), 0) != roc_band(p, np.array([n]), 1)
        low, high = map(np.array, band)
        own = roc(p, np.ones((n, 1)))[:, 0]
        assert (low <= own + 1e-3).all() and (own <= high + 1e-3).all()
        wide[n] = float((high - low).mean())
    assert wide[5000] < wide[50] / 5  # as 1/√n: a tenth


def test_calibration_by_hand() -> None:
    """Ten samples at 0.2, of which two are of the second class, ten at 0.7, of which seven are."""
    one = np.repeat([0.2, 0.7], 10)
    y = np.concatenate([np.arange(10) < 2, np.arange(10) < 7]).astype(np.int64)
    order = np.random.default_rng(0).permutation(20)
    p = Predicted(y[order], np.stack([1 - one, one], 1)[order], PROBABILITIES)
    assert calibration(p) == [[0.2, 0.2, 10], [0.7, 0.7, 10]]
    three = Predicted(p.y, np.column_stack([p.said[:, 0], p.said[:, 1], np.zeros(20)]), PROBABILITIES)
    assert calibration(three) == [[0.7, 0.7, 10], [0.8, 0.8, 10]]  # the most probable class, and how often it is right


@pytest.mark.parametrize("n", [0, 4, 5, 9, 49, 50, 51, 1000])
@pytest.mark.parametrize("digits", [1, 6])
def test_no_group_is_small(n: int, digits: int) -> None:
    found = calibration(binary(n, digits=digits))
    sizes = [size for *_, size in found]
    assert sum(sizes) == (n if n >= LEAST else 0) and len(found) <= GROUPS and all(size >= LEAST for size in sizes)
    means = [probability for probability, *_ in found]
    assert means == sorted(means)


def test_numbers_by_hand() -> None:
    said = np.repeat([1.0, 3.0], 5)
    y = said + np.tile([-2.0, -1.0, 0.0, 1.0, 2.0], 2) + np.repeat([0.0, 1.0], 5)
    p = Predicted(y, said, NUMBERS)
    assert fit(p) == [[1.0, 1.0, pytest.approx(2**0.5), 5.0], [3.0, 4.0, pytest.approx(2**0.5), 5.0]]
    counts = residuals(p, STEPS)
    assert len(counts) == len(STEPS) + 1 and sum(counts) == 10
    by_edge = dict(zip([-np.inf, *STEPS], counts, strict=True))  # a residual on an edge is above it
    assert {edge: n for edge, n in by_edge.items() if n} == {-2: 1, -1: 2, 0: 2, 1: 2, 2: 2, 3: 1}
    assert residuals(p, 10 * STEPS)[6:8] == [3, 7]


def table_of(clients: int, n: int = 30) -> dict[str, object]:
    each = [binary(n, seed=i) for i in range(clients)]
    return metric_table({"chosen": each}, [str(i) for i in range(clients)], ["no", "yes"], 0)


def test_what_is_kept_of_clients_is_bounded() -> None:
    few = table_of(3)["models"]["chosen"]  # type: ignore[index]
    for row in few["clients"]:
        assert len(row["curves"]["roc"]) == len(RATES)
        for name, (low, high) in row["intervals"].items():
            assert low <= row[name] <= high or name == "ece", name
    assert len(few["curves"]["roc_low"]) == len(few["curves"]["roc_high"]) == len(RATES)
    many = table_of(ROOM // NUMBERS_OF_ONE + 1, n=2)["models"]["chosen"]  # type: ignore[index]
    assert many["curves"]["roc"] and not {"curves", "intervals", "missing"} & set(many["clients"][0])
    assert [client_resamples(m) for m in (0, 10, 100, 1000)] == [1000, 1000, 200, 100]


def test_an_interval_of_a_client_is_that_of_its_samples() -> None:
    """Of accuracy: near ± 1.96 standard errors, also where other clients have many more samples."""
    each = [binary(200, seed=1), binary(2000, seed=2)]
    row = metric_table({"chosen": each}, ["a", "b"], ["no", "yes"], 0)["models"]["chosen"]["clients"][0]
    low, high = row["intervals"]["accuracy"]
    error = (row["accuracy"] * (1 - row["accuracy"]) / 200) ** 0.5
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.2)


def test_residuals_of_all_models_lie_between_the_same_edges() -> None:
    """As wide as the worst model needs: a constant error of 2 is its root mean square."""
    y = np.arange(20.0)
    models = {"personal": [Predicted(y, y + 0.5, NUMBERS)], "chosen": [Predicted(y, y - 2, NUMBERS)]}
    found = metric_table(models, ["a"], [], 0)
    assert found["places"]["residuals"] == pytest.approx(2 * STEPS)
    at = {m: np.flatnonzero(found["models"][m]["curves"]["residuals"]).tolist() for m in models}
    assert at == {"personal": [6], "chosen": [9]}  # −0.5 in [−1, 0), and 2 in [2, 3)


def test_why_a_client_has_no_curve_is_said() -> None:
    alone = binary(30)._replace(y=np.zeros(30, dtype=np.int64))
    rows = metric_table({"chosen": [binary(30), alone]}, ["a", "b"], ["no", "yes"], 0)["models"]["chosen"]["clients"]
    assert rows[0]["missing"] == {} and rows[0]["curves"]["roc"] is not None
    assert rows[1]["curves"]["roc"] is None and rows[1]["missing"]["auroc"] == "one class only"
