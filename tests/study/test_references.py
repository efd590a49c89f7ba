"""References: scikit-learn's own models on the same samples, and their rows in a comparison."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commandline import OWN, QUICK, good, hospitals, refused
from pages import Page
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.metrics import accuracy_score, log_loss, r2_score

from sartor.cli import compare as command
from sartor.data import Clients
from sartor.run.folder_schema import COMPARED, METRICS
from sartor.storage import read_json
from sartor.study.references import _ALPHAS, _PENALTIES, REFERENCES, reference


def federation(k: int | None, m: int = 4, n: int = 80, turned: bool = False) -> Clients:
    """Clients of which each has its own line; with `turned` the second half answers the other way round."""
    draw, parts = np.random.default_rng(1), []
    for i in range(m):
        x = draw.normal(size=(n, 3))
        value = x[:, 0] * (-1 if turned and i >= m // 2 else 1) + 0.3 * draw.normal(size=n)
        y = 3 * value if k is None else (value > 0).astype(np.int64)
        parts.append({"train": (x[:50], y[:50]), "validation": (x[50:60], y[50:60]), "test": (x[60:], y[60:])})
    return Clients.from_parts(parts, k)


def arrays(clients: Clients, i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What a client learns from and is tested on."""
    learn = slice(int(clients.bounds[i, 0]), int(clients.bounds[i, 2]))
    test = clients.rows(i, "test")
    x, y = clients.x.double().numpy(), clients.y.numpy()
    return x[learn], y[learn], x[test], y[test]


def test_local_linear_is_scikit_learn_s_on_the_client_s_own_samples() -> None:
    """The penalty is one of the grid, and the predictions are those of scikit-learn with it."""
    clients = federation(2)
    found = reference("local-linear", clients, 0)
    for i in range(4):
        x, y, new, truth = arrays(clients, i)
        each = [LogisticRegression(C=c, max_iter=500).fit(x, y) for c in (0.01, 0.1, 1.0, 10.0, 100.0)]
        same = [m for m in each if np.allclose(m.predict_proba(new), found.predicted[i].said)]
        assert len(same) == 1
        assert found.scores["accuracy"][i] == pytest.approx(accuracy_score(truth, same[0].predict(new)))
        assert found.scores["loss"][i] == pytest.approx(log_loss(truth, same[0].predict_proba(new)))


def test_pooled_ridge() -> None:
    clients = federation(None)
    each = [arrays(clients, i) for i in range(4)]
    model = RidgeCV(alphas=_ALPHAS).fit(np.concatenate([e[0] for e in each]), np.concatenate([e[1] for e in each]))
    found = reference("pooled-linear", clients, 0)
    for i, (_, _, new, truth) in enumerate(each):
        assert found.scores["accuracy"][i] == pytest.approx(r2_score(truth, model.predict(new)))
        assert found.scores["loss"][i] == pytest.approx(0.5 * ((truth - model.predict(new)) ** 2).mean())


def test_pooled_trees_know_whose_a_sample_is() -> None:
    """Half of the clients answer the other way round: only who knows the client can be right."""
    clients = federation(2, n=200, turned=True)
    trees, linear = (reference(f"pooled-{kind}", clients, 0).scores["accuracy"].mean() for kind in ("trees", "linear"))
    blind = HistGradientBoostingClassifier(random_state=0)
    each = [arrays(clients, i) for i in range(4)]
    blind.fit(np.concatenate([e[0] for e in each]), np.concatenate([e[1] for e in each]))
    unaware = np.mean([accuracy_score(e[3], blind.predict(e[2])) for e in each])
    assert trees > 0.8 and linear < 0.65 and unaware < 0.65


@pytest.mark.parametrize("name", REFERENCES)
def test_few_samples_and_missing_classes(name: str) -> None:
    """A client with one class, one with a class that nobody else tests, one without test samples: no NaN, no zero
    probability."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(12, 2))
    parts = [
        {"train": (x[:6], np.zeros(6, dtype=np.int64)), "test": (x[6:], np.array([0, 1, 0, 1, 2, 2]))},
        {"train": (x, np.arange(12) % 2), "test": (x[:4], np.array([0, 1, 2, 1]))},
        {"train": (x[:3], np.array([0, 1, 2]))},
    ]
    found = reference(name, Clients.from_parts(parts, 3), 0)
    assert (
        np.isnan(found.scores["accuracy"]).tolist() == np.isnan(found.scores["loss"]).tolist() == [False, False, True]
    )
    for p in found.predicted[:2]:
        assert (p.said > 0).all() and p.said.sum(1) == pytest.approx(np.ones(len(p.y)))
    if name == "local-linear":
        assert found.predicted[0].said[0] == pytest.approx([7 / 9, 1 / 9, 1 / 9])  # the rule of succession


def test_a_class_with_one_sample_among_many_does_not_stop_the_trees() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(10_002, 2))
    y = (x[:, 0] > 0).astype(np.int64)
    y[7] = 2  # scikit-learn cuts samples of every class in two here, and refuses to
    found = reference("pooled-trees", Clients.from_parts([{"train": (x, y), "test": (x[:50], y[:50])}], 3), 0)
    assert found.scores["accuracy"][0] == pytest.approx(0.98)
    assert found.predicted[0].said[:, 2] == pytest.approx(np.full(50, 1 / (10_001 + 3)))  # the rule of succession


def test_targets_of_two_signs_and_a_named_metric() -> None:
    clients = federation(2)
    signs = Clients(clients.x, (2 * clients.y - 1).double(), clients.bounds, clients.names, 2)
    plain, signed = reference("local-linear", clients, 0), reference("local-linear", signs, 0)
    assert plain.scores["accuracy"].tolist() == signed.scores["accuracy"].tolist()
    p = plain.predicted[0]
    odds = np.log(p.said[:, 1] / p.said[:, 0]) * np.where(p.y == 1, 1, -1)
    assert signed.scores["loss"][0] == pytest.approx(np.maximum(0, 1 - odds).mean())
    by_loss = reference("local-linear", clients, 0, metric="log-loss").scores["accuracy"]
    assert by_loss == pytest.approx(-plain.scores["loss"])


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    place = tmp_path_factory.mktemp("references")
    table = hospitals(place / "visits.csv", each=40)
    words = ("--methods", "fedavg,local", "--seeds", "0,1", "--references", "pooled-linear,local-trees")
    said = good("compare", *QUICK, "--data", table, *OWN, *words, "--out", place / "run").out
    return place / "run", said


def test_a_comparison_has_rows_of_references(compared: tuple[Path, str]) -> None:
    folder, said = compared
    found = read_json(folder / "compare.json", COMPARED)
    assert [s["method"] for s in found] == 2 * ["fedavg", "local", "pooled-linear", "local-trees"]
    marks = [s.get("reference") for s in found[:4]]
    assert marks == [None, None, "reference, not federated", "reference, not federated"]
    row = next(line for line in said.splitlines() if line.startswith("pooled-linear ‡"))
    assert "‡ reference, not federated" in said
    each = [json.loads((folder / f"pooled-linear-{seed}" / "clients.json").read_text()) for seed in (0, 1)]
    means = [np.mean([r["chosen_test_accuracy"] for r in rows]) for rows in each]
    assert f"{np.mean(means):.3f} ±" in row
    assert "minibatch gradients per client and round for every method" in " ".join(said.split())
    table = read_json(folder / "pooled-linear-0" / "metrics.json", METRICS)
    assert table["models"]["chosen"]["averaged"]["accuracy"]["value"] == pytest.approx(means[0])


def test_the_report_marks_them(compared: tuple[Path, str]) -> None:
    page = Page((compared[0] / "report.html").read_text())
    text = " ".join(page.text)
    assert "pooled-linear (reference, not federated)" in text and "local-trees (reference, not federated)" in text
    assert "--references pooled-linear,local-trees" in text
    assert "has not ended" not in text


def test_bad_references_are_refused() -> None:
    quick = ("compare", *QUICK, "--methods", "fedavg")
    assert "unknown reference 'forest'" in refused(*quick, "--references", "forest")
    assert "twice" in refused(*quick, "--references", "local-trees,local-trees")
    line = refused(*quick, "--references", "local-trees", "--attack", "sign-flip", "--attackers", "0.2")
    assert "without an attack" in line


def test_the_command_line_offers_all_of_them() -> None:
    assert tuple(REFERENCES) == command.REFERENCES


@pytest.mark.parametrize("k", [None, 2])
def test_columns_of_clients_own_tell_apart_who_answers_the_other_way_round(k: int | None) -> None:
    """Half of the clients turn the sign: one line fits nobody, deviations from it fit all as lines of their own do."""
    clients = federation(k, n=200, turned=True)
    found = {r: float(reference(r, clients).scores["accuracy"].mean()) for r in ("pooled-linear", "shrunk-linear")}
    alone = float(reference("local-linear", clients).scores["accuracy"].mean())
    assert found["pooled-linear"] < 0.65 and found["shrunk-linear"] > alone - 0.03 > 0.8


def test_a_column_for_each_client_is_a_ridge_regression_with_dummies() -> None:
    """Ten times as long as a feature's, so that the penalty hardly holds them, with one of the penalties on offer."""
    draw, parts = np.random.default_rng(4), []
    for level in (-3.0, 0.0, 5.0):
        x = draw.normal(size=(90, 2))
        y = level + x @ [1.0, -2.0] + 0.1 * draw.normal(size=90)
        parts.append({"train": (x[:60], y[:60]), "test": (x[60:], y[60:])})
    clients = Clients.from_parts(parts, None)
    found = reference("own-intercept-linear", clients)
    x, y = (np.concatenate([part["train"][i] for part in parts]) for i in (0, 1))
    dummies = np.kron(np.eye(3), np.ones((60, 1)))
    off = []
    for penalty in _PENALTIES:
        fitted = Ridge(alpha=1 / penalty).fit(np.column_stack([x, 10 * dummies]), y)
        slope, levels = fitted.coef_[:2], fitted.intercept_ + 10 * fitted.coef_[2:]
        each = zip(found.predicted, parts, levels, strict=True)
        off.append(max(np.abs(p.said - (part["test"][0] @ slope + level)).max() for p, part, level in each))
    assert min(off) < 1e-3 < 0.01 < max(off)
