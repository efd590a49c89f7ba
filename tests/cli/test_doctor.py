"""`sartor doctor`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import torch
from commandline import good

from sartor.cli import doctor, estimate
from sartor.run.recipe import Recipe


def test_doctor_says_what_is_found() -> None:
    found = json.loads(good("doctor", "--json").out)
    assert torch.__version__.startswith(found["packages"]["torch"])
    assert found["datasets"]["digits"] == [] and found["cores"] >= 1
    text = good("doctor").out
    assert "digits" in text and "needs no file" in text and found["python"] in text


def test_doctor_says_what_to_do_about_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SARTOR_DATA", raising=False)
    monkeypatch.setenv("SARTOR_CACHE", str(tmp_path))
    found = doctor.examine()
    found["extras"] = {"fast": {"numba": None}, "privacy": {"opacus": "1.6"}}
    lines = {line.split()[0]: line for line in doctor.words(found).splitlines() if line.startswith("  ")}
    assert "pip install 'sartor[fast]'" in lines["fast"] and "pip" not in lines["privacy"]
    assert "downloaded and checked when it is first used" in lines["mnist"]
    assert f"put vehicle_ditto_train.npz into {tmp_path / 'vehicle'}" in lines["vehicle"]


def test_doctor_knows_every_extra_for_users() -> None:
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(extras["optional-dependencies"]) - {"dev", "docs", "release"} <= set(doctor.EXTRAS)


def test_doctor_counts_with_stacking(tmp_path: Path) -> None:
    """Linear models of other seeds go together, and the time of one is then given; networks go alone."""
    for model, together in (("softmax", 100), ("mlp(4)", 1)):
        place = tmp_path / model
        Recipe(model=model, clients=4, rounds=2).save(place)
        found = json.loads(good("doctor", "--json", "--recipe", str(place / "recipe.toml")).out)["estimate"]
        assert found["runs_together"] == together
        assert (found["seconds_per_run_together"] is None) == (together == 1)
        said = estimate.words(found)
        assert ("100 go together: then about" in said) == (together > 1)
