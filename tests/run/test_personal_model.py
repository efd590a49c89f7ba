"""Which personal model was scored is said in one place, the method's file, and from there by pages and reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commandline import good
from every_method import METHODS, make

from sartor.methods import NAMES
from sartor.methods.entries import personal_model
from sartor.testing import EVERYONE, start

SMALL = ("--data", "digits", "--clients", "3", "--rounds", "1", "--model", "mlp(8)")


@pytest.mark.parametrize("name", [name for name in METHODS if name in NAMES])
def test_a_method_that_has_personal_models_says_which_are_scored(name: str) -> None:
    run = start(make(name))
    down = run.method.downlink(run.server, EVERYONE, 0)
    has = bool(run.engine.map("personal", 0, EVERYONE, down)[1])
    said = personal_model(make(name))
    assert said if has else said is None or name == "fednewton"  # whose class has them, but without random effects none


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--method", "ditto"), "v_i after the client's last local training"),
        (("--method", "fedavg-ft"), "the latest w, fine-tuned by `finetune` when it is asked for"),
        (("--method", "fedavg", "--personal", "bias"), "the latest w, with the client's own bias"),
        (("--method", "ditto", "--lams", "0.1,1"), "v_i after the client's last local training"),
        (("--method", "fedavg"), None),
    ],
    ids=["kept", "made", "parts", "wrapped", "none"],
)
def test_reports_say_it(words: tuple[str, ...], said: str | None, tmp_path: Path) -> None:
    shown = good("run", *SMALL, *words, "--out", tmp_path / "run").out
    found = json.loads((tmp_path / "run" / "summary.json").read_text())
    page = (tmp_path / "run" / "report.html").read_text()
    if said is None:
        assert found["personal_model"] is None and "personal models are" not in shown + page
        return
    assert found["personal_model"].startswith(said)
    assert f"personal models are {said}" in " ".join(shown.split())
    assert f"personal models are {said}".replace("'", "&#x27;") in page


def test_a_comparison_says_it_of_each(tmp_path: Path) -> None:
    shown = good("compare", *SMALL, "--methods", "flame,fedavg,pfedme", "--seeds", "0", "--out", tmp_path / "all").out
    for text in (" ".join(shown.split()), (tmp_path / "all" / "report.html").read_text().replace("&#x27;", "'")):
        assert "θ_i after the client's last local training (flame)" in text
        assert "θ_i after the client's last local training, not its copy w_i of the global model (pfedme)" in text
        assert "(fedavg)" not in text
