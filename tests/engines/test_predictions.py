"""A run that goes by a metric with a name: its scores by scikit-learn, what stands for it of a single sample, and what
is chosen by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commandline import OWN, QUICK, good, hospitals, refused, summary
from sklearn import metrics as sk
from torch import nn

import sartor as st
from sartor.data import Clients
from sartor.engines.predictions import EACH, merit_of_each
from sartor.engines.stack import Stack
from sartor.federation.terms import shared
from sartor.judge.prediction_metrics import CHOOSABLE, METRICS
from sartor.run.recipe import METRICS as CHOICES
from sartor.run.recipe import Recipe
from sartor.run.result import Result
from sartor.tasks.task import ModelTask


def federation(k: int | None, m: int = 4, n: int = 60) -> Clients:
    draw, parts = np.random.default_rng(0), []
    for i in range(m):
        x = draw.normal(size=(n, 3))
        value = x[:, 0] + 0.5 * i * x[:, 1] + draw.normal(size=n)
        y = value if k is None else np.clip((value + k / 2).astype(np.int64), 0, k - 1)
        parts.append({"train": (x[:30], y[:30]), "validation": (x[30:42], y[30:42]), "test": (x[42:], y[42:])})
    return Clients.from_parts(parts, k)


def fitted(clients: Clients, metric: str, engine: str = "local", method: Any = None, **more: Any) -> Result:
    model = nn.Linear(3, clients.classes or 1)
    evaluation = st.Evaluation(metric=metric, evaluate_every=2, diagnostics=False, **more)
    return st.fit(
        method or st.Ditto(lam=0.3), model, clients, 4, evaluation=evaluation, execution=st.Execution(engine=engine)
    )


def by_scikit_learn(metric: str, y: np.ndarray, output: np.ndarray) -> float:
    if metric in ("mae", "rmse", "r2"):
        scores = {"mae": sk.mean_absolute_error, "rmse": sk.root_mean_squared_error, "r2": sk.r2_score}
        return float(scores[metric](y, output[:, 0]))
    p = torch.from_numpy(output).softmax(1).numpy()
    known = {"auroc": lambda: sk.roc_auc_score(y, p[:, 1]), "auprc": lambda: sk.average_precision_score(y, p[:, 1])}
    known |= {"log-loss": lambda: sk.log_loss(y, p, labels=[0, 1]), "brier": lambda: sk.brier_score_loss(y, p[:, 1])}
    known |= {"balanced-accuracy": lambda: sk.balanced_accuracy_score(y, p.argmax(1))}
    known |= {"f1": lambda: sk.f1_score(y, p.argmax(1), average="macro")}
    return float(known[metric]())


def outputs(result: Result, module: nn.Module, client: int, part: str) -> tuple[np.ndarray, np.ndarray]:
    rows = result.data.rows(client, part)
    with torch.no_grad():
        return result.data.y[rows].numpy(), module(result.data.x[rows]).double().numpy()


@pytest.mark.parametrize("metric", [m for m in CHOOSABLE if m not in ("accuracy", "r2")])
def test_scores_are_the_metric_with_its_sign(metric: str) -> None:
    """Of every client and model on validation and test data; the higher the better."""
    clients = federation(None if metric in ("mae", "rmse") else 2)
    result = fitted(clients, metric)
    sign = -1 if metric in ("log-loss", "brier", "mae", "rmse") else 1
    for i in range(4):
        for model, module in (("personal", result.personal(i)), ("global", result.shared())):
            for part in ("validation", "test"):
                known = sign * by_scikit_learn(metric, *outputs(result, module, i, part))
                assert result.scores[f"{model}/{part}/accuracy"][i] == pytest.approx(known, rel=1e-6), (model, part)
    assert result.summary["metric"] == metric
    kept = result.scores["chosen/test/accuracy"]
    assert result.summary["chosen"]["accuracy_mean"] == pytest.approx(kept.mean())


@pytest.mark.parametrize(("metric", "k"), [("log-loss", 3), ("brier", 2), ("brier", 3), ("balanced-accuracy", 3)])
def test_the_mean_of_merits_is_the_metric(metric: str, k: int) -> None:
    result = fitted(federation(k), metric)
    for i in range(4):
        y, output = outputs(result, result.personal(i), i, "validation")
        p = torch.from_numpy(output).softmax(1).numpy()
        known = {
            "log-loss": lambda y, p: -sk.log_loss(y, p, labels=list(range(k))),
            "brier": lambda y, p: -np.mean(((p - np.eye(k)[y]) ** 2).sum(1)) / (2 if k == 2 else 1),
            "balanced-accuracy": lambda y, p: sk.recall_score(y, p.argmax(1), labels=np.unique(y), average="macro"),
        }[metric](y, p)
        assert result.scores["personal/validation/merit"][i] == pytest.approx(known, rel=1e-5)


def test_merits_of_numbers_and_margins() -> None:
    y, output = torch.tensor([[1.0, -1.0, 1.0]]), torch.tensor([[[2.0], [0.5], [-20.0]]])
    none = torch.ones(0)
    assert merit_of_each("mae", "numbers", output, y, none).tolist() == [[-1.0, -1.5, -21.0]]
    assert merit_of_each("rmse", "numbers", output, y, none).tolist() == [[-1.0, -2.25, -441.0]]
    assert merit_of_each("auroc", "scores", output, y, none).tolist() == [[0.0, -1.5, -10.0]]  # hinge, cut off
    sure = torch.tensor([[[0.0, 100.0]]])
    assert merit_of_each("auroc", "probabilities", sure, torch.tensor([[0]]), none).item() == pytest.approx(
        np.log(1e-6)
    )
    assert set(EACH) == {m for m in CHOOSABLE if m not in ("accuracy", "r2")}


def test_a_client_takes_the_model_that_is_better_by_the_metric() -> None:
    """Two models of the same accuracy, one of which is far too sure: the log loss tells them apart, right answers do
    not."""
    clients = federation(2, m=6, n=120)
    task = ModelTask(nn.Linear(3, 2, bias=False).double())
    clients = clients.to(dtype=torch.float64)
    task.named_metric = "log-loss"
    stack = Stack(task, clients, np.arange(6), torch.ones(6), 0, 0)
    calm = torch.tensor([[-0.5, 0, 0, 0.5, 0, 0]], dtype=torch.float64).expand(6, -1)
    merits = {name: stack.merits(theta).nanmean() for name, theta in (("calm", calm), ("sure", 100 * calm))}
    assert merits["calm"] > merits["sure"] + 1
    assert torch.equal(
        *(stack._mean_score(theta, "test", stack._said(theta, "test"))[1] for theta in (calm, 100 * calm))
    )


def test_auto_is_accuracy_or_r2_to_the_bit() -> None:
    for k, name in ((2, "accuracy"), (None, "r2")):
        plain, named = fitted(federation(k), "auto"), fitted(federation(k), name)
        assert plain.clients == named.clients and "metric" not in named.summary
        assert {k: v.tolist() for k, v in plain.scores.items()} == {k: v.tolist() for k, v in named.scores.items()}


def test_engines_agree() -> None:
    found = [fitted(federation(2), "auroc", engine).scores for engine in ("local", "serial")]
    for key, value in found[0].items():
        assert found[1][key] == pytest.approx(value, rel=1e-5, nan_ok=True), key


def test_one_class_has_no_score_and_is_left_out() -> None:
    clients = federation(2)
    clients.y[clients.rows(1, "test")] = 1
    result = fitted(clients, "auroc")
    scores = result.scores["chosen/test/accuracy"]
    assert np.isnan(scores[1]) and np.isfinite(np.delete(scores, 1)).all()
    assert result.summary["chosen"]["clients_scored"] == 3
    assert result.clients[1]["chosen_test_accuracy"] is None


def test_the_best_round_is_the_best_by_the_metric() -> None:
    wild = st.Ditto(lam=0.3, solver=st.SGD(lr=3.0))
    each = [
        st.fit(
            wild, nn.Linear(3, 2), federation(2), r,
            evaluation=st.Evaluation(metric="log-loss", evaluate_every=r, diagnostics=False),
        )
        for r in range(1, 7)
    ]  # fmt: skip
    values = [r.history[-1]["validation"] for r in each]
    evaluation = st.Evaluation(metric="log-loss", evaluate_every=1, report="best", diagnostics=False)
    best = st.fit(wild, nn.Linear(3, 2), federation(2), 6, evaluation=evaluation)
    assert best.summary["reported_round"] == int(np.argmax(values)) + 1 and max(values) < 0


@pytest.mark.parametrize(
    ("metric", "target", "said"),
    [
        ("mae", "sick", "targets that are classes"),
        ("auroc", "level", "targets that are numbers"),
        ("auc", "sick", "'auroc'"),
    ],
)
def test_what_does_not_fit_is_refused(metric: str, target: str, said: str, tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv", target=target)
    model = "linear" if target == "level" else "softmax"
    line = refused("run", "--data", table, *OWN, "--model", model, "--rounds", "1", "--metric", metric)
    assert said in line and metric in line


def test_a_named_metric_and_ones_own_are_refused() -> None:
    with pytest.raises(st.SartorError, match="got both"):
        st.fit(
            st.FedAvg(), nn.Linear(3, 2), federation(2), 1,
            metric=lambda output, y: output[:, 0], evaluation=st.Evaluation(metric="auroc"),
        )  # fmt: skip
    assert ("auto", *CHOOSABLE) == CHOICES and set(CHOOSABLE) < set(METRICS)


def test_what_it_does_not_go_with_is_refused() -> None:
    """A real federation, whose sites tell right answers only; and a target that is of accuracy."""
    for own in ({"metric": "auroc"}, {"class_weights": "balanced"}):
        with pytest.raises(st.SartorError, match=f"a real federation has no {next(iter(own))} yet"):
            shared(Recipe(**own))
    line = refused("run", *QUICK, "--metric", "f1", "--target-accuracy", "0.5")
    assert "--target-accuracy" in line and "--metric f1" in line


def test_the_command_line_says_by_what(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv")
    said = good("run", *QUICK, "--data", table, *OWN, "--metric", "log-loss", "--out", tmp_path / "run").out
    assert "test −log loss per client" in said and summary(tmp_path / "run")["metric"] == "log-loss"
    compare = (
        "compare",
        *QUICK,
        "--data",
        table,
        *OWN,
        "--metric",
        "auroc",
        "--methods",
        "fedavg,local",
        "--seeds",
        "0",
    )
    said = " ".join(good(*compare, "--out", tmp_path / "compared").out.split())
    assert "test AUROC over clients" in said and "test AUROC of each client's chosen model" in said
    assert "AUROC" in (tmp_path / "compared" / "report.html").read_text()
    tune = ("tune", *QUICK, "--data", table, *OWN, "--metric", "auroc", "--methods", "fedavg", "--seeds", "0")
    assert "validation −log loss" in good(*tune, "--budget", "1").out
    assert Recipe.load(tmp_path / "run" / "recipe.toml").metric == "log-loss"
