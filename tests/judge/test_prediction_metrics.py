"""Metrics of predictions: by hand on few samples, against scikit-learn on many, and where they are not defined."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as sk

from sartor.judge.metric_intervals import drawn, intervals, resamples, values, weighted
from sartor.judge.prediction_metrics import (
    METRICS,
    NUMBERS,
    PROBABILITIES,
    SCORES,
    Predicted,
    confusion,
    fitting,
    missing,
    reliability,
)


def probable(k: int, n: int, seed: int = 0, ties: bool = True) -> Predicted:
    """Predictions that are right more often than not; with ties, as scores of few samples have them."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, k, n)
    z = draw.normal(size=(n, k)) + 1.5 * np.eye(k)[y]
    z = np.round(z, 1) if ties else z
    p = np.exp(z)
    return Predicted(y, p / p.sum(1, keepdims=True), PROBABILITIES)


def oracle(p: Predicted, weight: np.ndarray | None = None) -> dict[str, float]:
    """The same by scikit-learn, each in the form that its documentation gives for it."""
    k, y, said, w = p.said.shape[1], p.y, p.said.argmax(1), {"sample_weight": weight}
    labels = list(range(k))
    known = {"accuracy": sk.accuracy_score(y, said, **w), "f1": sk.f1_score(y, said, average="macro", **w)}
    known |= {"balanced-accuracy": sk.balanced_accuracy_score(y, said, **w)}
    known |= {"log-loss": sk.log_loss(y, p.said, labels=labels, **w)}
    if k == 2:
        known |= {"auroc": sk.roc_auc_score(y, p.said[:, 1], **w), "brier": sk.brier_score_loss(y, p.said[:, 1], **w)}
        known |= {"auprc": sk.average_precision_score(y, p.said[:, 1], **w)}
        known |= {
            "sensitivity": sk.recall_score(y, said, **w),
            "specificity": sk.recall_score(y, said, pos_label=0, **w),
        }
        return known
    return known | {
        "auroc": sk.roc_auc_score(y, p.said, multi_class="ovr", average="macro", labels=labels, **w),
        "auprc": sk.average_precision_score(np.eye(k)[y], p.said, average="macro", **w),
        "brier": sk.brier_score_loss(y, p.said, labels=labels, scale_by_half=False, **w),
    }


def calibration_error(p: Predicted) -> float:
    """ECE from its definition: over even bins of confidence, |share that is right − mean confidence| by their size."""
    bins = np.minimum((p.confidence * 10).astype(int), 9)
    right, parts = p.classes == p.y, [bins == i for i in range(10)]
    return float(sum(abs(right[b].mean() - p.confidence[b].mean()) * b.mean() for b in parts if b.any()))


@pytest.mark.parametrize("k", [2, 4])
def test_classes_by_scikit_learn(k: int) -> None:
    p = probable(k, 150)
    known, names = oracle(p), fitting(PROBABILITIES, k)
    assert set(names) == {*known, "ece"}
    for name, one in values(names, p).items():
        assert one == pytest.approx(known[name] if name in known else calibration_error(p), rel=1e-12), name


@pytest.mark.parametrize("k", [2, 3])
def test_weights_are_sample_weights(k: int) -> None:
    """What a resample is scored by, held against scikit-learn with the same weights."""
    p, names = probable(k, 60, seed=1), fitting(PROBABILITIES, k)
    w = np.concatenate(list(drawn(np.array([20, 40]), 5, seed=3)), axis=1)
    assert w.shape == (60, 5) and (w[:20].sum(0) == 20).all() and (w[20:].sum(0) == 40).all()  # within clients
    assert not (w[:, 0] == w[:, 1]).all()
    found = weighted(names, p, w)
    for b in range(5):
        known = oracle(p, w[:, b])
        for name in known:
            assert found[name][b] == pytest.approx(known[name], rel=1e-12), name
        copies = Predicted(np.repeat(p.y, w[:, b].astype(int)), np.repeat(p.said, w[:, b].astype(int), 0), p.kind)
        assert found["ece"][b] == pytest.approx(calibration_error(copies), rel=1e-12)


def test_numbers_by_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    y = 1000 + draw.normal(size=80)
    p = Predicted(y, y + draw.normal(size=80), NUMBERS)
    w = np.concatenate(list(drawn(np.array([30, 50]), 4, seed=0)), axis=1)
    found = weighted(fitting(NUMBERS, None), p, w)
    for b in range(4):
        own = {"sample_weight": w[:, b]}
        assert found["mae"][b] == pytest.approx(sk.mean_absolute_error(y, p.said, **own), rel=1e-9)
        assert found["rmse"][b] == pytest.approx(sk.mean_squared_error(y, p.said, **own) ** 0.5, rel=1e-9)
        assert found["r2"][b] == pytest.approx(sk.r2_score(y, p.said, **own), rel=1e-9)
    far = Predicted(np.array([0.0, 0.0]), np.array([3.0, 4.0]), NUMBERS)
    assert values(["rmse"], far)["rmse"] == pytest.approx(12.5**0.5)


def test_by_hand() -> None:
    """Four samples: 0.9 and 0.6 for true ones, 0.6 (a tie) and 0.2 for false ones."""
    one = np.array([0.9, 0.6, 0.6, 0.2])
    p = Predicted(np.array([1, 1, 0, 0]), np.stack([1 - one, one], 1), PROBABILITIES)
    hand = {
        "auroc": (1 + 1 + 0.5 + 1) / 4,
        "auprc": 0.5 * 1 + 0.5 * 2 / 3,
        "accuracy": 0.75,
        "sensitivity": 1.0,
        "specificity": 0.5,
        "balanced-accuracy": 0.75,
        "f1": (2 * 2 / 5 + 2 * 1 / 3) / 2,
        "brier": (0.01 + 0.16 + 0.36 + 0.04) / 4,
        "log-loss": -np.log([0.9, 0.6, 0.4, 0.8]).mean(),
        "ece": (abs(0.9 - 1) + abs(1.2 - 1) + abs(0.8 - 1)) / 4,  # the bins at 0.9, 0.6 and 0.8
    }
    found = values(list(hand), p)
    for name, known in hand.items():
        assert found[name] == pytest.approx(known), name
    assert confusion(p) == [[1, 1], [0, 2]]
    rows = {row["from"]: row for row in reliability(p)}
    assert rows[0.6]["samples"] == 2 and rows[0.6]["right"] == 0.5 and rows[0.6]["confidence"] == pytest.approx(0.6)


def test_a_class_that_a_client_lacks_is_left_out() -> None:
    """One-vs-rest over the classes that occur: the third of three has no samples."""
    p = probable(3, 90)
    mine = p.y < 2
    own = Predicted(p.y[mine], p.said[mine], PROBABILITIES)
    by_class = [sk.roc_auc_score(own.y == c, own.said[:, c]) for c in (0, 1)]
    assert values(["auroc"], own)["auroc"] == pytest.approx(np.mean(by_class))


def test_what_is_not_defined_is_none_with_the_reason() -> None:
    p = probable(2, 40)
    sick = Predicted(np.ones(40, dtype=np.int64), p.said, PROBABILITIES)
    assert missing("auroc", sick) == missing("auprc", sick) == "one class only"
    assert missing("specificity", sick) == "no sample of the first class" and not missing("sensitivity", sick)
    found = values(fitting(PROBABILITIES, 2), sick)
    assert {k for k, v in found.items() if v is None} == {"auroc", "auprc", "specificity"}
    same = Predicted(np.full(3, 0.1), np.array([0.1, 0.2, 0.3]), NUMBERS)
    assert values(["r2"], same)["r2"] is None and missing("r2", same) == "targets that are all alike"
    assert values(["mae"], Predicted(np.zeros(0), np.zeros(0), NUMBERS)) == {"mae": None}
    broken = Predicted(p.y, np.where(np.arange(2) == 1, np.nan, p.said), PROBABILITIES)
    assert set(values(["auroc", "log-loss"], broken).values()) == {None}


def test_scores_have_no_probabilities() -> None:
    names = fitting(SCORES, 2)
    assert "auroc" in names and not {"log-loss", "brier", "ece"} & set(names)
    assert "sensitivity" not in fitting(SCORES, 3) and fitting(NUMBERS, None) == ["mae", "rmse", "r2"]
    assert METRICS["log-loss"].score == "−log loss" and METRICS["auroc"].score == "AUROC"


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Accuracy of 300 coins of 0.8: of 200 intervals about 95% hold 0.8."""
    inside = 0
    for seed in range(200):
        right = np.random.default_rng(seed).random(300) < 0.8
        one = np.where(right, 0.9, 0.1)
        p = Predicted(np.ones(300, dtype=np.int64), np.stack([1 - one, one], 1), PROBABILITIES)
        low, high = intervals(["accuracy"], {"a": p}, np.array([100, 200]), seed)["a"]["accuracy"]
        inside += low <= 0.8 <= high
    assert 0.90 * 200 <= inside <= 0.99 * 200


def test_an_interval_depends_on_the_seed_alone() -> None:
    p, counts = probable(2, 100), np.array([50, 50])
    sick = Predicted(np.ones(100, dtype=np.int64), p.said, PROBABILITIES)

    def found(seed: int, **models: Predicted) -> dict[str, dict[str, tuple[float, float]]]:
        return intervals(["auroc", "accuracy"], models, counts, seed)

    both = found(0, one=p, sick=sick)
    assert both["one"] == found(0, alone=p)["alone"] != found(1, alone=p)["alone"]
    healthy = sick._replace(y=np.zeros_like(sick.y))
    assert "auroc" not in both["sick"] and list(found(0, healthy=healthy)["healthy"]) == ["accuracy"]


def test_many_samples_have_fewer_resamples() -> None:
    assert resamples(300, 2) == resamples(1, None) == 1000 and resamples(10**6, 100) == 100
