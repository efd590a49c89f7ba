"""`sartor theory`: every check agrees, its files are there, bad parameters are refused, unusual ones are labelled."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commandline import good, refused, sartor
from subsets import first

import sartor as st
from sartor.core import Batch
from sartor.papers.theory import NAMES, check, plots
from sartor.papers.theory.bowls import Bowl
from sartor.papers.theory.checks_flame_convergence import Lyapunov
from sartor.papers.theory.federations import bowls, regression
from sartor.papers.theory.findings import COLUMNS, Finding, Row
from sartor.papers.theory.one_round import random_regression
from sartor.papers.theory.rates import factor, power
from sartor.papers.theory.replicas import Play

ASKED = [  # by the issue
    "ditto-figure1",
    "ditto-figure2",
    "lp-proj-figure1",
    "flame-proposition2",
    "flame-proposition3",
    "flame-rate",
    "pfedme-rate",
    "fedamp-rate",
    "lyapunov",
]
SMALL: dict[str, dict[str, Any]] = {  # the same checks in a few seconds each
    "ditto-figure1": {"replicas": 400, "seed": 1},
    "ditto-figure2": {"replicas": 150, "points": 4, "seed": 1},
    "ditto-regression": {"settings": 2, "replicas": 150, "seed": 1},
    "ditto-rate": {"rounds": 120, "seed": 1},
    "lp-proj-figure1": {"replicas": 100, "seed": 1},
    "lp-proj-attacks": {"settings": 1, "replicas": 100, "seed": 1},
    "lp-proj-fairness": {"replicas": 300, "seed": 1},
    "lp-proj-lemma1": {"replicas": 40, "seed": 1},
    "lp-proj-theorem1": {"replicas": 20, "rounds": 60, "seed": 1},
    "flame-solution": {"settings": 1, "replicas": 100, "seed": 1},
    "flame-attacks": {"settings": 1, "replicas": 100, "seed": 1},
    "flame-proposition2": {"replicas": 100, "seed": 1},
    "flame-proposition3": {"replicas": 300, "seed": 1},
    "flame-theorem1": {"points": 200, "rounds": 15, "seed": 1},
    "lyapunov": {"problems": 5, "rounds": 8, "seed": 1},
    "flame-rate": {"rounds": 200, "seed": 1},
    "pfedme-envelope": {},
    "pfedme-rate": {"replicas": 80, "seed": 1},
    "pfedme-lemmas": {"replicas": 60, "seed": 1},
    "pfedme-theorem2": {"replicas": 60},
    "fedamp-rate": {"largest": 64, "seed": 1},
    "fedamp-factor2": {"largest": 400, "seed": 1},
}


def test_what_is_listed_is_a_whole_line_without_quotation_marks() -> None:
    for name, made in NAMES.items():
        first = (made.__doc__ or "").splitlines()[0]
        assert first and '"' not in first and not first.endswith((" of", ",")), name


def test_every_name_is_there() -> None:
    assert set(ASKED) <= set(NAMES) == set(SMALL)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[dict[str, Any], Path]]:
    """`sartor theory NAME --out FOLDER --json` with small parameters, once for each name."""

    @cache
    def run(name: str) -> tuple[dict[str, Any], Path]:
        folder = tmp_path_factory.mktemp(name)
        given = [x for k, v in SMALL[name].items() for x in ("--set", f"{k}={v}")]
        return json.loads(good("theory", name, "--out", folder, "--json", *given).out), folder

    return run


Report = Callable[[str], tuple[dict[str, Any], Path]]


LONGEST = (
    "lp-proj-figure1",
    "flame-rate",
    "pfedme-rate",
    "pfedme-theorem2",
    "lp-proj-theorem1",
    "fedamp-factor2",
    "ditto-rate",
    "lyapunov",
)


@pytest.mark.parametrize("name", first(NAMES, *(n for n in NAMES if n not in LONGEST)))
def test_a_check_agrees_and_leaves_its_files(name: str, report: Report) -> None:
    found, folder = report(name)
    wrong = [r for r in found["rows"] if not r["agrees"] and "as printed" not in r["note"]]
    assert found["agrees"] and not wrong, wrong
    assert found["parameters"] | SMALL[name] == found["parameters"]
    assert json.loads((folder / "table.json").read_text()) == found
    with open(folder / "table.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS) and len(rows) == len(found["rows"])
    verdict = (folder / "verdict.txt").read_text()
    assert verdict.startswith(f"{name}: {found['verdict']}") and "DOES NOT" not in verdict
    assert (folder / "plot.png").read_bytes()[:4] == b"\x89PNG"


def row(found: dict[str, Any], words: str) -> dict[str, Any]:
    return next(r for r in found["rows"] if words in r["what"])


@pytest.mark.parametrize("case", ["clean", "attacked"])
@pytest.mark.parametrize("word", ["accurate", "fair"])
def test_ditto_figure_1_finds_lam_star_on_the_grid(case: str, word: str, report: Report) -> None:
    """Within one step of ×1.78, clean and under attack, for accuracy and for fairness."""
    best = row(report("ditto-figure1")[0], f"{case}: the most {word} λ")
    assert best["theory"] == pytest.approx(0.8 if case == "clean" else 0.34743, abs=1e-5)
    assert abs(np.log10(best["measured"] / best["theory"])) <= 0.25
    grid = [r for r in report("ditto-figure1")[0]["rows"] if r["what"].startswith(f"{case}: test error at λ")]
    assert len(grid) == 15 and min(r["measured"] for r in grid) < 0.9 * grid[0]["measured"]  # there is a valley


@pytest.mark.long
def test_lp_proj_figure_1_reproduces_the_threshold(report: Report) -> None:
    """The paper's numbers: λ₁* = 2.463e-4, threshold 4.927e-4 (which the paper calls λ₁*)."""
    found, _ = report("lp-proj-figure1")
    edge = row(found, "Lp-Proj wins from")
    assert edge["theory"] == pytest.approx(4.9266e-4, rel=1e-4)
    assert edge["agrees"] and 0 < edge["standard_error"] < 0.25 * edge["theory"]
    assert row(found, "λ₁*, where")["theory"] == pytest.approx(2.4627e-4, rel=1e-4)
    assert not row(found, "Section 4.2")["agrees"]


def test_counterexamples_are_in_the_tables(report: Report) -> None:
    """What is printed wrongly is shown to disagree, next to the corrected form."""
    for name, words in (
        ("flame-solution", "(135)"),
        ("flame-proposition2", "Proposition 2's least q"),
        ("flame-proposition3", "second derivative of the variance (177)"),
        ("flame-proposition3", "variance of personal losses (173) at"),
        ("flame-theorem1", "Table III"),
        ("fedamp-factor2", "(4) as printed, K = 400: gap of G against (13)"),
    ):
        printed = [r for r in report(name)[0]["rows"] if words in r["what"] and "as printed" in r["note"]]
        assert printed and not printed[0]["agrees"], (name, words)


def test_lyapunov_s_worst_state_rises_below_2_5616_and_not_above() -> None:
    """One real round of the library's FLAME from a state of Lemma 3, with almost linear losses."""
    for ratio, sign in ((1.5, 1), (2.5, 1), (2.6, -1), (3.0, -1)):
        told, got = Lyapunov().worst(ratio)
        assert sign * got > 0 and got == pytest.approx(told, abs=1e-4)


# --- the command line -----------------------------------------------------------------------------------------------


def test_list_names_every_check() -> None:
    said = good("theory", "--list").out
    rows = json.loads(good("theory", "--list", "--json").out)
    assert [r["name"] for r in rows] == list(NAMES) and all(r["line"] and r["name"] in said for r in rows)


def test_the_terminal_shows_the_table_and_the_verdict() -> None:
    said = good("theory", "flame-theorem1", "--set", "points=60", "--set", "rounds=3").out
    assert "std. error" in said and "agrees?" in said and "True but nearly empty" in said and "0.0146" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "say which"),
        (["ditto-figur1"], "did you mean"),
        (["ditto-figure1", "--set", "tau=-1"], "tau > 0"),
        (["ditto-figure1", "--set", "tau=nan"], "finite"),
        (["ditto-figure1", "--set", "K=2.5"], "whole number"),
        (["ditto-figure1", "--set", "K_a=20"], "K_a = 20"),
        (["ditto-figure1", "--set", "low=5", "--set", "high=1"], "low < high"),
        (["ditto-figure1", "--set", "lam=1"], "unknown parameter"),
        (["lp-proj-figure1", "--set", "d_sub=101"], "d_sub"),
        (["lp-proj-figure1", "--set", "n=5"], "n >= d"),
        (["lp-proj-figure1", "--set", "d_sub=100"], "d_sub < d"),
        (["lp-proj-lemma1", "--set", "lam=8"], "λ > 4L = 8; got 8"),
        (["lp-proj-lemma1", "--set", "d=20"], "d >= 400"),
        (["lp-proj-theorem1", "--set", "beta=0.5"], "β >= 1"),
        (["lp-proj-theorem1", "--set", "d_sub=8"], "50 d_sub <= d"),
        (["lp-proj-theorem1", "--set", "eta=1"], "got β·η = 3"),
        (["flame-proposition2", "--set", "attack=alie"], "attack"),
        (["flame-proposition2", "--set", "quiet=-1"], "sigma >= 0"),
        (["flame-proposition3", "--set", "theta=1"], "two different"),
        (["flame-proposition3", "--set", "lam=2"], "1.1 b"),
        (["flame-proposition3", "--set", "theta=1,inf"], "finite"),
        (["flame-rate", "--set", "rounds=3"], "60 rounds"),
        (["pfedme-rate", "--set", "eta=9"], "converge"),
        (["fedamp-rate", "--set", "lam=5"], "simplex"),
        (["all", "--set", "seed=1"], "give its name"),
        (["ditto-figure1", "--set", "seed"], "field=value"),
    ],
)
def test_nonsense_is_refused_in_one_line(arguments: list[str], words: str) -> None:
    assert words in refused("theory", *arguments)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("ditto-figure1", {"tau_a": 0.1, "replicas": 60, "points": 5}, "τ_a > τ"),
        ("flame-theorem1", {"m": 10, "points": 50, "rounds": 2}, "0.0146"),
        ("pfedme-envelope", {"lam": 1.0}, "λ ≥ 2L"),
        ("lp-proj-figure1", {"tau": 0.001, "Sigma1": 1e-4, "N_a": 20, "replicas": 3, "d": 12, "n": 12}, "λ₁* < b"),
    ],
)
def test_outside_a_theorem_s_assumptions_is_computed_and_labelled(
    name: str, values: dict[str, Any], words: str, tmp_path: Path
) -> None:
    given = [x for k, v in values.items() for x in ("--set", f"{k}={v}")]
    answer = sartor("theory", name, "--out", tmp_path, *given)
    assert answer.code == 0, answer
    label = (tmp_path / "verdict.txt").read_text().partition("(outside the theorem's assumptions: ")[2]
    assert words in label and label.strip().endswith(")")
    assert "outside the theorem's assumptions" in answer.out
    assert any(words in s for s in json.loads((tmp_path / "table.json").read_text())["outside"])


def test_lp_proj_s_error_hardly_knows_d_sub_while_its_bound_does(report: Report) -> None:
    """Lemma 1 from 2 to 16 of 400 dimensions: the printed δ² grows more than tenfold, the error does not."""
    rows = report("lp-proj-lemma1")[0]["rows"]
    two, sixteen = (
        next(r for r in rows if f"log, d_sub = {k}, |D| = 2" in r["what"] and r["what"].endswith("≤ δ²"))
        for k in (2, 16)
    )
    assert sixteen["theory"] > 10 * two["theory"] and 0.2 < sixteen["measured"] / two["measured"] < 5


@pytest.mark.long
def test_theorems_that_ask_for_tiny_steps_are_left_by_the_defaults(report: Report) -> None:
    assert "η ≤ η̂₁" in report("pfedme-rate")[0]["outside"][0] and "C1 to C3" in report("flame-rate")[0]["outside"][0]


def test_without_matplotlib_the_tables_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    said = good("theory", "flame-theorem1", "--set", "points=60", "--set", "rounds=3", "--out", tmp_path).out
    assert "plot was left out" in said and not (tmp_path / "plot.png").exists()
    assert {p.name for p in tmp_path.iterdir()} == {"table.json", "table.csv", "verdict.txt"}


def test_the_same_parameters_give_the_same_numbers() -> None:
    one, two = (check("ditto-regression", {"settings": 1, "replicas": 20}).look().csv() for _ in range(2))
    assert one == two
    assert one != check("ditto-regression", {"settings": 1, "replicas": 20, "seed": 5}).look().csv()


def test_every_check_is_plain_settings_with_a_listed_line() -> None:
    for name, made in NAMES.items():
        assert made.name == name and made.paper and (made.__doc__ or "").strip()
        assert {f.name for f in fields(made)} <= set(vars(made()))  # type: ignore[arg-type]


# --- the parts ------------------------------------------------------------------------------------------------------


def test_a_row_agrees_within_its_relation_and_errors_only() -> None:
    assert Row("", 1.0, 1.0 + 3.9e-3, 1e-3).agrees and not Row("", 1.0, 1.0 + 4.1e-3, 1e-3).agrees
    assert Row("", 1.0, 0.5, relation="<=").agrees and not Row("", 1.0, 1.5, relation="<=").agrees
    assert Row("", 1.0, 1.5, relation=">=").agrees and not Row("", 1.0, 0.5, relation=">=").agrees
    assert Row("", 1.0, 1.05, within=0.1).agrees and not Row("", 1.0, 1.2, within=0.1).agrees
    assert Row("", 1.0, 0.6, factor=2).agrees and not Row("", 1.0, 0.4, factor=2).agrees
    assert not Row("", 1.0, float("nan"), 1.0).agrees
    assert Finding([Row("", 1.0, 2.0, erratum=True)], [], "").agrees


def test_replicas_are_independent_federations() -> None:
    """R federations played as one equal R runs of their own, message by message, with their own λα."""
    p, lam, rho, _ = random_regression(3)
    R = 4
    task, data = regression(p, R, 0)
    method = st.FLAME(lam=lam, rho=rho, solver=st.Exact())
    together = Play(method, task, data, R).rounds(5)
    for r in range(R):
        rows = slice(int(data.bounds[r * p.m, 0]), int(data.bounds[(r + 1) * p.m - 1, 3]))
        own = st.Clients(data.x[rows], data.y[rows], data.bounds[: p.m], data.names[: p.m], None)
        alone = Play(method, task, own).rounds(5)
        torch.testing.assert_close(together.globals_of()[r], alone.globals_of()[0])
        torch.testing.assert_close(together.state("theta")[r], alone.state("theta")[0])
        np.testing.assert_allclose(together.losses("global")[r], alone.losses("global")[0])
        np.testing.assert_allclose(together.facts()["lagrangian"][r], alone.facts()["lagrangian"][0])


def test_a_play_is_what_fit_does() -> None:
    """The bench's engine and loop are those of `sartor.fit`."""
    p, lam, rho, _ = random_regression(5)
    task, data = regression(p, 1, 0)
    method = st.FLAME(lam=lam, rho=rho, solver=st.Exact())
    play = Play(method, task, data).rounds(4)
    result = st.fit(
        method,
        task.original,
        data,
        4,
        pretrained=True,
        evaluation=st.Evaluation(evaluate_every=4, diagnostics=False),
        execution=st.Execution(dtype=torch.float64),
    )
    torch.testing.assert_close(play.globals_of()[0], result.run.server["w"])


@pytest.mark.parametrize(("shape", "p"), [("power", 2.0), ("power", 4.0), ("power", 1.5), ("log", 2.0)])
def test_a_bowl_s_gradient_is_its_loss_s(shape: str, p: float) -> None:
    rng = np.random.default_rng(0)
    task = Bowl(3, shape, p)
    theta = torch.from_numpy(rng.normal(size=(2, 3))).requires_grad_()
    weight = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
    x, y = torch.from_numpy(rng.normal(size=(2, 2, 3))), torch.from_numpy(rng.uniform(1, 2, (2, 2)))
    batch = Batch(x, y, weight, torch.zeros(2, dtype=torch.int64))
    (slope,) = torch.autograd.grad(task.loss(theta, batch).sum(), theta)
    flat = theta.detach()
    torch.testing.assert_close(slope, task.grad(flat, batch))
    torch.testing.assert_close(slope, task.vjp(flat, batch)[1]((weight * y)[..., None]))
    moved = flat.clone()
    task.descend_(moved, batch, 0.1, lambda theta, lr: None)
    torch.testing.assert_close(moved, flat - 0.1 * slope)
    if p == 2 and shape == "power":
        A, b = task.quadratic(batch)
        torch.testing.assert_close(slope, (A @ flat[..., None])[..., 0] - b)
    else:
        with pytest.raises(st.SartorError, match="quadratic"):
            task.quadratic(batch)


def test_bowls_refuse_what_is_not_smooth() -> None:
    with pytest.raises(st.SartorError, match="p > 1"):
        bowls(np.zeros((2, 1)), np.ones(2), p=1.0)
    with pytest.raises(st.SartorError, match="shape"):
        bowls(np.zeros((2, 1)), np.ones(2), shape="cone")


def test_rates_are_read_off_exact_curves() -> None:
    assert factor(3 * 0.8 ** np.arange(200)) == pytest.approx(0.8, rel=1e-9)
    assert power(5 * np.arange(1, 400.0) ** -1.5) == pytest.approx(1.5, rel=1e-9)
    with pytest.raises(st.SartorError, match="8 rounds"):
        factor(np.array([1.0, 0.5]))


def test_plots_need_matplotlib_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.backends.backend_agg", None)
    assert plots.write_png(tmp_path / "plot.png", [], "") is False
