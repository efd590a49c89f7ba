"""The loss on training samples in the history: off unless it is asked for, and what a direct computation gives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from commandline import good
from federations import ragged
from torch.nn.functional import cross_entropy

import sartor as st
from sartor.papers.reproduce.runs import FinishedRuns, Player, job_of
from sartor.run.complete import clients_of
from sartor.run.play import play_recipe
from sartor.run.recipe import Recipe

QUICK = {"model": "softmax", "rounds": 2, "evaluate_every": 1, "diagnostics": False, "clients": 5}


def history(**more: object) -> tuple[st.Result, st.Clients]:
    recipe = Recipe.of({**QUICK, **more})
    clients = clients_of(recipe)
    for last in play_recipe(recipe, clients, None):
        result = last
    return result, clients


def loss(theta: torch.Tensor, clients: st.Clients, i: int) -> float:
    """Of softmax regression, whose flat vector is the weights [10, 64] and then the biases."""
    rows = clients.rows(i, "train")
    weights, bias = theta[:640].reshape(10, 64), theta[640:]
    x = clients.x[rows].reshape(-1, 64)
    return float(cross_entropy(x @ weights.T + bias, clients.y[rows]))


@pytest.mark.parametrize("engine", ["local", "serial"])
def test_it_is_the_mean_over_clients_of_the_loss_on_their_own_samples(engine: str) -> None:
    result, clients = history(method="ditto", training_loss=True, engine=engine)
    models = result.run.models()
    own = [loss(theta, clients, i) for i, theta in enumerate(models["client/personal"])]
    common = [loss(models["global"], clients, i) for i in range(len(clients))]
    told = result.history[-1]["training"]
    assert told == {"personal_loss": pytest.approx(np.mean(own)), "global_loss": pytest.approx(np.mean(common))}


def test_with_attackers_benign_clients_and_everyone_are_told_apart() -> None:
    result, clients = history(method="fedavg", training_loss=True, attack="sign-flip", attackers=0.4)
    common = np.array([loss(result.run.models()["global"], clients, i) for i in range(len(clients))])
    told = result.history[-1]["training"]
    assert told["global_loss"] == pytest.approx(common[~result.run.hostile].mean())
    assert told["global_loss_everyone"] == pytest.approx(common.mean()) and result.run.hostile.sum() == 2
    assert 0 <= told["global_validation_everyone"] <= 1 and "personal_loss" not in told


def test_it_changes_nothing_else_and_is_off_by_default() -> None:
    plain, _ = history(method="flame")
    asked, _ = history(method="flame", training_loss=True)
    for a, b in zip(plain.history, asked.history, strict=True):
        assert "training" not in a
        assert {k: v for k, v in b.items() if k not in ("training", "seconds")} == {
            k: v for k, v in a.items() if k != "seconds"
        }


def test_the_command_line_writes_it_and_a_run_goes_on(tmp_path: Path) -> None:
    run = ("run", "--model", "softmax", "--clients", "5", "--evaluate-every", "1", "--quiet")
    good(*run, "--rounds", "1", "--training-loss", "--out", tmp_path / "a")
    good("run", "--rounds", "2", "--quiet", "--resume", tmp_path / "a")
    lines = [json.loads(line) for line in (tmp_path / "a" / "history.jsonl").read_text().splitlines()]
    assert [set(line["training"]) for line in lines] == [{"personal_loss", "global_loss"}] * 2


def test_a_repetition_keeps_it_beside_the_scores(tmp_path: Path) -> None:
    job = job_of(Recipe.of({**QUICK, "method": "fedavg", "training_loss": True, "attack": "gaussian"}))
    store = FinishedRuns(tmp_path)
    list(Player(store).play([job]))
    kept = store.get(job.key)
    assert kept is not None and len(kept["models"]["global"]["training"]) == 2
    assert set(kept["everyone"]) == {"global_loss", "global_validation"}


def test_python_asks_for_it_too() -> None:
    out = st.fit(st.FedAvg(), torch.nn.Linear(5, 3), ragged(), rounds=1, evaluation=st.Evaluation(training_loss=True))
    assert set(out.history[-1]["training"]) == {"global_loss"}
