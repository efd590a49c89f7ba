"""Recalibration and thresholds: against scikit-learn's Platt scaling and by hand, and that they reach the user."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from commandline import good, refused
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

import sartor as st
from sartor.judge.decisions import Decision, check, decisions
from sartor.judge.metric_intervals import values
from sartor.judge.prediction_metrics import PROBABILITIES, Predicted
from sartor.run.export import load_model


def value(name: str, p: Predicted) -> float | None:
    return values([name], p)[name]


METRICS = ("balanced-accuracy", "accuracy", "f1")


def said(logit: np.ndarray) -> np.ndarray:
    return np.stack([1 / (1 + np.exp(logit)), 1 / (1 + np.exp(-logit))], 1)


def overconfident(n: int, a: float, b: float, seed: int = 0) -> Predicted:
    """Samples whose true log-odds are a times what a model says, and b more."""
    draw = np.random.default_rng(seed)
    z = 3 * draw.normal(size=n)
    y = (draw.random(n) < said(a * z + b)[:, 1]).astype(np.int64)
    return Predicted(y, said(z), PROBABILITIES)


def test_platt_is_scikit_learn_s_logistic_regression_where_there_are_many_samples() -> None:
    """Without its priors, which 20,000 samples outweigh."""
    p = overconfident(20_000, 0.3, 0.7)
    (ours,) = decisions("platt", "none", "", [p])
    logit = np.log(p.said[:, 1] / p.said[:, 0])[:, None]
    theirs = LogisticRegression(C=1e9, tol=1e-10).fit(logit, p.y)
    assert ours.scale == pytest.approx(float(theirs.coef_[0, 0]), rel=2e-3)
    assert ours.shift == pytest.approx(float(theirs.intercept_[0]), abs=2e-3)
    np.testing.assert_allclose(ours.probabilities(p.said), theirs.predict_proba(logit), atol=1e-3)


def test_a_temperature_mends_overconfidence_and_leaves_the_order_as_it_is() -> None:
    p = overconfident(20_000, 0.3, 0.0)
    (ours,) = decisions("temperature", "none", "", [p])
    assert ours.scale == pytest.approx(0.3, abs=0.02) and ours.shift == 0.0
    after = ours.on(p)
    assert value("auroc", after) == pytest.approx(value("auroc", p))
    assert value("accuracy", after) == value("accuracy", p)
    assert value("ece", after) < 0.01 < 0.1 < value("ece", p)  # type: ignore[operator]


def test_a_small_client_is_held_near_all_and_one_without_samples_is_like_all() -> None:
    many, few, none = overconfident(5_000, 0.3, 0.0), overconfident(5, 3.0, 0.0, 1), overconfident(0, 1.0, 0.0)
    large, small, empty = (d.scale for d in decisions("temperature", "none", "", [many, few, none]))
    (alone,) = (d.scale for d in decisions("temperature", "none", "", [few]))
    assert empty == pytest.approx(large, rel=0.01) and abs(np.log(small / large)) < abs(np.log(alone / large))


def test_always_right_probabilities_do_not_make_it_infinite() -> None:
    p = Predicted(np.array([0, 1] * 50), said(np.array([-4.0, 4.0] * 50)), PROBABILITIES)
    (found,) = decisions("platt", "none", "", [p])
    assert 1 < found.scale < 5 and abs(found.shift) < 0.1


@pytest.mark.parametrize("metric", METRICS)
def test_a_threshold_is_the_best_that_there_is_for_all_samples(metric: str) -> None:
    """One client alone: its own samples and those of all are the same ones."""
    p = overconfident(400, 1.0, -1.5)
    (found,) = decisions("none", "tuned", metric, [p])
    cuts = np.linspace(0.01, 0.99, 99)
    each = [value(metric, Decision(threshold=float(t)).on(p)) for t in cuts]
    assert found.threshold is not None and 0 < found.threshold < 1
    assert value(metric, found.on(p)) == pytest.approx(max(each))  # type: ignore[type-var]
    own = (p.said[:, 1] >= found.threshold).astype(int)
    assert value("f1", found.on(p)) == pytest.approx(f1_score(p.y, own, average="macro"))


def test_a_client_with_many_samples_has_its_own_threshold_and_one_of_one_class_that_of_all() -> None:
    low, high = overconfident(3_000, 1.0, 2.0, 1), overconfident(3_000, 1.0, -2.0, 2)
    one = Predicted(np.zeros(4, dtype=np.int64), said(np.zeros(4)), PROBABILITIES)
    first, second, third = (d.threshold for d in decisions("none", "tuned", "", [low, high, one]))
    assert first is not None and second is not None and third is not None and first < third < second
    assert [d.threshold for d in decisions("none", "0.2", "", [low, high])] == [0.2, 0.2]
    with pytest.raises(st.SartorError, match="both classes"):
        decisions("none", "tuned", "", [one])


def table(tmp_path: Path, classes: int = 2) -> Path:
    """Three sites with a rare second class."""
    draw, lines = np.random.default_rng(0), ["site,a,b,ill"]
    for site in "xyz":
        for a, b in draw.normal(size=(150, 2)):
            lines.append(f"{site},{a:.4f},{b:.4f},{min(classes - 1, max(0, int(np.ceil(a + draw.normal() - 1.2))))}")
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines))
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_from_the_command_line_to_predictions_and_exported_models(tmp_path: Path) -> None:
    rows, run = table(tmp_path), tmp_path / "run"
    own = ("run", "--data", rows, "--target", "ill", "--client-key", "site", "--task", "classification", "--rounds", 5)
    own = (*own, "--method", "mr-mtl", "--parts", "0.5,0.25,0.25", "--quiet")
    good(*own, "--out", tmp_path / "plain")
    good(*own, "--calibrate", "platt", "--threshold", "tuned", "--out", run)
    made = json.loads((run / "decisions.json").read_text())
    assert [row["name"] for row in made["clients"]] == ["x", "y", "z"] and made["calibrate"] == "platt"
    assert not (tmp_path / "plain" / "decisions.json").exists()
    tables = [json.loads((f / "metrics.json").read_text()) for f in (tmp_path / "plain", run)]
    before, after = (found["models"] for found in tables)
    assert [len([n for n in found["notes"] if "decisions.json" in n]) for found in tables] == [0, 2]
    assert before["personal"] == after["personal"]
    caught = [found["chosen"]["pooled"]["sensitivity"]["value"] for found in (before, after)]
    assert caught[0] < caught[1]  # a rare class is found more often

    good("predict", "--run", run, "--client", "x", "--data", rows, "--probabilities", "--out", tmp_path / "said.csv")
    predicted = read(tmp_path / "said.csv")
    p, cut = np.array([float(row["p(1)"]) for row in predicted]), made["clients"][0]["threshold"]
    assert [row["prediction"] for row in predicted] == ["1" if v >= cut else "0" for v in p]
    assert (p >= cut).sum() > (p >= 0.5).sum() > 0
    good("export", "--run", run, "--client", "x", "--out", tmp_path / "x.safetensors")
    model = load_model(tmp_path / "x.safetensors")
    again = model(model.encode({k: [float(row[k]) for row in read(rows)] for k in "ab"}))
    np.testing.assert_allclose(again[:, 1].detach().numpy(), p, atol=1e-6)
    assert model.decision.threshold == cut


def test_what_cannot_be_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    own = ("run", "--target", "ill", "--client-key", "site", "--rounds", 1, "--quiet", "--task", "classification")
    three = (*own, "--data", table(tmp_path, 3))
    assert "for two classes; there are 3" in refused(*three, "--threshold", "tuned")
    assert "for two classes; there are 3" in refused(*three, "--calibrate", "platt")
    assert "between 0 and 1; got '2'" in refused(*three, "--threshold", "2")
    assert "and there are none; see --parts" in refused(*three, "--calibrate", "temperature", "--parts", "0.8,0,0.2")
    numbers = ("run", "--target", "a", "--client-key", "site", "--rounds", 1, "--data", table(tmp_path), "--quiet")
    assert "these give numbers" in refused(*numbers, "--calibrate", "temperature")
    check("none", "none", "numbers", None, 0)
