"""The section of metrics: what the page shows is what metrics.json holds."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from commandline import OWN, QUICK, good, hospitals
from pages import Page

from sartor.report import class_charts


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hospitals(tmp_path_factory.mktemp("table") / "visits.csv", each=40)


def test_a_run(table: Path, tmp_path: Path) -> None:
    said = good("run", *QUICK, "--data", table, *OWN, "--out", tmp_path).out
    found = json.loads((tmp_path / "metrics.json").read_text())
    page = Page((tmp_path / "report.html").read_text())
    page.is_self_contained()
    for name in ("client-metrics", "roc", "calibration", "confusion"):
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
    assert [curve["x"], curve["y"], curve["customdata"]] == [
        list(v) for v in zip(*chosen["curves"]["calibration"], strict=True)
    ]
    roc = next(t for t in page.charts["roc"]["variants"][""]["data"] if t["name"].startswith("chosen"))
    assert roc["y"] == [0, *chosen["curves"]["roc"]] and roc["name"].endswith(
        f"{chosen['pooled']['auroc']['high']:.3f}]"
    )


def test_each_client_has_curves_of_its_own(table: Path, tmp_path: Path) -> None:
    """A picked client's numbers are its own, and one with a class only has no ROC curve, and the page says why."""
    head, *rows = csv.reader(table.read_text().splitlines())
    target, hospital = head.index(OWN[1]), head.index(OWN[3])
    for row in rows:
        row[target] = "1" if row[hospital] == "C" else row[target]
    with (tmp_path / "visits.csv").open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    good("run", *QUICK, "--data", tmp_path / "visits.csv", *OWN, "--out", tmp_path / "run", "--quiet")
    found = json.loads((tmp_path / "run" / "metrics.json").read_text())
    page = Page((tmp_path / "run" / "report.html").read_text())
    clients = found["models"]["chosen"]["clients"]
    picker = page.tables["picker"]
    assert picker["names"] == ["A", "B", "C"] == [r["name"] for r in clients]
    at = {name: page.charts[name]["variants"][""]["data"] for name in ("roc", "calibration")}
    place = {name: next(i for i, t in enumerate(data) if t["name"].startswith("chosen")) for name, data in at.items()}
    for i, row in enumerate(clients[:2]):
        own = page.charts["roc"]["clients"][""][i]
        assert own["data"][place["roc"]]["y"] == [0, *row["curves"]["roc"]] and own["note"] == ""
        assert len(own["data"]) == len(at["roc"]) and own["data"][-1] is None  # the band is the pooled samples'
        heat = page.charts["confusion"]["clients"]["chosen"][i]["data"][0]
        assert heat["text"] == row["confusion"] and sum(map(sum, heat["text"])) == row["samples"]
        known = [None if v is None else pytest.approx(v, rel=1e-5) for v in (row[n] for n in found["metrics"])]
        assert picker["values"][picker["models"].index("chosen")][i] == known
        assert picker["intervals"][i][0] == pytest.approx(row["intervals"]["auroc"], rel=1e-5)
    lone = page.charts["roc"]["clients"][""][2]
    assert set(lone["data"]) == {None} and lone["note"] == "C has no ROC curve: one class only."
    assert "AUROC, AUPRC (one class only)" in picker["missing"][2] and picker["missing"][0] == ""
    drawn = page.charts["calibration"]["clients"][""][2]["data"][place["calibration"]]
    assert drawn["customdata"] == [n for *_, n in clients[2]["curves"]["calibration"]]


def test_whiskers_are_wilsons() -> None:
    """As in Wilson's table: 0 of 10 and 5 of 10 at 95%."""
    assert class_charts.wilson(0.0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert class_charts.wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_numbers_have_no_calibration(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv", target="level")
    linear = ("--model", "linear", "--rounds", "2")
    said = good("run", *linear, "--data", table, *OWN, "--out", tmp_path / "run").out
    page = Page((tmp_path / "run" / "report.html").read_text())
    assert "client-metrics" in page.charts and not {"roc", "calibration", "confusion"} & set(page.charts)
    chosen = json.loads((tmp_path / "run" / "metrics.json").read_text())["models"]["chosen"]
    fit = next(t for t in page.drawn("fit")[0] if t["name"] == "chosen")
    assert fit["y"] == pytest.approx([true for _, true, *_ in chosen["curves"]["fit"]], rel=1e-5)
    shares = next(t for t in page.drawn("residuals")[0] if t["name"] == "chosen")["y"]
    assert sum(shares) == pytest.approx(1, abs=1e-3) and len(page.charts["residuals"]["clients"][""]) == 3
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
    curves = {t["name"].split(":")[0]: t["y"] for t in page.drawn("roc")[0]}
    mean = [sum(pair) / 2 for pair in zip(*(t["models"]["chosen"]["curves"]["roc"] for t in each), strict=True)]
    assert curves["local"] == pytest.approx([0, *mean], abs=1e-4) and len(curves) == 4
    assert len(page.drawn("calibration")[0]) == 4


def test_a_run_without_metrics_has_no_such_section(table: Path, tmp_path: Path) -> None:
    """One that was played before there were any."""
    good("run", *QUICK, "--data", table, *OWN, "--out", tmp_path / "run", "--quiet")
    (tmp_path / "run" / "metrics.json").unlink()
    good("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert "client-metrics" not in Page((tmp_path / "page.html").read_text()).charts


def test_a_run_of_an_earlier_version_has_what_it_had(tmp_path: Path) -> None:
    """Metrics without curves: calibration by bins of confidence, pooled confusions, and no client to pick."""
    earlier = Path(__file__).parents[1] / "compatibility" / "0.1.0" / "run"
    assert "places" not in json.loads((earlier / "metrics.json").read_text())
    good("report", earlier, "--out", tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text())
    assert {"calibration", "confusion"} <= set(page.charts) and not {"roc"} & set(page.charts)
    assert "picker" not in page.tables and page.drawn("calibration")
