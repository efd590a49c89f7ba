"""Models to take home: every format gives what the model gives, and what was changed is refused. Predictions by row."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from commandline import good, refused, sartor
from safetensors.torch import load_file, save_file
from torch import nn

import sartor as st
from sartor.data import hospitals
from sartor.run.complete import clients_of
from sartor.run.play import play_recipe
from sartor.run.predict import Served
from sartor.run.recipe import Recipe
from sartor.storage import read_json

OWN = ("--data", "patients.csv", "--target", "outcome", "--client-key", "hospital", "--model", "softmax")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the table of hospitals, and another of a method without a global model."""
    place = tmp_path_factory.mktemp("hospitals")
    hospitals.write(place)
    with pytest.MonkeyPatch.context() as here:
        here.chdir(place)
        good("run", "--method", "ditto", *OWN, "--rounds", 5, "--out", "run", "--quiet")
        good("run", "--method", "local", *OWN, "--rounds", 5, "--out", "alone", "--quiet")
    return place


@pytest.fixture(scope="module")
def result() -> st.Result:
    clients = st.data.load("digits").split("hybrid", clients=4, seed=0)
    return st.fit(st.Ditto(), nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), clients, rounds=2)


def answers(path: Path, frame: pd.DataFrame) -> np.ndarray:
    """What an exported model says of a table's rows as they are."""
    note: dict[str, Any]
    if path.suffix == ".onnx":
        runtime = pytest.importorskip("onnxruntime").InferenceSession(path, providers=["CPUExecutionProvider"])
        note = json.loads(runtime.get_modelmeta().custom_metadata_map["sartor"])
        given = {k: frame[columns] for k, columns in note["takes"].items()}
        types = {"texts": object}
        rows = {k: v.fillna("").to_numpy(types[k]) if k in types else v.to_numpy(np.float32) for k, v in given.items()}
        return np.asarray(runtime.run(None, rows)[0], dtype=np.float64)
    if path.suffix == ".safetensors":
        model = st.load_model(path)
        return np.asarray(model(model.encode(frame)).double().detach())
    extra = {"sartor.json": ""}
    if path.suffix == ".pt2":
        module = torch.export.load(path, extra_files=extra).module()
    else:
        with pytest.warns(DeprecationWarning):
            module = torch.jit.load(str(path), _extra_files=extra)
    note = json.loads(extra["sartor.json"])
    texts = {c["name"]: c["texts"] for c in note["inputs"]["columns"] if c["kind"] == "text"}
    columns = [
        frame[c].fillna("").map({t: i for i, t in enumerate(texts[c])}).fillna(-1) if c in texts else frame[c]
        for c in note["takes"]["x"]
    ]
    x = torch.tensor(np.column_stack([c.to_numpy(np.float32) for c in columns]))
    return np.asarray(module(x).double().detach())


def predicted(run: Path, client: str, data: Path, prefix: str) -> np.ndarray:
    """The same by `sartor predict`."""
    options = ("--probabilities",) if prefix == "p(" else ()
    text = sartor("predict", "--run", run, "--data", data, "--client", client, *options).out  # it may have notes
    rows = list(csv.DictReader(io.StringIO(text)))
    return np.array([[float(v) for k, v in row.items() if k.startswith(prefix)] for row in rows])


KINDS = ["safetensors", "pt", "pt2", "onnx"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_exported_model_says_what_predict_says(folder: Path, tmp_path: Path, kind: str) -> None:
    """Given rows as they are, with a number missing and text: filling, scaling and texts are inside."""
    path = tmp_path / f"model.{kind}"
    said = good("export", "--run", folder / "run", "--client", "Park", "--out", path).out
    assert said.startswith(str(path)) and "model of Park" in said
    frame = pd.read_csv(folder / "new.csv")
    assert frame.isna().sum().sum() == 1
    frame.loc[3] = [*frame.loc[0]]
    frame.loc[3, "ward"] = "nobody knows it"  # a text that training has not seen
    frame.to_csv(tmp_path / "new.csv", index=False)
    wanted = predicted(folder / "run", "Park", tmp_path / "new.csv", "p(")
    np.testing.assert_allclose(answers(path, frame), wanted, atol=1e-6)
    assert wanted.shape == (4, 2) and np.allclose(wanted.sum(1), 1)


@pytest.fixture(scope="module")
def voting(folder: Path) -> Path:
    """A run whose personal models remember samples."""
    with pytest.MonkeyPatch.context() as here:
        here.chdir(folder)
        shares = ("--set", "share=0.6", "--set", "k=3")
        good("run", "--method", "knn-per", *OWN[:-1], "mlp", *shares, "--rounds", 2, "--out", "voting", "--quiet")
    return folder / "voting"


@pytest.mark.parametrize("kind", KINDS)
def test_a_memory_is_exported_with_its_model(folder: Path, voting: Path, tmp_path: Path, kind: str) -> None:
    path, frame = tmp_path / f"model.{kind}", pd.read_csv(folder / "new.csv")
    good("export", "--run", voting, "--client", "Park", "--model", "personal", "--out", path)
    served = Served(voting)
    rows = served.read(folder / "new.csv").x
    wanted = served.scores(served.known("Park", "personal"), rows)
    np.testing.assert_allclose(answers(path, frame), wanted, atol=1e-6)
    assert np.abs(wanted - served.scores(served.known("Park", "global"), rows)).max() > 0.01  # votes have a say


NATURAL = Path(os.environ.get("SARTOR_DATA", "")) / "natural"
needs_natural = pytest.mark.skipif(not (NATURAL / "heart.csv").exists(), reason="SARTOR_DATA has no natural/heart.csv")


@needs_natural
def test_hospitals_with_gaps_and_text_in_every_format(tmp_path: Path) -> None:
    asked = ("--data", NATURAL / "heart.csv", "--target", "disease", "--client-key", "hospital", "--model", "softmax")
    good("run", "--method", "ditto", *asked, "--rounds", 3, "--out", tmp_path / "run", "--quiet")
    frame = pd.read_csv(NATURAL / "heart.csv").iloc[::7]
    frame.to_csv(tmp_path / "some.csv", index=False)
    assert frame.isna().sum().sum() > 50
    wanted = predicted(tmp_path / "run", "hungarian", tmp_path / "some.csv", "p(")
    for kind in KINDS:
        path = tmp_path / f"m.{kind}"
        good("export", "--run", tmp_path / "run", "--client", "hungarian", "--out", path)
        np.testing.assert_allclose(answers(path, frame), wanted, atol=2e-6)


@needs_natural
def test_schools_in_every_format_in_the_units_of_the_exam(tmp_path: Path) -> None:
    asked = ("--data", NATURAL / "school.csv", "--target", "score", "--client-key", "school", "--task", "regression")
    good("run", "--method", "fedavg", *asked, "--rounds", 10, "--out", tmp_path / "run", "--quiet", "--lr", 0.02)
    frame = pd.read_csv(NATURAL / "school.csv").iloc[::100]
    frame.to_csv(tmp_path / "some.csv", index=False)
    wanted = predicted(tmp_path / "run", "s003", tmp_path / "some.csv", "prediction")
    assert 15 < wanted.mean() < 30 and abs(wanted.mean() - frame["score"].mean()) < 4  # points, not standard scores
    for kind in KINDS:
        path = tmp_path / f"m.{kind}"
        good("export", "--run", tmp_path / "run", "--client", "s003", "--out", path)
        np.testing.assert_allclose(answers(path, frame).reshape(-1, 1), wanted, atol=1e-4)
    newcomer = good(
        *("predict", "--run", tmp_path / "run", "--newcomer", tmp_path / "some.csv", "--data", tmp_path / "some.csv")
    )
    rows = list(csv.DictReader(io.StringIO(newcomer.out)))
    assert abs(np.mean([float(r["prediction"]) for r in rows]) - frame["score"].mean()) < 4


def test_numbers_come_back_in_the_targets_units(tmp_path: Path) -> None:
    """y = 5000 + 300 a at one hospital and 8000 + 300 a at another: least squares, known beforehand."""
    draw = np.random.default_rng(0)
    a, level = draw.normal(size=200), np.repeat([5000.0, 8000.0], 100)
    frame = pd.DataFrame({"a": a, "hospital": np.repeat(["x", "y"], 100), "cost": level + 300 * a})
    frame.to_csv(tmp_path / "t.csv", index=False)
    asked = ("--data", tmp_path / "t.csv", "--target", "cost", "--client-key", "hospital", "--rounds", 2)
    good("run", "--method", "local", "--ridge", 0, *asked, "--out", tmp_path / "run", "--quiet")
    inputs = read_json(tmp_path / "run" / "inputs.json")
    assert inputs["target_scale"][0] == pytest.approx(6500, abs=200)
    assert inputs["target_scale"][1] == pytest.approx(1530, abs=60)
    for client, wanted in (("x", 5000 + 300 * a), ("y", 8000 + 300 * a)):
        found = predicted(tmp_path / "run", client, tmp_path / "t.csv", "prediction")[:, 0]
        np.testing.assert_allclose(found, wanted, atol=0.05)
    old = {k: v for k, v in inputs.items() if k != "target_scale"}  # of a run before targets were put to scale
    (tmp_path / "run" / "inputs.json").write_text(json.dumps(old))
    assert abs(predicted(tmp_path / "run", "x", tmp_path / "t.csv", "prediction").mean()) < 3


def test_without_the_extra_one_line_says_what_to_install(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    asked = ("export", "--run", folder / "run", "--out", tmp_path / "m.onnx")
    assert "pip install 'sartor[onnx]'" in refused(*asked) and not list(tmp_path.iterdir())
    assert "ends in .safetensors, .onnx" in refused("export", "--run", folder / "run", "--out", "m.pkl")
    assert "no global model to export" in refused("export", "--run", folder / "alone", "--out", tmp_path / "m.pt2")


def test_a_result_exports_its_models(result: st.Result, tmp_path: Path) -> None:
    x = result.data.x[:5]
    for client, which in ((2, "personal"), ("1", "global"), (0, "chosen")):
        path = result.export(client, tmp_path / "m.safetensors", which)
        at = int(client)
        wanted = {"personal": result.personal, "global": lambda i: result.shared(), "chosen": result.chosen}[which](at)
        again = st.load_model(path, nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
        assert torch.equal(again(x), wanted(x).softmax(1))
    with pytest.raises(st.SartorError, match="give the architecture"):
        st.load_model(path)
    with pytest.raises(st.SartorError, match="does not fit a Linear"):
        st.load_model(path, nn.Linear(3, 3))
    with pytest.raises(st.SartorError, match="clients are 0 to 3; got 9"):
        result.export(9, path)
    with pytest.raises(st.SartorError, match="unknown client 'x'"):
        result.export("x", path)


def test_images_go_in_as_they_are(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 1, 6, 6), dtype=np.uint8)
    clients = st.data.load((pixels, np.arange(60) % 3)).split("iid", clients=2)
    result = st.fit(st.FedAvg(), st.models.layers(36, 3), clients, rounds=1)
    result.export(0, tmp_path / "m.pt2")
    found = torch.export.load(tmp_path / "m.pt2").module()(torch.from_numpy(pixels[:7]))
    torch.testing.assert_close(found, result.shared()(torch.from_numpy(pixels[:7]).float() / 255).softmax(1))


def test_images_with_a_scale_for_each_pixel(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 1, 6, 6), dtype=np.uint8)
    mean, std = np.linspace(0.2, 0.6, 36), np.linspace(0.1, 0.4, 36)
    scale = tuple(mean.tolist()), tuple(std.tolist())
    clients = st.data.Dataset(pixels, np.arange(60) % 3, 3, "own", scale=scale).split("iid", clients=2)
    result = st.fit(st.FedAvg(), st.models.layers(36, 3), clients, rounds=1)
    result.export(0, tmp_path / "m.pt2")
    found = torch.export.load(tmp_path / "m.pt2").module()(torch.from_numpy(pixels[:7]))
    ready = (pixels[:7].reshape(7, 36) / 255 - mean) / std
    torch.testing.assert_close(found, result.shared()(torch.from_numpy(ready).float().view(7, 1, 6, 6)).softmax(1))


# --- predict ----------------------------------------------------------------------------------------------------------


def test_rows_are_served_by_their_own_hospital_and_strangers_by_the_global_model(folder: Path) -> None:
    answer = sartor("predict", "--run", folder / "run", "--data", folder / "new.csv")
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert answer.code == 0 and [r["hospital"] for r in rows] == ["St. Mary", "Park", "Seaside"]
    assert rows[2]["model"] == "global (unknown client)" and answer.err.count("\n") == 1
    assert "note: hospital 'Seaside' took no part and is served by: global" in answer.err
    for i, name in enumerate(("St. Mary", "Park")):
        one = good("predict", "--run", folder / "run", "--data", folder / "new.csv", "--client", name).out
        same = [float(r["probability"]) for r in (list(csv.DictReader(io.StringIO(one)))[i], rows[i])]
        assert same[0] == pytest.approx(same[1], rel=1e-6)  # a batch of three and one of one
    alone = sartor("predict", "--run", folder / "alone", "--data", folder / "new.csv")
    assert "average of all (unknown client)" in alone.out


def test_a_misspelt_client_is_offered_the_right_one(folder: Path) -> None:
    text = (folder / "new.csv").read_text().replace("Seaside", "st mary")
    (folder / "odd.csv").write_text(text)
    assert "did you mean 'St. Mary'?" in sartor("predict", "--run", folder / "run", "--data", folder / "odd.csv").err
    line = refused("predict", "--run", folder / "run", "--data", folder / "new.csv", "--client", "Prak")
    assert "unknown client" in line and "did you mean Park" in line and "--newcomer" in line


def test_predictions_need_no_training_data(folder: Path) -> None:
    asked = ("predict", "--run", folder / "run", "--data", folder / "new.csv", "--client", "Park")
    before = good(*asked).out
    (folder / "patients.csv").rename(folder / "elsewhere.csv")
    try:
        assert good(*asked).out == before
    finally:
        (folder / "elsewhere.csv").rename(folder / "patients.csv")


@pytest.mark.parametrize("file", ["personal", "global"])
def test_a_model_that_was_tampered_with_is_refused(folder: Path, file: str) -> None:
    path = folder / "run" / "models" / f"{file}.safetensors"
    kept = path.read_bytes()
    asked = ("predict", "--run", folder / "run", "--data", folder / "new.csv", "--client", "Park", "--model", file)
    good(*asked)
    try:
        path.write_bytes(kept[:-3] + bytes([kept[-3] ^ 1]) + kept[-2:])
        assert "was changed after it was written: its checksum does not fit" in refused(*asked)
        path.write_bytes(kept[:-8])
        assert "truncated" in refused(*asked)
    finally:
        path.write_bytes(kept)
    tensors = load_file(path)
    try:
        save_file(tensors, path)  # somebody wrote it anew, without any note
        assert "has no checksum" in refused(*asked)
    finally:
        path.write_bytes(kept)


def test_a_mixture_is_served_from_the_run_s_folder(tmp_path: Path) -> None:
    """The folder keeps personal and global models; a client that takes a mixture is served with one model made of
    both, the one that was scored."""
    recipe = Recipe(method="fedavg-ft", rounds=10, evaluate_every=10, diagnostics=False)
    clients = clients_of(recipe)
    *_, result = play_recipe(recipe, clients, tmp_path / "a")
    taken = [row["chosen"] for row in result.clients]
    mixed = next(i for i, model in enumerate(taken) if model.startswith("mix"))
    served = Served(tmp_path / "a").known(clients.names[mixed], "chosen")
    assert served.name == taken[mixed]
    x, y = (v[clients.rows(mixed, "test")] for v in (clients.x, clients.y))
    output = served.modules[0][0](x)
    assert torch.allclose(output, result.chosen(mixed)(x), atol=1e-6)
    assert float((output.argmax(1) == y).float().mean()) == pytest.approx(result.clients[mixed]["chosen_test_accuracy"])
    for model in ("personal", "global"):  # and not with one of the two
        other = Served(tmp_path / "a").known(clients.names[mixed], model)
        assert not torch.allclose(output, other.modules[0][0](x))
