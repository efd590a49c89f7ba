"""report.html: self-contained, escaped, made from folders, with the same numbers as the files beside it."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from commandline import OWN, QUICK, good, history, hospitals, refused, summary
from pages import Page

import sartor as st
from sartor import methods
from sartor.cli import catalogue, completion
from sartor.report import citations, collaboration, material, page, repeat
from sartor.report.entries import Material, ReportEntry, RunFolder
from sartor.report.pieces import FIRST, Section, Shown, Table
from sartor.storage import write_json
from sartor.study.scenarios import PLAIN

SCRIPT = "</script><script>alert(1)</script>"
IMAGE = "<img src=x onerror=alert(1)>"
COMPARE = ("compare", *QUICK, "--evaluate-every", 1, "--quiet")


def read(folder: Path) -> Page:
    found = Page((folder / "report.html").read_text())
    found.is_self_contained()
    return found


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "a"
    good(*COMPARE, "--methods", "flame,fedamp,fedavg,local", "--seeds", "0,1", "--out", folder)
    return folder


@pytest.mark.parametrize("method", ["flame", "fedavg", "local"])
def test_the_page_of_a_run(method: str, tmp_path: Path) -> None:
    good("run", *QUICK, "--method", method, "--evaluate-every", 1, "--out", tmp_path, "--quiet")
    found = read(tmp_path)
    rows, lines = json.loads((tmp_path / "clients.json").read_text()), history(tmp_path)
    models = [m for m in ("global", "personal", "chosen") if f"{m}_test_accuracy" in rows[0]]
    for row in rows:
        assert f"{row['chosen_test_accuracy']:.3f}" in found.text
    against_rounds = found.charts["accuracy"]["variants"]["rounds"]["data"]
    assert {t["name"] for t in against_rounds} == set(models)
    for trace in against_rounds:
        assert trace["x"] == [line["round"] for line in lines]
        assert trace["y"] == pytest.approx([line[trace["name"]]["accuracy_mean"] for line in lines], rel=1e-5)
    spent = found.charts["loss"]["variants"]["megabytes"]["data"][0]
    if method != "local":
        assert spent["x"] == pytest.approx([(h["bytes_up"] + h["bytes_down"]) / 1e6 for h in lines], rel=1e-5)
    for name in found.charts:
        found.drawn(name)
    assert set(found.charts) >= {"accuracy", "loss", "clients", "fairness", "skew"}
    assert any(f'method = "{method}"' in text for text in found.text)
    assert (tmp_path / "report.html").stat().st_size < 8e6


def test_the_page_of_a_comparison(compared: Path) -> None:
    found = read(compared)
    for name in found.charts:
        found.drawn(name)
    assert set(found.charts) == {
        *("overview", "clients", "accuracy", "loss", "fairness", "collaboration", "skew", "diagnostics"),
        *("roc", "calibration", "pair"),
    }
    table = json.loads((compared / "compare.json").read_text())
    for method in ("flame", "fedamp", "fedavg", "local"):
        each = [s["chosen"]["accuracy_mean"] for s in table if s["method"] == method]
        assert any(text.startswith(f"{np.mean(each):.3f} ±") for text in found.text)
        lines = [history(compared / f"{method}-{seed}") for seed in (0, 1)]
        curve = next(
            t
            for t in found.charts["accuracy"]["variants"]["chosen|rounds"]["data"]
            if t["name"] == method and "fill" not in t
        )
        means = [np.mean([h[i]["chosen"]["accuracy_mean"] for h in lines]) for i in range(2)]
        assert curve["y"] == pytest.approx(means, rel=1e-5)
        assert any(f"[{method}]" in text or f"[{method}.solver]" in text for text in found.text)
    bands = [t for t in found.charts["accuracy"]["variants"]["chosen|rounds"]["data"] if "fill" in t]
    assert len(bands) == 4 and all(len(b["x"]) == 4 for b in bands)  # there and back


def test_who_gains_and_who_loses(compared: Path) -> None:
    found = read(compared)
    alone = {
        r["name"]: r["personal_test_accuracy"] for r in json.loads((compared / "local-0/clients.json").read_text())
    }
    mine = {r["name"]: r for r in json.loads((compared / "fedavg-0/clients.json").read_text())}
    rows = [r for r in found.charts["clients"]["table"]["rows"] if r[0] == "fedavg"]
    gains = [r[-1] for r in rows]
    assert gains == sorted(gains) and len(rows) == len(mine)
    for _, client, local, common, personal, chosen, gain in rows:
        assert local == pytest.approx(alone[client], rel=1e-5) and personal is None
        assert common == chosen == pytest.approx(mine[client]["global_test_accuracy"], rel=1e-5)
        assert gain == pytest.approx(chosen - local, abs=1e-5)
    up, down = sum(g > 1e-9 for g in gains), sum(g < -1e-9 for g in gains)
    note = found.charts["clients"]["variants"]["fedavg"]["note"]
    assert note.startswith(f"{up} of 10 clients are better off than alone, {down} worse")
    assert "local" not in found.charts["clients"]["variants"]


def test_client_by_client(compared: Path) -> None:
    """All methods for each client, and the best two with their difference; what there is for any other two."""
    found = read(compared)
    known = {r["client"]: r for r in json.loads((compared / "clients.json").read_text())}
    about, rows = found.tables["pair"], found.charts["pair"]["table"]["rows"]
    assert set(about["methods"]) == {"flame", "fedamp", "fedavg", "local"} and set(about["clients"]) == set(known)
    means = [np.mean(scores) for scores in about["scores"]]
    assert means == sorted(means, reverse=True)
    for method, scores in zip(about["methods"], about["scores"], strict=True):
        assert scores == pytest.approx([known[c][method] for c in about["clients"]], rel=1e-5)
    for client, a, b, off in rows:
        mine = [known[client][m] for m in about["methods"][:2]]
        assert [a, b] == pytest.approx(mine, rel=1e-5) and off == pytest.approx(mine[0] - mine[1], abs=1e-6)
    better, worse = (np.array(t["y"]) for t in found.charts["pair"]["variants"][""]["data"])
    assert better + worse == pytest.approx(sorted(r[3] for r in rows), abs=1e-6)
    assert (better >= 0).all() and (worse <= 0).all()
    tests = {frozenset((p["a"], p["b"])): p for p in json.loads((compared / "significance.json").read_text())["pairs"]}
    for key, said in about["tests"].items():
        pair = tests[frozenset(about["methods"][int(i)] for i in key.split())]
        assert said.startswith("p < 0.001" if pair["p_holm"] < 0.001 else f"p = {pair['p_holm']:.2g}")
    assert len(about["tests"]) == 6


def test_a_long_table_is_short_in_the_page(tmp_path: Path) -> None:
    """What is in the page without its script is bounded; the script has every client, its numbers with their digits."""
    rows = [[f"site {i}", i, Shown(f"{i / 7:.3f}", i / 7), "personal"] for i in range(3000)]
    section = Section("clients", "Each", [Table(["client", "train", "score", "takes"], rows, id="long", find="client")])
    found = Page(page.html_of("Many", [section], []))
    assert found.tags.count("tr") == 1 + FIRST and f"{3000 - FIRST} more rows are shown with JavaScript." in found.text
    about = found.tables["long"]
    assert about["digits"] == [None, 0, 3, None] and len(about["rows"]) == 3000
    assert about["rows"][2999] == ["site 2999", 2999, pytest.approx(2999 / 7, rel=1e-5), "personal"]


def test_the_skew_is_that_of_the_data(compared: Path) -> None:
    about = json.loads((compared / "flame-0" / "data.json").read_text())
    rows = read(compared).charts["skew"]["table"]["rows"]
    assert sum(r[3] for r in rows) == 1797 == sum(map(sum, about["labels"])) == sum(about["samples"])
    counts = np.array(about["labels"])
    assert all(counts[int(r[1]), int(r[2])] == r[3] for r in rows)
    assert (counts > 0).sum(1).mean() == pytest.approx(about["measures"]["labels_per_client"])


def test_clients_of_a_cluster_stand_together() -> None:
    mates = np.array([0, 1, 0, 2, 1, 0, 2, 1])
    weights = np.where(mates[:, None] == mates[None, :], 0.3, 0.01)
    order = mates[collaboration.by_cluster(weights)]
    assert (np.diff(order) != 0).sum() == 2  # three clusters, none torn apart
    assert collaboration.by_cluster(np.full((4, 4), 0.25)) == [0, 1, 2, 3]


def test_robustness_over_the_share_of_attackers(tmp_path: Path) -> None:
    grid = ("--attack", "none,sign-flip,gaussian", "--attackers", "0,0.2", "--aggregator", "mean,median")
    good(*COMPARE, "--methods", "fedavg", "--seeds", "0", *grid, "--out", tmp_path)
    chart = read(tmp_path).charts["robustness"]
    assert set(chart["variants"]) == {"sign-flip", "gaussian"}
    known = {
        (s["attack"], s["attackers"], s["aggregator"]): s for s in json.loads((tmp_path / "compare.json").read_text())
    }
    for attack, method, share, value, _ in chart["table"]["rows"]:
        rule = "median" if "median" in method else "mean"
        cell = known["none" if share == 0 else attack, share, rule]
        assert value == pytest.approx(cell["chosen"]["accuracy_mean"], rel=1e-5)
    assert len(chart["table"]["rows"]) == 8


def test_what_a_client_is_called_is_no_html(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "<b>visits.csv", names=(SCRIPT, IMAGE, "a & b"))
    good("run", *QUICK, "--data", table, *OWN, "--out", tmp_path / "a", "--quiet")
    found = read(tmp_path / "a")
    assert not {"img", "b"} & set(found.tags) and "src" not in dict(found.attributes)
    assert len(found.scripts) == 2 and not any(SCRIPT in s or IMAGE in s for s in found.scripts)
    assert {SCRIPT, IMAGE, "a & b"} <= set(found.text)  # as words, whole, in the table
    marks = found.charts["clients"]["variants"][""]["layout"]["yaxis"]["ticktext"]
    assert marks and not any("<" in text for text in marks)  # Plotly would take tags for markup


def test_a_page_without_scores(tmp_path: Path) -> None:
    good("run", *QUICK, "--parts", "1,0,0", "--no-diagnostics", "--out", tmp_path, "--quiet")
    found = read(tmp_path)
    assert set(found.charts) == {"skew"} and any("no test data" in text for text in found.text)


def test_a_bad_r2_does_not_break_the_drawing(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv", target="dose")
    short = ("--rounds", 1, "--steps", 1, "--lr", "1e-6", "--parts", "0.9,0.05,0.05")
    good("run", *short, "--data", table, *OWN, "--out", tmp_path / "a", "--quiet")
    assert min(r["personal_test_accuracy"] for r in json.loads((tmp_path / "a" / "clients.json").read_text())) < 0
    found = read(tmp_path / "a")
    axis = found.charts["clients"]["variants"][""]["layout"]["xaxis"]
    assert axis["autorangeoptions"] == {"clipmin": -1.0} and "R²" in axis["title"]["text"]
    assert found.charts["skew"]["variants"][""]["data"][0]["type"] == "bar"  # there are no labels


def test_without_plotly_there_are_tables(compared: Path, tmp_path: Path) -> None:
    with mock.patch.object(page, "plotly", lambda: None):
        page.write(tmp_path / "a.html", [compared])
    found = Page((tmp_path / "a.html").read_text())
    found.is_self_contained()
    assert len(found.scripts) == 1 and page.MISSING in found.text
    assert found.tags.count("figure") == 11 and [k for k, _ in found.attributes].count("open") == 11


# --- repeating --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        ("--method", "flame", "--set", "lam=0.7", "--epochs", "2", "--cohort", "5"),
        ("--method", "ditto", "--set", "global_method=fedprox", "--set", "global_method.mu=0.3", "--lams", "0.1,1"),
        (
            "--method",
            "fedavg-ft",
            "--set",
            "finetune.epochs=1",
            "--attack",
            "sign-flip(std=2)",
            "--aggregator",
            "median",
        ),
        (
            "--method",
            "lp-proj-1",
            "--compress-down",
            "int8",
            "--no-diagnostics",
            "--parts",
            "0.6,0.2,0.2",
            "--steps",
            "3",
        ),
        ("--method", "fedamp", "--solver", "adam", "--lr", "0.01", "--budget", "2MB", "--oracle", "--seed", "3"),
    ],
)
def test_the_command_repeats_the_run(asked: tuple[str, ...], tmp_path: Path) -> None:
    good("run", *QUICK, *asked, "--out", tmp_path / "a", "--quiet")
    command = next(t for t in read(tmp_path / "a").text if t.startswith("sartor run"))
    words = shlex.split(command.replace("runs/again", str(tmp_path / "b")))
    good(*words[1:], "--quiet")
    assert summary(tmp_path / "a") == summary(tmp_path / "b") and history(tmp_path / "a") == history(tmp_path / "b")
    assert (tmp_path / "a" / "recipe.toml").read_text() == (tmp_path / "b" / "recipe.toml").read_text()


def test_the_command_repeats_the_comparison(tmp_path: Path) -> None:
    asked = ("--methods", "fedavg+int8,ditto", "--seeds", "1", "--attack", "gaussian", "--attackers", "0,0.3")
    asked = (*asked, "--set", "ditto.lam=0.4", "--set", "fedavg.solver.lr=0.02", "--batch", "8", "--clients", "6")
    good(*COMPARE, *asked, "--out", tmp_path / "a")
    command = next(t for t in read(tmp_path / "a").text if t.startswith("sartor compare"))
    good(*shlex.split(command.replace("runs/again", str(tmp_path / "b")))[1:], "--quiet")
    a, b = (json.loads((tmp_path / k / "compare.json").read_text()) for k in "ab")
    assert [{**s, "seconds": 0} for s in a] == [{**s, "seconds": 0} for s in b]


def test_a_command_says_only_what_is_not_usual() -> None:
    usual = repeat.of_run({"method": "flame", "data": "digits", "rounds": 50, "settings": {"lam": 0.3}})
    assert usual == "sartor run --method flame --seed 0 --out runs/again"


# --- citations --------------------------------------------------------------------------------------------------------


def test_everything_that_has_a_paper_can_be_cited() -> None:
    known = {use for _, uses in citations.papers().values() for use in uses}
    kinds = ("methods", "attacks", "aggregators", "compressors")
    there = {f"{kind}/{row['name']}": row["paper"] for kind in kinds for row in catalogue.rows(kind)}
    assert {name for name, paper in there.items() if paper != "-"} <= known
    assert known <= set(there)  # and nothing is named that is not there
    cited = {key for e in methods.NAMES.values() for key in e.cite}
    assert cited <= set(citations.papers())
    for text, _ in citations.papers().values():
        assert text.count("{") == text.count("}") and "sartor" not in text
        assert all(f"  {field} = {{" in text for field in ("author", "title", "year"))


def test_exactly_the_papers_of_what_was_used_are_cited(compared: Path, tmp_path: Path) -> None:
    cited = next(t for t in read(compared).text if t.startswith("@"))
    keys = [line.split("{")[1].rstrip(",") for line in cited.splitlines() if line.startswith("@")]
    assert keys == ["zhu2024flame", "huang2021fedamp", "mcmahan2017fedavg"]
    asked = ("--method", "ditto", "--set", "global_method=scaffold", "--attack", "ipm", "--compress", "top-k")
    good("run", *QUICK, *asked, "--out", tmp_path, "--quiet")
    cited = next(t for t in read(tmp_path).text if t.startswith("@"))
    keys = [line.split("{")[1].rstrip(",") for line in cited.splitlines() if line.startswith("@")]
    assert set(keys) == {"li2021ditto", "karimireddy2020scaffold", "xie2019ipm", "stich2018sparsified"}


# --- sartor report ----------------------------------------------------------------------------------------------------


def test_runs_together_on_one_page(compared: Path, tmp_path: Path) -> None:
    """Runs that differ by their seed are one line; others that would be called alike are told apart."""
    for seed in (0, 1):
        good("run", *QUICK, "--method", "ditto", "--seed", seed, "--out", tmp_path / f"d{seed}", "--quiet")
    good("run", *QUICK, "--method", "ditto", "--set", "lam=0.01", "--out", tmp_path / "weak", "--quiet")
    folders = [tmp_path / "d0", tmp_path / "d1", tmp_path / "weak", compared]
    answer = good("report", *folders, "--out", tmp_path / "all.html", "--json")
    assert json.loads(answer.out)["runs"] == 3 + 8
    found = Page((tmp_path / "all.html").read_text())
    found.is_self_contained()
    lines = {t["name"]: t for t in found.charts["loss"]["variants"]["chosen|rounds"]["data"] if "fill" not in t}
    assert set(lines) == {"ditto (d0)", "ditto (weak)", "flame", "fedamp", "fedavg", "local"}
    bands = [t["name"] for t in found.charts["loss"]["variants"]["chosen|rounds"]["data"] if "fill" in t]
    assert "ditto (d0)" in bands and "ditto (weak)" not in bands
    assert any("Wilcoxon" in text for text in found.text)


def test_an_unfinished_run_has_a_page(tmp_path: Path) -> None:
    good("run", *QUICK, "--out", tmp_path / "a", "--quiet")
    (tmp_path / "a" / "summary.json").unlink()
    good("report", tmp_path / "a")
    assert any("has not ended" in text for text in read(tmp_path / "a").text)


def test_a_result_that_was_saved_in_python_has_a_page(tmp_path: Path) -> None:
    clients = st.data.load("digits").split("iid", clients=3, seed=0)
    st.fit(st.FLAME(), st.models.layers(64, 10), clients, rounds=2, evaluation=st.Evaluation(evaluate_every=1)).save(
        tmp_path
    )
    good("report", tmp_path)
    found = read(tmp_path)
    assert {"accuracy", "clients", "fairness"} <= set(found.charts)
    assert any("zhu2024flame" in text for text in found.text)


def test_a_large_comparison_has_a_page_of_less_than_eight_megabytes() -> None:
    """40 methods with two seeds, 1000 evaluated rounds with 12 diagnostics each, 1000 clients."""
    scores = {"accuracy_mean": 0.912345, "accuracy_std": 0.1, "loss_mean": 1.23456, "loss_var": 0.1}
    facts = {f"quantity_{k}_mean": 0.123456 + k for k in range(12)}
    lines = [
        {"round": r, "bytes_up": 10**6 * r, "bytes_down": 10**6 * r, "diagnostics": facts, "warnings": []}
        | dict.fromkeys(("global", "personal", "chosen"), scores)
        for r in range(1, 1001)
    ]
    rows = [{"name": f"client {i}", "hostile": False} for i in range(1000)]
    rows = [r | dict.fromkeys((f"{m}_test_accuracy" for m in ("global", "personal", "chosen")), 0.91234) for r in rows]
    made = [[RunFolder(Path("x"), {"seed": s, "method": "flame"}, lines, rows) for s in range(2)] for _ in range(40)]
    entries = [ReportEntry(f"method {i}", PLAIN, runs) for i, runs in enumerate(made)]
    html = page.of(Material("a large one", entries))
    assert len(html.encode()) < 8e6
    curve = Page(html).charts["accuracy"]["variants"]["chosen|rounds"]["data"][1]
    assert curve["x"][-1] == 1000 and 30 < len(curve["x"]) < 500  # some rounds, and the last


def test_what_is_no_folder_of_a_run_is_refused(tmp_path: Path) -> None:
    assert "is not a folder" in refused("report", tmp_path / "nowhere")
    assert "holds no run" in refused("report", tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "recipe.toml").write_text("= broken")
    assert "cannot read" in refused("report", tmp_path / "a")
    assert "is a folder" in refused("report", tmp_path / "a", "--out", tmp_path)
    (tmp_path / "a" / "recipe.toml").write_text('method = "flame"\n')
    (tmp_path / "a" / "history.jsonl").write_text("{")
    assert "cannot read" in refused("report", tmp_path / "a")


def test_the_numbers_behind_a_chart_are_csv(compared: Path) -> None:
    """As the page's script writes them: a head, and as many fields in each row."""
    table = read(compared).charts["accuracy"]["table"]
    text = io.StringIO()
    csv.writer(text).writerows([table["head"], *table["rows"]])
    assert len(list(csv.DictReader(io.StringIO(text.getvalue())))) == len(table["rows"])


# --- the tab key ------------------------------------------------------------------------------------------------------


def test_the_tab_key_offers_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").touch()
    (tmp_path / "notes.txt").touch()
    assert [name for name, _ in completion.names("methods")("fla")] == ["flame", "flame-lp-proj"]
    assert [name for name, _ in completion.listed("methods")("flame,fla")] == ["flame,flame-lp-proj"]
    assert [name for name, _ in completion.names("attacks", "none")("no")] == ["none"]
    assert [name for name, _ in completion.data("vi")] == ["visits.csv"] and completion.data("no") == []
    assert [name for name, _ in completion.data("dig")] == ["digits"]
    assert [name for name, _ in completion.theorems("al")] == ["all"]


def test_the_runs_of_an_experiment_are_told_apart_by_what_was_tried(tmp_path: Path) -> None:
    scores = {"accuracy": [0.5], "loss": [1.0], "std": [0.1], "loss_var": [0.1]}
    for i, (eta, partition) in enumerate([(0.1, "labels(k=2)"), (0.5, "labels(k=2)"), (0.5, "iid")]):
        recipe = {"method": "pfedme", "settings": {"eta": eta, "R": 1}, "data": "mnist", "partition": partition}
        record = {"recipe": {**recipe, "seed": i}, "rounds": [1], "bytes": [8], "models": {"personal": scores}}
        write_json(tmp_path / "runs" / f"{i}.json", record)
    found = [entry.name for entry in material.read([tmp_path]).entries]
    assert found == ["pfedme, mnist, labels(k=2), eta=0.1", "pfedme, mnist, labels(k=2), eta=0.5", "pfedme, mnist, iid"]
