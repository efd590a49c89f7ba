"""Grids of attacks, shares and aggregators: each cell once, refused ones recorded, resumable, judged and drawn."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commandline import QUICK, files, good, killed, refused, summary, timeless
from pages import Page
from scipy import stats

from sartor.errors import SartorError
from sartor.report import robustness, terminal
from sartor.report.sentences import judged
from sartor.study import compare as compare_module
from sartor.study.compare import Cell, Comparison
from sartor.study.scenarios import PLAIN, Scenario, attacked, scenarios
from sartor.study.verdict import verdict

# --- lists and products -----------------------------------------------------------------------------------------------


def test_cells_that_coincide_come_once() -> None:
    found = scenarios(["none", "sign-flip", "ipm"], [0.0, 0.2, 0.5], ["mean", "median"])
    assert len(found) == len(set(found)) == (1 + 2 * 2) * 2
    assert found[:2] == [PLAIN, Scenario("none", 0.0, "median")]
    assert scenarios(["none"], [0.0, 0.2], ["mean"]) == [PLAIN]
    assert scenarios(["ipm"], [0.3], ["mean"]) == [Scenario("ipm", 0.3)]
    for share in (1.0, -0.1, float("nan")):
        with pytest.raises(SartorError, match="attackers"):
            scenarios(["ipm"], [share], ["mean"])


def test_a_scenario_in_words() -> None:
    assert Scenario("ipm", 0.125, "median").words() == ["ipm 12.5%", "median"] and PLAIN.words() == []
    assert attacked(PLAIN) == "no attack"


# --- the command line -------------------------------------------------------------------------------------------------

GRID = (
    *("compare", *QUICK, "--methods", "flame,fedavg,fedamp,local", "--seeds", "0,1", "--no-diagnostics"),
    *("--attack", "none,sign-flip,label-poison", "--attackers", "0,0.2,0.5", "--aggregator", "mean,median,krum(f=4)"),
)
SCENARIOS = scenarios(["none", "sign-flip", "label-poison"], [0.0, 0.2, 0.5], ["mean", "median", "krum(f=4)"])


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A grid's folder and what was printed."""
    folder = tmp_path_factory.mktemp("grid")
    return folder, good(*GRID, "--out", folder).out


def _cells(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / "compare.json").read_text()))


def test_a_grid_is_a_list_of_summaries(grid: tuple[Path, str]) -> None:
    found = _cells(grid[0])
    methods = ("flame", "fedavg", "fedamp", "local")
    assert len(found) == 2 * 15 * 4
    asked = [(seed, *s, m) for seed in (0, 1) for s in SCENARIOS for m in methods]
    for cell, (seed, attack, share, rule, method) in zip(found, asked, strict=True):
        assert (cell["seed"], cell["attack"], cell["attackers"], cell["method"]) == (seed, attack, share, method)
        assert cell["aggregator"] in (rule, None) and cell["clients"] == 10
        # krum needs n >= 2f + 3 of 10 messages; fedamp and local take no mean
        refused = rule == "krum(f=4)" or (rule != "mean" and method in ("fedamp", "local"))
        assert ("error" in cell) == refused == cell.get("refused", False)
        if refused:
            assert cell["chosen"] is None and ("krum" in cell["error"].lower() or "no mean" in cell["error"])
        else:
            assert cell["hostile"] == round(10 * share) and cell["chosen"]["clients_scored"] == 10 - cell["hostile"]


def test_each_cell_is_the_run_that_one_would_do_alone(grid: tuple[Path, str], tmp_path: Path) -> None:
    same = ("--local-steps", 10)  # as equal work has it: an epoch of the median client, 7 batches, rounded up
    alone = ("run", *QUICK, *same, "--no-diagnostics", "--seed", 1, "--method", "fedavg", "--quiet")
    good(*alone, "--attack", "label-poison", "--attackers", 0.5, "--aggregator", "median", "--out", tmp_path)
    place = grid[0] / "fedavg-1-label-poison-0.5-median"
    assert summary(tmp_path) == summary(place) and files(tmp_path / "models") == files(place / "models")


def test_the_terminal_has_a_table_by_share(grid: tuple[Path, str]) -> None:
    text = grid[1]
    lines = [line.split() for line in text[text.index("mean test accuracy over benign") :].splitlines()]
    assert ["attack", "method", "model", "0%", "20%", "50%"] in lines
    found = {
        (c["method"], c["attack"], c["attackers"], c["seed"]): c for c in _cells(grid[0]) if c["aggregator"] == "mean"
    }
    keys = [("none", 0.0), ("sign-flip", 0.2), ("sign-flip", 0.5)]
    means = [np.mean([found["fedavg", *k, s]["chosen"]["accuracy_mean"] for s in (0, 1)]) for k in keys]
    assert ["sign-flip", "fedavg", "chosen", *(f"{v:.3f}" for v in means)] in lines
    assert ["label-poison", "fedamp+median", "chosen", "refused", "refused", "refused"] in lines
    assert sum(line[:1] == ["personal"] for line in lines) == 4  # flame, flame+median, under two attacks
    assert "refused, fedamp+median, fedamp+krum(f=4): fedamp takes no mean" in " ".join(text.split())


def test_a_grid_without_a_terminal_says_how_far_it_is(grid: tuple[Path, str]) -> None:
    assert "1/120 flame, seed 0: chosen 0." in grid[1]
    assert "120/120 local, label-poison 50%, krum(f=4), seed 1: refused" in " ".join(grid[1].split())


def test_the_plot_is_drawn_twice(grid: tuple[Path, str]) -> None:
    png = (grid[0] / "robustness.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    assert width > 600 and height > 300
    chart = Page((grid[0] / "report.html").read_text()).charts["robustness"]
    assert len(chart["variants"]) == 2  # attacks; flame and fedavg with mean and median, fedamp, local
    assert [len(v["data"]) for v in chart["variants"].values()] == [6, 6]
    assert len(chart["table"]["rows"]) == 3 * 2 * 6  # three shares each
    value = next(
        np.mean(
            [
                c["chosen"]["accuracy_mean"]
                for c in _cells(grid[0])
                if (c["method"], c["attack"], c["attackers"], c["aggregator"]) == k
            ]
        )
        for k in [("fedavg", "sign-flip", 0.5, "median")]
    )
    (found,) = (r[3] for r in chart["table"]["rows"] if r[:3] == ["sign-flip", "fedavg+median", 0.5])
    assert found == pytest.approx(value, rel=1e-5)


def test_a_second_call_plays_nothing(grid: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = {k: v for k, v in files(grid[0]).items() if "/" not in k}

    def play(*_: object) -> None:
        raise AssertionError("a finished cell was run again")

    monkeypatch.setattr(compare_module, "play_recipe", play)
    assert timeless(good(*GRID, "--out", grid[0]).out) == timeless(grid[1])
    assert {k: v for k, v in files(grid[0]).items() if "/" not in k} == before


KILL_IN_CELL = """
from sartor.run.rounds import Run
step, calls = Run.step, []
def dying(run):
    calls.append(1)
    if len(calls) == {}:
        os.kill(os.getpid(), signal.SIGKILL)
    step(run)
Run.step = dying
"""


@pytest.mark.long
def test_a_killed_grid_goes_on_to_the_same_comparison(tmp_path: Path) -> None:
    """Killed twice: in the first round of a cell and in the last."""
    small = ("compare", *QUICK, "--methods", "fedavg,local", "--seeds", "0,1", "--no-diagnostics", "--quiet")
    small = (*small, "--workers", "1")  # in one process: others would play cells ahead
    small = (*small, "--attack", "none,sign-flip", "--attackers", "0,0.2", "--aggregator", "mean,median")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    good(*small, "--out", whole)
    for calls in (7, 8):
        killed(KILL_IN_CELL.format(calls), *small, "--out", broken)
        assert not (broken / "compare.json").exists()
    good(*small, "--out", broken)
    cells = [[{k: v for k, v in c.items() if k != "seconds"} for c in _cells(f)] for f in (whole, broken)]
    assert cells[0] == cells[1] and len(cells[0]) == 16
    for name in ("significance.json", "robustness.png"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()


def test_a_grid_can_grow(grid: tuple[Path, str], tmp_path: Path) -> None:
    """More scenarios in the same folder: the old cells are taken as they are."""
    small = ("compare", *QUICK, "--methods", "fedavg", "--seeds", "0", "--no-diagnostics", "--out", tmp_path, "--quiet")
    good(*small)
    first = (tmp_path / "fedavg-0" / "summary.json").read_bytes()
    good(*small, "--attack", "ipm", "--attackers", "0,0.3")
    assert (tmp_path / "fedavg-0" / "summary.json").read_bytes() == first
    assert [(c["attack"], c["attackers"]) for c in _cells(tmp_path)] == [("none", 0.0), ("ipm", 0.3)]


def test_without_matplotlib_there_is_no_png_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    arguments = ("compare", *QUICK, "--methods", "fedavg", "--seeds", "0", "--attack", "ipm")
    assert "sartor[plots]" in good(*arguments, "--out", tmp_path).out
    assert not (tmp_path / "robustness.png").exists() and "<svg" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--attack", "none,sign-flop"), ("attack", "sign-flip")),
        (("--aggregator", "mean,medain"), ("aggregator", "median")),
        (("--attack", "ipm", "--attackers", "0.2,1"), ("attackers", "1.0")),
        (("--attack", "ipm", "--attackers", "some"), ("attackers", "numbers")),
        (("--attack", "ipm,ipm"), ("twice",)),
        (("--aggregator", "krum(f=2"), ("bracket",)),
        (("--aggregator", "krum(f=40)"), ("nothing is left to run", "rum")),
        (("--aggregator", "krum(g=4)"), ("krum", "g")),
        (("--set", "flame.lam=0", "--attack", "none,ipm"), ("lam > 0",)),
    ],
    ids=lambda a: " ".join(a),
)
def test_bad_grids_are_refused_before_any_work(
    arguments: tuple[str, ...], words: tuple[str, ...], tmp_path: Path
) -> None:
    line = refused("compare", *QUICK, "--methods", "flame", *arguments, "--out", tmp_path / "a")
    assert all(word in line for word in words), line
    assert not (tmp_path / "a").exists()


# --- the time that is left --------------------------------------------------------------------------------------------


def test_the_time_left_is_each_methods_own() -> None:
    table = Comparison({}, [PLAIN], plan=["a", "b", "c", "a", "b", "c"])
    assert table.left() is None
    table.cells, table.took = [None] * 2, {"a": [2.0, 4.0], "b": [30.0]}  # type: ignore[list-item]
    assert table.left() == pytest.approx(12 + 3 + 30 + 12)  # c, not yet seen: the mean of all, 12
    assert terminal.left(None) == terminal.left(3.0) == ""
    assert [terminal.left(s) for s in (57.0, 600.0, 7200.0)] == [
        "about 57 s left",
        "about 10 min left",
        "about 2.0 h left",
    ]


# --- the verdict ------------------------------------------------------------------------------------------------------


def _made(method: str, seed: int, accuracy: list[float], scenario: Scenario = PLAIN) -> Cell:
    return Cell(method, seed, scenario, {"method": method}, np.array(accuracy))


def _table() -> Comparison:
    nan = float("nan")
    ours = {0: [0.9, 0.8, 0.7, nan], 1: [0.6, 0.9, 0.5, 0.7]}
    avg = {0: [0.8, 0.8, 0.9, 0.4], 1: [0.5, 0.6, 0.1, 0.6]}
    alone = {0: [0.5, 0.9, 0.6, 0.3], 1: [0.7, 0.5, 0.4, 0.3]}
    attack = Scenario("ipm", 0.2)
    cells = [_made(m, s, v[s]) for s in (0, 1) for m, v in (("ditto", ours), ("fedavg", avg), ("local", alone))]
    cells += [
        _made("ditto", 0, [0.5, 0.5, nan, nan], attack),
        _made("ditto", 0, [0.6, 0.4, nan, nan], Scenario("ipm", 0.2, "median")),
    ]
    return Comparison({}, [PLAIN, attack], cells=cells)


def test_a_verdict_by_hand() -> None:
    found = verdict(_table())
    assert [(p["attack"], p["a"], p["b"]) for p in found["pairs"]] == [
        ("none", "ditto", "fedavg"),
        ("none", "ditto", "local"),
        ("none", "fedavg", "local"),
        ("ipm", "ditto", "ditto+median"),
    ]
    pair = found["pairs"][0]
    d = np.array([0.1, 0.0, -0.2, 0.1, 0.3, 0.4, 0.1])
    assert (pair["n"], pair["zeros"], pair["seeds"]) == (7, 1, 2)
    assert pair["mean"] == pytest.approx(d.mean()) and pair["median"] == pytest.approx(0.1)
    assert pair["p"] == pytest.approx(stats.wilcoxon(d, zero_method="pratt", correction=False).pvalue)
    assert (pair["low"], pair["high"]) == pytest.approx((-0.1 / 3, 0.225))  # the two seeds' means
    p = sorted(q["p"] for q in found["pairs"][:3])  # the fourth is under another attack
    assert max(q["p_holm"] for q in found["pairs"][:3]) == pytest.approx(min(1, max(p[0] * 3, p[1] * 2, p[2])))
    assert found["pairs"][3]["p_holm"] == found["pairs"][3]["p"]
    spans = {(i["attack"], i["method"]): i for i in found["intervals"]}
    assert spans["none", "ditto"]["accuracy"] == pytest.approx((0.8 + 0.675) / 2)
    assert (spans["none", "ditto"]["low"], spans["none", "ditto"]["high"]) == pytest.approx((0.675, 0.8))
    assert spans["ipm", "ditto"]["low"] is None and spans["ipm", "ditto"]["seeds"] == 1


def test_gains_of_each_client() -> None:
    found = {(g["method"], g["over"], g["seed"]): g for g in verdict(_table())["gains"]}
    assert set(found) == {
        (m, o, s)
        for s in (0, 1)
        for m, o in (("ditto", "local"), ("ditto", "fedavg"), ("fedavg", "local"), ("local", "fedavg"))
    }
    first = found["ditto", "local", 0]
    assert first["clients"] == [pytest.approx(0.4), pytest.approx(-0.1), pytest.approx(0.1), None]
    assert (first["better"], first["worse"], first["of"]) == (2, 1, 3)
    assert first["mean"] == pytest.approx(0.4 / 3) and first["worst10"] == first["min"] == pytest.approx(-0.1)


def test_gains_are_over_the_baseline_with_the_same_defence_where_there_is_one() -> None:
    defended = Scenario("ipm", 0.2, "median")
    cells = [_made("ditto", 0, [0.5], defended), _made("fedavg", 0, [0.4], defended)]
    cells += [_made("fedavg", 0, [0.1], Scenario("ipm", 0.2)), _made("local", 0, [0.3], Scenario("ipm", 0.2))]
    found = {(g["method"], g["over"]): g["mean"] for g in verdict(Comparison({}, [], cells=cells))["gains"]}
    assert found["ditto+median", "fedavg+median"] == pytest.approx(0.1)
    assert found["ditto+median", "local"] == pytest.approx(0.2)


def test_the_foot_says_it() -> None:
    text = judged(verdict(_table()))
    assert "no attack: best is ditto 0.738 [0.675, 0.800], with p < 0.05 against 0 of 2 others." in text
    assert "ipm 20%: best is ditto 0.500, with p < 0.05 against 0 of 1 others." in text
    plain = judged(verdict(Comparison({}, [PLAIN], cells=_table().cells[:6])))
    assert "chosen, mean and 95% bootstrap interval over 2 seeds: ditto 0.738 [0.675, 0.800]" in plain
    assert "ditto against the others, over 7 pairs: fedavg +0.114 (p = " in plain and "Wilcoxon" in plain
    many = [_made(m, 0, list(v)) for m, v in (("a", np.arange(1, 21) / 21), ("b", np.zeros(20)))]
    many += [_made("a", 0, [0.1], Scenario("ipm", 0.2))]
    assert "no attack: best is a 0.500, with p < 0.05 against 1 of 1 others (b)." in judged(
        verdict(Comparison({}, [], cells=many))
    )
    assert judged(verdict(Comparison({}, []))) == ""


def test_significance_json_of_a_comparison(tmp_path: Path) -> None:
    text = good("compare", *QUICK, "--methods", "flame,fedavg,local", "--seeds", "0,1", "--out", tmp_path).out
    found = json.loads((tmp_path / "significance.json").read_text())
    rows = {
        (m, s): [r["chosen_test_accuracy"] for r in json.loads((tmp_path / f"{m}-{s}" / "clients.json").read_text())]
        for m in ("flame", "fedavg", "local")
        for s in (0, 1)
    }
    for pair in found["pairs"]:
        a, b = (np.concatenate([rows[pair[k], s] for s in (0, 1)]) for k in "ab")
        d = np.round(a - b, 12)
        assert pair["n"] == 20 and pair["mean"] == pytest.approx(d.mean())
        assert pair["p"] == pytest.approx(stats.wilcoxon(d, zero_method="pratt", correction=False).pvalue)
    assert "Wilcoxon" in text and "bootstrap interval over 2 seeds" in " ".join(text.split())
    assert "Is it more than chance?" in (tmp_path / "report.html").read_text()


# --- drawing ----------------------------------------------------------------------------------------------------------


def test_lines_by_hand() -> None:
    def row(method: str, attack: str, share: float, rule: str, value: float | None) -> dict[str, Any]:
        cell = Cell(method, 0, Scenario(attack, share, rule), {})
        chosen = None if value is None else {"accuracy_mean": value, "accuracy_seed_std": 0.0}
        return {"method": method, "entrant": cell.entrant, **cell.scenario._asdict(), "chosen": chosen}

    rows = [
        row("a", "none", 0.0, "mean", 0.9),
        row("b", "none", 0.0, "mean", 0.8),
        row("a", "ipm", 0.5, "mean", 0.3),
        row("a", "ipm", 0.2, "mean", 0.6),
        row("b", "ipm", 0.2, "mean", None),
        row("b", "alie", 0.2, "median", 0.7),
    ]
    found = robustness.panels(rows)
    assert list(found) == ["ipm", "alie"]
    lines = {line.name: line for line in found["ipm"]}
    assert lines["a"].points == [(0.0, 0.9), (0.2, 0.6), (0.5, 0.3)] and lines["b"].points == [(0.0, 0.8)]
    assert "b+median" not in lines and [x.points for x in found["alie"] if x.name == "b+median"] == [[(0.2, 0.7)]]
    assert robustness.panels(rows[:2]) == {}


def test_a_drawing_of_terrible_scores_stays_inside() -> None:
    line = robustness.Line("a", 0, 0, [(0.0, 0.5), (0.5, -1e9)], [0.0, 0.0])
    assert robustness.bounds({"ipm": [line]}, -1.0) == (-1.0, 1.0)


def test_a_comparison_lists_clients_that_have_names_of_their_own(tmp_path: Path) -> None:
    """Each client's numbers are the means over seeds of what the cells' clients.json hold."""
    rng = np.random.default_rng(0)
    lines = [f"{v:.3f},{int(v > 0)},{site}" for site in ("here", "there") for v in rng.normal(size=40)]
    (tmp_path / "t.csv").write_text("\n".join(["v,y,site", *lines]) + "\n")
    own = ("--data", tmp_path / "t.csv", "--target", "y", "--client-key", "site", "--model", "softmax", "--rounds", 2)
    out = good("compare", *own, "--methods", "fedavg,local", "--seeds", "0,1", "--out", tmp_path / "c").out
    assert "of each client's chosen model" in " ".join(out.split()) and "here" in out and "there" in out
    found = json.loads((tmp_path / "c" / "clients.json").read_text())
    assert [r["client"] for r in found] == ["here", "there"]
    for method in ("fedavg", "local"):
        cells = [json.loads((tmp_path / "c" / f"{method}-{s}" / "clients.json").read_text()) for s in (0, 1)]
        for i, row in enumerate(found):
            assert row[method] == pytest.approx(np.mean([c[i]["chosen_test_accuracy"] for c in cells]), abs=1e-12)
    assert "Each client's chosen model" in (tmp_path / "c" / "report.html").read_text()
    drawn = good("compare", "--model", "softmax", "--rounds", 1, "--methods", "fedavg,local", "--seeds", "0,1").out
    assert "of each client's chosen model" not in " ".join(
        drawn.split()
    )  # client 3 of one seed is not client 3 of another
