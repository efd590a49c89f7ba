"""The section of metrics: what the page shows is what metrics.json holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commandline import OWN, QUICK, good, hospitals
from pages import Page


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hospitals(tmp_path_factory.mktemp("table") / "visits.csv", each=40)


def test_a_run(table: Path, tmp_path: Path) -> None:
    said = good("run", *QUICK, "--data", table, *OWN, "--out", tmp_path).out
    found = json.loads((tmp_path / "metrics.json").read_text())
    page = Page((tmp_path / "report.html").read_text())
    page.is_self_contained()
    for name in ("client-metrics", "calibration", "confusion"):
        page.drawn(name)
    chosen = found["models"]["chosen"]
    for how in ("averaged", "pooled"):
        for name, one in chosen[how].items():
            text = f"{one['value']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"
            assert text in page.text, (how, name)
            if name in ("auroc", "balanced-accuracy", "log-loss", "ece"):
                assert text in said
    box = page.charts["client-metrics"]["variants"]["AUROC"]["data"]
    mine = next(t for t in box if t["name"] == "chosen")
    assert mine["x"] == pytest.approx([r["auroc"] for r in chosen["clients"]], rel=1e-5)
    heat = page.charts["confusion"]["variants"]["chosen"]["data"][0]
    assert heat["text"] == chosen["confusion"] and page.charts["confusion"]["table"]["rows"][0][1:3] == ["0", "0"]
    curve = next(t for t in page.charts["calibration"]["variants"][""]["data"] if t["name"] == "chosen")
    assert curve["y"] == pytest.approx([b["right"] for b in chosen["reliability"]], rel=1e-5)


def test_numbers_have_no_calibration(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv", target="level")
    linear = ("--model", "linear", "--rounds", "2")
    said = good("run", *linear, "--data", table, *OWN, "--out", tmp_path / "run").out
    page = Page((tmp_path / "run" / "report.html").read_text())
    assert "client-metrics" in page.charts and not {"calibration", "confusion"} & set(page.charts)
    assert "MAE" in said and "RMSE" in said and "AUROC" not in said


def test_a_comparison_has_a_row_for_each_method(table: Path, tmp_path: Path) -> None:
    words = ("--methods", "fedavg,local", "--seeds", "0,1", "--references", "local-linear", "--quiet")
    good("compare", *QUICK, "--data", table, *OWN, *words, "--out", tmp_path / "run")
    page = Page((tmp_path / "run" / "report.html").read_text())
    each = [json.loads((tmp_path / "run" / f"local-{s}" / "metrics.json").read_text()) for s in (0, 1)]
    for name in ("auroc", "log-loss"):
        mean = sum(t["models"]["chosen"]["averaged"][name]["value"] for t in each) / 2
        assert f"{mean:.3f}" in page.text
    assert "local-linear (reference, not federated)" in page.text and "pooled over samples" in page.text


def test_a_run_without_metrics_has_no_such_section(table: Path, tmp_path: Path) -> None:
    """One that was played before there were any."""
    good("run", *QUICK, "--data", table, *OWN, "--out", tmp_path / "run", "--quiet")
    (tmp_path / "run" / "metrics.json").unlink()
    good("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert "client-metrics" not in Page((tmp_path / "page.html").read_text()).charts
