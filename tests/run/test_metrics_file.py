"""metrics.json: of the samples and models of the run, as anybody could measure them from what it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commandline import OWN, QUICK, good, hospitals
from sklearn import metrics as sk
from torch import nn

import sartor as st
from sartor.data import Clients
from sartor.data.dataset import Dataset
from sartor.errors import SartorError
from sartor.models import layers
from sartor.run.folder_schema import METRICS
from sartor.run.result import Result
from sartor.storage import read_json


def federation(k: int | None, m: int = 5, n: int = 40, seed: int = 0) -> Clients:
    """Clients with classes, or numbers; the last one's test samples are of one class."""
    draw, parts = np.random.default_rng(seed), []
    for i in range(m):
        x = draw.normal(size=(n, 4))
        value = x[:, 0] + 0.3 * i * x[:, 1] + 0.5 * draw.normal(size=n)
        y = value if k is None else np.clip((value * k / 4 + k / 2).astype(np.int64), 0, k - 1)
        if k is not None and i == m - 1:
            y[30:] = 1
        parts.append({"train": (x[:24], y[:24]), "validation": (x[24:30], y[24:30]), "test": (x[30:], y[30:])})
    return Clients.from_parts(parts, k)


def fitted(clients: Clients, method: Any = None, **more: Any) -> Result:
    outputs = clients.classes or 1
    return st.fit(method or st.Ditto(lam=0.5), layers(4, outputs), clients, 4, **more)


def probabilities(result: Result, model: str, client: int) -> np.ndarray:
    module = {"personal": result.personal, "chosen": result.chosen}.get(model, lambda i: result.shared())(client)
    with torch.no_grad():
        output: torch.Tensor = module(result.data.x[result.data.rows(client, "test")])
    return output.double().softmax(1).numpy()


@pytest.mark.parametrize("k", [2, 3])
def test_classes(k: int) -> None:
    result = fitted(federation(k))
    found = result.metrics()
    truth = [result.data.y[result.data.rows(i, "test")].numpy() for i in range(5)]
    assert found["kind"] == "probabilities" and found["samples"] == 50
    assert found["positive"] == ("1" if k == 2 else None)
    assert found["notes"][0] == "AUROC, AUPRC: 1 of 5 clients have one class only"
    for model in ("chosen", "personal", "global"):
        said = [probabilities(result, model, i) for i in range(5)]
        table = found["models"][model]
        rows = [row["log-loss"] for row in table["clients"]]
        assert rows == pytest.approx([sk.log_loss(y, p, labels=range(k)) for y, p in zip(truth, said, strict=True)])
        assert [row["accuracy"] for row in table["clients"]] == list(result.scores[f"{model}/test/accuracy"])
        assert table["clients"][4]["auroc"] is None
        areas = [row["auroc"] for row in table["clients"][:4]]
        assert table["averaged"]["auroc"]["value"] == pytest.approx(np.mean(areas))
        assert table["averaged"]["auroc"]["clients"] == 4
        y, p = np.concatenate(truth), np.concatenate(said)
        together = sk.roc_auc_score(y, p[:, 1] if k == 2 else p, multi_class="ovr")
        assert table["pooled"]["auroc"]["value"] == pytest.approx(together)
        for how in ("averaged", "pooled"):
            for name, one in table[how].items():
                assert one["low"] <= one["value"] <= one["high"] or name == "ece", (how, name)
        assert table["confusion"] == sk.confusion_matrix(y, p.argmax(1)).tolist()
        assert sum(row["samples"] for row in table["reliability"]) == 50


def test_numbers() -> None:
    result = fitted(federation(None))
    table = result.metrics()["models"]["personal"]
    errors = []
    for i, row in enumerate(table["clients"]):
        own = result.data.rows(i, "test")
        with torch.no_grad():
            errors.append((result.personal(i)(result.data.x[own])[:, 0] - result.data.y[own]).double().numpy())
        assert row["mae"] == pytest.approx(np.abs(errors[-1]).mean()) and "auroc" not in row
    assert table["pooled"]["rmse"]["value"] == pytest.approx((np.concatenate(errors) ** 2).mean() ** 0.5)
    assert table["confusion"] is None and table["reliability"] is None


def test_margins_are_no_probabilities() -> None:
    parts = []
    draw = np.random.default_rng(0)
    for _ in range(3):
        x = draw.normal(size=(30, 4))
        y = np.where(x[:, 0] + draw.normal(size=30) > 0, 1.0, -1.0)
        parts.append({"train": (x[:15], y[:15]), "validation": (x[15:20], y[15:20]), "test": (x[20:], y[20:])})
    clients = Clients.from_parts(parts, 2)
    result = st.fit(st.LocalOnly(), nn.Linear(4, 1), clients, 3, loss="hinge")
    found = result.metrics()
    assert found["kind"] == "scores" and "log-loss" not in found["metrics"] and found["class_names"] == ["-1", "1"]
    assert "no log loss, Brier score or calibration" in found["notes"][-1]
    own = clients.rows(1, "test")
    with torch.no_grad():
        margin = result.personal(1)(result.data.x[own])[:, 0].numpy()
    known = sk.roc_auc_score(clients.y[own].numpy() > 0, margin)
    assert found["models"]["personal"]["clients"][1]["auroc"] == pytest.approx(known)


def test_hostile_clients_are_left_out() -> None:
    result = fitted(federation(2), attack=st.Attacked(st.attacks.SignFlip(), 0.4))
    rows = result.metrics()["models"]["chosen"]["clients"]
    assert [row["name"] for row in rows] == [c["name"] for c in result.clients if not c["hostile"]] and len(rows) == 3


def test_a_loss_of_ones_own_is_measured_as_far_as_it_goes() -> None:
    """With outputs that are not those of the classes there is nothing to measure, and the run is saved all the same."""

    def binary(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.binary_cross_entropy_with_logits(output[:, 0], y.to(output.dtype), reduction="none")

    def right(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((output[:, 0] > 0) == (y == 1)).to(output.dtype)

    result = st.fit(st.FedAvg(), nn.Linear(4, 1), federation(2), 2, loss=binary, metric=right)
    with pytest.raises(SartorError, match="outputs"):
        result.metrics()


def test_the_file_is_as_declared(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv", each=30)
    good("run", *QUICK, "--data", table, *OWN, "--quiet", "--out", tmp_path / "run")
    found = read_json(tmp_path / "run" / "metrics.json", METRICS)
    assert found["class_names"] == ["0", "1"] and found["positive"] == "1"
    clients = json.loads((tmp_path / "run" / "clients.json").read_text())
    rows = found["models"]["chosen"]["clients"]
    assert [r["accuracy"] for r in rows] == [c["chosen_test_accuracy"] for c in clients]
    for change in (lambda v: v["models"]["chosen"]["pooled"].pop("auroc"), lambda v: v["class_names"].pop()):
        broken = json.loads(json.dumps(found))
        change(broken)
        (tmp_path / "broken.json").write_text(json.dumps(broken))
        with pytest.raises(SartorError, match=r"broken\.json"):
            read_json(tmp_path / "broken.json", METRICS)


def test_the_server_of_a_federation_has_no_samples() -> None:
    result = fitted(federation(2))
    bounds = result.data.bounds + len(result.data.x)
    result.data = Clients(result.data.x[:1], result.data.y[:1], bounds, result.data.names, 2)
    with pytest.raises(SartorError, match="stay at its sites"):
        result.metrics()


@pytest.mark.parametrize("engine", ["local", "serial"])
def test_errors_are_in_the_units_of_the_data(engine: str) -> None:
    """Targets that are 100 times as large, and far from zero: so are the errors, but R² is the same. By a named metric,
    too."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(120, 3))
    y, keys = x[:, 0] + 0.5 * draw.normal(size=120), np.arange(120) % 4
    found = []
    for scale, centre in ((1.0, 0.0), (100.0, 7000.0)):
        dataset = Dataset(x, scale * y + centre, None, keys=keys)
        clients = dataset.split("natural", None, 0, (0.6, 0.2, 0.2), 1, torch.float64)
        how = {"evaluation": st.Evaluation(metric="mae"), "execution": st.Execution(engine=engine, dtype="float64")}
        result = st.fit(st.LocalOnly(), nn.Linear(3, 1), clients, 3, **how)
        table = result.metrics()["models"]["personal"]
        assert -result.scores["personal/test/accuracy"] == pytest.approx([r["mae"] for r in table["clients"]])
        found.append(table["pooled"])
    for name, times in (("mae", 100), ("rmse", 100), ("r2", 1)):
        assert found[1][name]["value"] == pytest.approx(times * found[0][name]["value"], rel=1e-6)
        assert found[1][name]["high"] == pytest.approx(times * found[0][name]["high"], rel=1e-6)
