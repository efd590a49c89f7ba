"""Class weights: as a weighted loss written out, on every path that a gradient can take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from commandline import OWN, QUICK, good, hospitals, refused
from sklearn.utils.class_weight import compute_class_weight
from torch import nn

import sartor as st
from sartor.data import Clients
from sartor.models import layers
from sartor.run.assemble import prepare
from sartor.run.recipe import Recipe


def rare(m: int = 3, n: int = 60, share: float = 0.1) -> Clients:
    """Clients of which few samples are of class 1."""
    draw, parts = np.random.default_rng(0), []
    for _ in range(m):
        y = (draw.random(n) < share).astype(np.int64)
        y[:2], y[40:42] = (0, 1), (0, 1)
        x = draw.normal(size=(n, 4)) + 0.7 * y[:, None]
        parts.append({"train": (x[:40], y[:40]), "test": (x[40:], y[40:])})
    return Clients.from_parts(parts, 2).to(dtype=torch.float64)


def training(clients: Clients) -> np.ndarray:
    return np.concatenate([clients.y[clients.rows(i, "train")].numpy() for i in range(len(clients))])


MODELS = {"one layer": lambda: layers(4, 2), "dense": lambda: layers(4, 5, 2), "other": lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))}  # fmt: skip  # noqa: E501


@pytest.mark.parametrize("kind", MODELS)
def test_one_step_is_that_of_the_weighted_loss(kind: str) -> None:
    """A full batch and one step: w − lr ∇ mean of (weight of its class · cross-entropy), by autograd."""
    clients = rare()
    weights = compute_class_weight("balanced", classes=np.array([0, 1]), y=training(clients))
    method = st.FedAvg(solver=st.SGD(lr=0.5, epochs=1, batch=1000))
    made = prepare(
        method, MODELS[kind](), clients, 1, class_weights="balanced", execution=st.Execution(dtype="float64")
    )
    assert made.task.class_weights is not None
    assert made.task.class_weights.numpy() == pytest.approx(weights)
    start = made.run.problem.start
    made.run.step()
    means = []
    for i in range(3):
        theta = start.clone().requires_grad_()
        rows = clients.rows(i, "train")
        values = dict(zip(made.task.names, made.task.unflatten(theta), strict=True))
        output = torch.func.functional_call(made.task.original, values, (clients.x[rows],))
        loss = (
            F.cross_entropy(output, clients.y[rows], reduction="none") * torch.from_numpy(weights)[clients.y[rows]]
        ).mean()
        means.append(start - 0.5 * torch.autograd.grad(loss, theta)[0])
    found = made.run.method.shared(made.run.server)
    assert found is not None and torch.allclose(found, torch.stack(means).mean(0), atol=1e-12)


def test_full_gradients_are_weighted_too() -> None:
    """The inexact solver stops where the gradient over all data is small: the weighted one, not the other."""
    clients = rare()
    solver = st.Inexact(lr=0.3, eps=1e-6, max_steps=20_000)
    execution = st.Execution(dtype="float64")
    made = st.fit(st.LocalOnly(solver=solver), layers(4, 2), clients, 2, class_weights="balanced", execution=execution)
    theta = made._personal["personal"][0].clone().requires_grad_()
    values = dict(zip(made.task.names, made.task.unflatten(theta), strict=True))
    rows = clients.rows(0, "train")
    output = torch.func.functional_call(made.task.original, values, (clients.x[rows],))
    weights = torch.from_numpy(compute_class_weight("balanced", classes=np.array([0, 1]), y=training(clients)))
    each = F.cross_entropy(output, clients.y[rows], reduction="none")
    slopes = [
        torch.autograd.grad((each * w).mean(), theta, retain_graph=True)[0] for w in (weights[clients.y[rows]], 1)
    ]
    assert float(slopes[0].norm()) <= 1.01e-3 and float(slopes[1].norm()) > 0.05


def test_a_rare_class_is_found_more_often() -> None:
    each = {}
    for how in ("none", "balanced"):
        result = st.fit(st.FedAvg(solver=st.SGD(lr=0.5)), layers(4, 2), rare(), 20, class_weights=how)
        each[how] = result.metrics()["models"]["global"]["pooled"]["sensitivity"]["value"]
    assert each["balanced"] > each["none"] + 0.2


def test_scores_are_not_weighted() -> None:
    clients = rare()
    result = st.fit(st.FedAvg(), layers(4, 2), clients, 2, class_weights="balanced")
    rows = result.data.rows(1, "test")
    with torch.no_grad():
        loss = F.cross_entropy(result.shared()(result.data.x[rows]), result.data.y[rows])
    assert result.scores["global/test/loss"][1] == pytest.approx(float(loss), rel=1e-5)


def test_the_command_line(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv")
    good("run", *QUICK, "--data", table, *OWN, "--class-weights", "balanced", "--out", tmp_path / "run", "--quiet")
    assert Recipe.load(tmp_path / "run" / "recipe.toml").class_weights == "balanced"
    assert "'balanced'" in refused("run", *QUICK, "--data", table, *OWN, "--class-weights", "equal")
    numbers = hospitals(tmp_path / "numbers.csv", target="level")
    line = refused("run", "--model", "linear", "--data", numbers, *OWN, "--class-weights", "balanced")
    assert "targets that are classes" in line


def test_batch_normalisation_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    with pytest.raises(st.SartorError, match="batch normalisation"):
        st.fit(st.FedAvg(), model, rare(), 1, class_weights="balanced")
