"""Models to take home: every format gives what the model gives, and what was changed is refused. Predictions by row."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from commandline import good, refused, sartor
from safetensors.torch import load_file, save_file
from torch import nn

import sartor as st
from sartor.data import hospitals
from sartor.data.tables.new_samples import read_like
from sartor.run.assemble import clients_of
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


def features(folder: Path) -> tuple[np.ndarray, torch.Tensor, np.ndarray]:
    """Park's second patient has no bmi: its features as they are, and probabilities that predict gives."""
    text = good("predict", "--run", folder / "run", "--data", folder / "new.csv", "--client", "Park", "--probabilities")
    rows = list(csv.DictReader(io.StringIO(text.out)))
    from sartor.data.inputs import Inputs

    inputs = Inputs.of(read_json(folder / "run" / "inputs.json"), "")
    x = read_like(folder / "new.csv", inputs).x
    assert np.isnan(x).sum() == 1
    return x, torch.from_numpy(x), np.array([[float(r["p(home)"]), float(r["p(readmitted)"])] for r in rows])


@pytest.mark.parametrize("kind", ["safetensors", "pt", "pt2", "onnx"])
def test_an_exported_model_says_what_predict_says(folder: Path, tmp_path: Path, kind: str) -> None:
    """Given samples as they are, with a number missing: filling and scaling are inside."""
    path = tmp_path / f"model.{kind}"
    if kind == "onnx":
        pytest.importorskip("onnxscript")
    said = good("export", "--run", folder / "run", "--client", "Park", "--out", path).out
    assert said.startswith(str(path)) and "model of Park" in said
    x, tensor, wanted = features(folder)
    if kind == "onnx":
        runtime = pytest.importorskip("onnxruntime").InferenceSession(path, providers=["CPUExecutionProvider"])
        assert json.loads(runtime.get_modelmeta().custom_metadata_map["sartor"])["client"] == "Park"
        output = torch.from_numpy(runtime.run(None, {"x": x})[0])
    elif kind == "pt2":
        output = torch.export.load(path).module()(tensor)
    elif kind == "pt":
        with pytest.warns(DeprecationWarning):
            output = torch.jit.load(str(path))(tensor)
    else:
        output = st.load_model(path)(tensor)
    np.testing.assert_allclose(output.double().softmax(1).detach().numpy(), wanted, atol=1e-6)


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
        assert torch.equal(again(x), wanted(x))
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
    torch.testing.assert_close(found, result.shared()(torch.from_numpy(pixels[:7]).float() / 255))


def test_images_with_a_scale_for_each_pixel(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 1, 6, 6), dtype=np.uint8)
    mean, std = np.linspace(0.2, 0.6, 36), np.linspace(0.1, 0.4, 36)
    scale = tuple(mean.tolist()), tuple(std.tolist())
    clients = st.data.Dataset(pixels, np.arange(60) % 3, 3, "own", scale=scale).split("iid", clients=2)
    result = st.fit(st.FedAvg(), st.models.layers(36, 3), clients, rounds=1)
    result.export(0, tmp_path / "m.pt2")
    found = torch.export.load(tmp_path / "m.pt2").module()(torch.from_numpy(pixels[:7]))
    ready = (pixels[:7].reshape(7, 36) / 255 - mean) / std
    torch.testing.assert_close(found, result.shared()(torch.from_numpy(ready).float().view(7, 1, 6, 6)))


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
