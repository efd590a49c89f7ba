"""Mistakes that were in earlier recipes: each of these tests would have caught one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sartor import data
from sartor.aggregators import mean
from sartor.errors import SartorError
from sartor.papers.reproduce import Size, checked
from sartor.papers.reproduce.cells import all_cells
from sartor.papers.reproduce.mapping import TableColumn, with_expected
from sartor.papers.reproduce.work import compared
from sartor.run.named_parts import aggregator

COHORT = 10


def columns(name: str) -> list[TableColumn]:
    experiment = checked(name)
    size = Size.of(experiment, quick=False)
    return [TableColumn(experiment, c, False, size) for c in size.cells(experiment) if c.missing is None]


@pytest.mark.parametrize("name", ["lp-proj-fairness", "lp-proj-personalization", "lp-proj-robustness"])
def test_in_lp_proj_s_experiments_personal_methods_have_the_same(name: str) -> None:
    """Lp-Proj trained everyone, its rivals a tenth of the clients. Global models are trained by the cohort."""
    for group in compared(checked(name)):
        personal = {k: w for k, w in group.items() if not k.startswith(("fedavg", "per-fedavg"))}
        assert len(personal) >= 4 and len(set(personal.values())) == 1, personal
        assert all(w.trained == 1 for w in personal.values())
        assert len({w.trials for w in group.values()}) == 1


def test_local_training_has_at_least_the_work_of_every_rival_in_ditto_s_table_1() -> None:
    """It had that of the devices that were asked: some eighty steps in the whole run."""
    for group in compared(checked("ditto-fairness")):
        if "local" in group:
            assert group["local"].trained == 1
            assert all(group["local"].gradients >= w.gradients for w in group.values())


def test_fine_tuning_takes_the_best_of_many_lengths() -> None:
    """It took two steps. The global model that it starts from is trained as FedAvg's."""
    tuned = [c for c in columns("ditto-solvers") if c.cell.keys.get("joint") is False]
    assert tuned
    for column in tuned:
        assert max(column.grid["solver.steps"]) == 1000
        recipe = column.recipe({"solver.steps": 1000}, 0)
        assert recipe.settings["global_solver"] == {"steps": 2} and recipe.settings["solver.steps"] == 1000


@pytest.mark.parametrize(
    ("share", "known"),
    [
        (0.0, ["krum(f=0)", "multi-krum(f=0, keep=10)", "k-norm(k=0)", "k-loss(k=0)"]),
        (0.1, ["krum(f=1)", "multi-krum(f=1, keep=9)", "k-norm(k=1)", "k-loss(k=1)"]),
        (0.5, ["krum(f=3)", "multi-krum(f=3, keep=5)", "k-norm(k=5)", "k-loss(k=5)"]),
        (0.8, ["krum(f=3)", "multi-krum(f=3, keep=2)", "k-norm(k=8)", "k-loss(k=8)"]),
    ],
)
def test_robust_servers_know_how_many_to_expect(share: float, known: list[str]) -> None:
    """They expected three or four of ten in every cell, on clean data too."""
    found = {
        column.values["aggregator"]
        for column in columns("ditto-robustness")
        if column.cell.keys["dataset"] == "vehicle" and column.cell.keys["attackers"] == share
        if "aggregator" in column.values
    }
    assert set(known) <= found and len(found - {"median", "clipping"}) == len(known)
    for text in known:
        aggregator(text).check(COHORT)


def test_on_clean_data_multi_krum_and_k_norm_are_the_mean() -> None:
    """So the paper's numbers are: those of the global model."""
    messages = torch.from_numpy(np.random.default_rng(0).standard_normal((COHORT, 7)))
    weights = torch.full((COHORT,), 1 / COHORT, dtype=torch.float64)
    for text in ("multi-krum(f={krum}, keep={benign})", "k-norm(k={malicious})"):
        rule = aggregator(with_expected(text, COHORT, 0.0))
        torch.testing.assert_close(rule(messages, weights), mean(messages, weights))


def test_an_aggregator_of_unknown_numbers_is_refused() -> None:
    with pytest.raises(SartorError, match="number of clients in an aggregator"):
        with_expected("krum(f={hostile})", 10, 0.2)
    with pytest.raises(SartorError, match="the run has none"):
        with_expected("krum(f={krum})", None, 0.2)


def test_ditto_s_rivals_have_at_least_its_settings_to_choose_from() -> None:
    """They had the library's defaults. What has no setting of its own has none to choose."""
    for group in compared(checked("ditto-personalization")):
        plain = ("fedavg", "local", "fedavg-ft")
        assert all(w.trials >= group["ditto"].trials > 1 for k, w in group.items() if k not in plain)


def test_multi_krum_is_in_every_figure_of_flame_under_attack() -> None:
    cells = all_cells(checked("flame-robustness"))
    everywhere = {(c.keys["partition"], c.keys["attack"], c.keys["attackers"]) for c in cells}
    assert {
        (c.keys["partition"], c.keys["attack"], c.keys["attackers"])
        for c in cells
        if c.keys.get("aggregator") == "multi-krum"
    } == everywhere


def test_fedamp_s_clients_have_the_paper_s_sizes() -> None:
    """500 to 100 training samples and 100 test samples each; shares made 450 to 150 of them."""
    dealt = {c.cell.keys.get("partition") or c.values["partition"] for c in columns("fedamp-table1")}
    assert len(dealt) == 3 and all("test=100" in text for text in dealt)
    y = np.repeat(np.arange(10), 6000)
    mnist = next(text for text in dealt if "600/500/400/300/200" in text)
    made = data.Dataset(np.zeros((len(y), 1), dtype=np.float32), y, 10).split(mnist, 100, 0, (0.75, 0.0, 0.25))
    assert made.counts("train").tolist() == [n for n in (500, 400, 300, 200, 100) for _ in range(20)]
    assert made.counts("test").tolist() == [100] * 100 and made.counts("validation").sum() == 0


def test_training_loss_is_what_figures_of_training_loss_show() -> None:
    for name in ("flame-parameters", "ditto-solvers", "lp-proj-personalization"):
        assert checked(name).figure == "rounds"
        assert all(c.recipe(c.variants[0], 0).training_loss for c in columns(name))


def test_settings_that_are_not_tuned_in_the_quick_size_are_the_same_for_all() -> None:
    """A method that gives another field of its solver still takes the grid's middle step size."""
    experiment = checked("lp-proj-fairness")
    size = Size.of(experiment, quick=True)
    rates = {
        c.cell.keys["method"]: c.variants[0]["solver.lr"]
        for c in (TableColumn(experiment, cell, False, size) for cell in size.cells(experiment))
    }
    assert set(rates.values()) == {0.05} and {"ditto", "pfedme", "local", "lp-proj-1"} <= set(rates)
