"""`sartor bench`: a folder of one's own tables, nested: what is held back decides nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from commandline import good, refused

from sartor.data import Natural, load
from sartor.run.complete import split
from sartor.run.recipe import Recipe
from sartor.study.natural import LINEAR, Benched, Score, bench, read_set, sets_of, verdicts


def folder_of_tables(tmp_path: Path) -> Path:
    """Six wards with levels of their own."""
    draw, lines = np.random.default_rng(1), ["ward,a,b,stay"]
    for i in range(6):
        level = 2 * draw.normal()
        for a, b in draw.normal(size=(24, 2)):
            lines.append(f"w{i},{a:.4f},{b:.4f},{level + a - b + 0.5 * draw.normal():.4f}")
    (tmp_path / "stays.csv").write_text("\n".join(lines))
    (tmp_path / "bench.toml").write_text(
        '[stays]\nfile = "stays.csv"\ntarget = "stay"\nclient_key = "ward"\ntask = "regression"\n'
        'title = "Stays, 6 wards"\nanchors = ["somebody: 0.9"]\n'
    )
    return tmp_path


@pytest.mark.long
def test_a_folder_of_tables(tmp_path: Path) -> None:
    folder = folder_of_tables(tmp_path)
    asked = ("bench", folder, "--seeds", 2, "--minutes", 0.01, "--out", tmp_path / "out")
    said = good(*asked).out
    found = json.loads((tmp_path / "out" / "natural.json").read_text())["stays"]
    assert found["anchors"] == ["somebody: 0.9"] and found["metric"] == "R²" and found["clients"] == 6
    scores = found["scores"]
    assert {"advised", "local", "mixed-effects", *LINEAR, "pooled-trees"} <= set(scores)
    # Levels differ by 4 and the rest of the variance is 2.25: pooled models explain a third, own intercepts most.
    assert scores["own-intercept"]["mean"] > 0.8 > 0.6 > scores["fednewton"]["mean"]
    assert scores["advised"]["mean"] > 0.8 and len(scores["advised"]["each"]) == 2
    for ours, theirs in (("fednewton", "pooled-linear"), ("own-intercept", "own-intercept-linear")):
        np.testing.assert_allclose(scores[ours]["each"], scores[theirs]["each"], atol=0.03)
    assert "Stays, 6 wards" in said and "over the best candidate" in said
    again = good(*asked).out  # from what is stored
    assert again == said


@pytest.mark.long
def test_held_back_rows_decide_nothing(tmp_path: Path) -> None:
    """With every held-back target turned round, the same is recommended, with the same settings; only scores differ."""
    (tmp_path / "a").mkdir()
    folder = folder_of_tables(tmp_path / "a")
    _, sets = sets_of(str(folder))
    data, base = read_set(folder, sets["stays"])
    _, order, bounds = data.deal(Natural(), None, 0, (0.67, 0.08, 0.25), base.minimum)
    turned = data.y.copy()
    for low, high in bounds[:, [2, 3]]:
        turned[order[low:high]] *= -1
    rows = (tmp_path / "a" / "stays.csv").read_text().splitlines()
    (tmp_path / "b").mkdir()
    lines = [rows[0], *(f"{r.rpartition(',')[0]},{y:.4f}" for r, y in zip(rows[1:], turned, strict=True))]
    (tmp_path / "b" / "stays.csv").write_text("\n".join(lines))
    (tmp_path / "b" / "bench.toml").write_text((tmp_path / "a" / "bench.toml").read_text())
    found = []
    for place in ("a", "b"):
        *_, (one, _) = bench(str(tmp_path / place), seeds=1, minutes=0.01, references=())
        found.append(one["stays"])
    assert found[0].recommended == found[1].recommended
    assert found[0].scores["advised"].mean > 0.8 > 0 > found[1].scores["advised"].mean


def test_verdicts_by_hand() -> None:
    on = Benched("x", {"title": "x"}, "accuracy", 4, 100)
    for name, federated, each in (
        ("advised", True, [0.8, 0.9]),
        ("local", True, [0.7, 0.9]),
        ("ditto", True, [0.85, 0.95]),
        ("shrunk-linear", False, [0.8, 0.8]),
    ):
        on.scores[name] = Score(name, federated, each)
    said = verdicts({"x": on})["x"]
    assert said["best_linear"] == "shrunk-linear" and said["over_best_linear"]["mean"] == pytest.approx(0.05)
    # 0 and 0.1: s = 0.0707, times sqrt(1/2 + 1/3).
    assert said["over_best_linear"]["standard_error"] == pytest.approx(0.0645497, rel=1e-4)
    assert said["best_candidate"] == "ditto" and said["over_best_candidate"]["mean"] == pytest.approx(-0.05)
    assert (said["rank"], said["of"]) == (2, 2)


def test_what_is_wrong_with_a_folder_is_said(tmp_path: Path) -> None:
    assert "bench.toml" in refused("bench", tmp_path)
    (tmp_path / "bench.toml").write_text('[a]\nfile = "a.csv"\ntarget = "y"\n')
    assert "a lacks client_key" in refused("bench", tmp_path)
    (tmp_path / "bench.toml").write_text('[a]\nfile = "a.csv"\ntarget = "y"\nclient_key = "c"\nkey = 1\n')
    assert "unknown key of a" in refused("bench", tmp_path)
    assert "unknown set" in refused("bench", folder_of_tables(tmp_path), "--only", "heart")
    assert "at least 1 seed" in refused("bench", tmp_path, "--seeds", 0)


@pytest.mark.long
@pytest.mark.skipif("SARTOR_DATA" not in os.environ, reason="needs SARTOR_DATA")
def test_the_natural_sets_are_read() -> None:
    folder, sets = sets_of("natural")
    assert set(sets) == {"heart", "contraception", "exam", "hsb82", "school", "har", "shakespeare"}
    for name, clients, rows in (("heart", 4, 920), ("har", 30, 10299), ("shakespeare", 40, 16000)):
        data, base = read_set(folder, sets[name])
        assert len(data) == rows and len(split(base, data)) == clients
    assert isinstance(load(folder / "heart.csv", target="disease", client_key="hospital").classes, int)
    assert isinstance(base, Recipe)
