"""Claims of a paper held against a table: which cells are compared, when an order holds, what is said of it. Every
number here is worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sartor.errors import SartorError
from sartor.papers.reproduce import checked, names
from sartor.papers.reproduce.cells import all_cells, matches, outline
from sartor.papers.reproduce.claims import AUTHORS, PAPER, WRITTEN, Case, cases, claims, distances, judged
from sartor.papers.reproduce.document import FIELDS
from sartor.papers.reproduce.experiment import Claim
from sartor.papers.reproduce.in_short import QUICK, REDUCED, in_short


def cell(method: str, model: str = "personal", dataset: str = "mnist", **more: Any) -> dict[str, Any]:
    """A cell of a table with one seed, whose value as written is `ours`."""
    known = {"dataset": dataset, "method": method, "model": model, "unit": "fraction", "row": f"{method} {dataset}"}
    known |= {"verdict": "agrees", "each": {"0": more["ours"]} if more.get("ours") is not None else None}
    if more.get("ours_authors") is not None:
        known |= {"verdict_authors": "agrees", "each_authors": {"0": more["ours_authors"]}}
    return {**dict.fromkeys(FIELDS), **known, **more}


def order(*methods: str, **more: Any) -> Claim:
    return Claim(text="the first is best", orders=[[{"method": m} for m in methods]], **more)


def found(cells: list[dict[str, Any]], claim: Claim, column: str = WRITTEN) -> list[Case]:
    return [Case(c.name, c.values) for c in cases(cells, claim, claim.orders[0], column)]


def test_cells_are_compared_within_a_data_set_and_a_model() -> None:
    cells = [
        *(cell("a", ours=0.9), cell("b", ours=0.8)),
        *(cell("a", "global", ours=0.5), cell("b", "global", ours=0.6)),
        *(cell("a", dataset="digits", ours=0.7), cell("b", dataset="digits", ours=0.7)),
    ]
    three = found(cells, order("a", "b"))
    assert [c.name for c in three] == ["mnist, personal", "mnist, global", "digits, personal"]
    assert [c.holds() for c in three] == [True, False, True]  # equal is enough
    assert [c.name for c in found(cells, order("a", "b", of={"model": "global"}))] == ["mnist, global"]
    assert len(found(cells, order("b", "a"))) == 3 and not found(cells, order("b", "a"))[0].holds()


def test_a_model_that_an_order_speaks_of_does_not_part_the_cells() -> None:
    cells = [cell("a", "personal", ours=0.9), cell("b", "global", ours=0.95)]
    mixed = Claim(text="-", orders=[[{"method": "a", "model": "personal"}, {"method": "b"}]])
    assert found(cells, order("a", "b")) == []
    assert found(cells, mixed) == [Case("mnist", [[0.9], [0.95]])]


def test_every_cell_of_a_member_counts() -> None:
    cells = [cell("a", ours=0.9), cell("b", ours=0.8, aggregator="krum"), cell("b", ours=0.95, aggregator="median")]
    (case,) = found(cells, order("a", "b"))
    assert case.values == [[0.9], [0.8, 0.95]] and not case.holds()
    assert not Case("", [[0.9, 0.7], [0.8]]).holds()


def test_an_order_that_is_not_about_methods_is_within_one() -> None:
    cells = [cell(m, ours=v, lam=lam) for m, lam, v in (("a", 1, 0.9), ("a", 2, 0.8), ("b", 1, 0.1), ("b", 2, 0.2))]
    by_lam = Claim(text="-", orders=[[{"lam": 1}, {"lam": 2}]])
    assert [(c.name, c.holds()) for c in found(cells, by_lam)] == [
        ("mnist, personal, a", True),
        ("mnist, personal, b", False),
    ]


def test_only_the_seeds_that_all_have_are_compared() -> None:
    """The means over all seeds, 0.6 and 0.65, would say the opposite of what seed 1 alone says."""
    cells = [cell("a", ours=0.6, each={"0": 0.3, "1": 0.9}), cell("b", ours=0.65, each={"1": 0.65})]
    assert found(cells, order("a", "b")) == [Case("mnist, personal", [[0.9], [0.65]])]
    cells[1]["each"] = {"2": 0.65}
    assert found(cells, order("a", "b")) == []


def test_what_was_not_run_and_bytes_are_no_case() -> None:
    assert found([cell("a", ours=0.9), cell("b", ours=None)], order("a", "b")) == []
    assert found([cell("a", ours=9e5, unit="bytes"), cell("b", ours=8e5, unit="bytes")], order("a", "b")) == []


def test_the_authors_column_is_ours_where_their_code_does_not_differ() -> None:
    cells = [cell("a", ours=0.9, ours_authors=0.7), cell("b", ours=0.8)]
    assert found(cells, order("a", "b"), AUTHORS) == [Case("mnist, personal", [[0.7], [0.8]])]
    assert found(cells, order("a", "b"), PAPER) == []


def test_a_low_spread_and_a_low_variance_are_good() -> None:
    cells = [
        cell("a", ours=90.0, spread=5.0, paper_spread=7.0, loss_var=0.2, unit="percent"),
        cell("b", ours=80.0, spread=4.0, paper_spread=8.0, loss_var=0.3, unit="percent"),
    ]
    spread, variance = order("a", "b", measure="spread"), order("a", "b", measure="loss_var")
    assert [c.holds(lower=True) for c in found(cells, spread)] == [False]
    assert [c.holds(lower=True) for c in found(cells, spread, PAPER)] == [True]
    assert found(cells, variance) == [Case("mnist, personal", [[0.2], [0.3]])]
    assert found(cells, variance, PAPER) == []
    assert judged(spread, {"cells": cells}) == [
        "spread of a ≤ b: in the paper's own numbers in 1 of 1 cases; ours in 0 of 1 cases, "
        "not in mnist, personal (0.05, 0.04)."
    ]


def test_a_claim_in_words() -> None:
    cells = [
        *(cell("a", paper=0.90, ours=0.9, ours_authors=0.9), cell("b", paper=0.85, ours=0.91, ours_authors=0.7)),
        *(cell("a", "global", paper=0.5, ours=0.6), cell("b", "global", paper=0.4, ours=0.57)),
    ]
    assert judged(order("a", "b"), {"cells": cells}) == [
        "a ≥ b: in the paper's own numbers in 2 of 2 cases (+7.5 points on average); as written in 1 of 2 cases "
        "(+1.0 points on average), not in mnist, personal (0.9, 0.91); with the authors' switches in 2 of 2 cases "
        "(+11.5 points on average)."
    ]
    assert judged(order("a", "c"), {"cells": cells}) == []
    assert judged(Claim(text="no order"), {"cells": cells}) == []


def test_distances_from_the_printed_numbers() -> None:
    cells = [
        cell("a", paper=0.90, ours=0.91),
        cell("b", paper=0.90, ours=0.85),
        cell("c", paper=90.0, ours=91.9, unit="percent"),
        cell("d", paper=0.90, ours=0.1, differs="other data"),
        cell("e", ours=0.1),
        cell("f", paper=0.1, ours=None),
    ]
    assert distances({"cells": cells}) == (
        "Distances from the printed numbers: ours, 2 of 3 are within 2 points, the median distance is 1.9, "
        "the largest 5.0 (b mnist: 0.8500, the paper 0.9000)."
    )
    assert distances({"cells": cells[3:]}) == ""


@pytest.mark.parametrize("name", names())
def test_every_order_is_of_cells_that_there_are(name: str) -> None:
    e = checked(name)
    outlines = [outline(c) for c in all_cells(e)]
    for claim in claims(e):
        there = [o for o in outlines if matches(o, claim.of)]
        for member in (m for one in claim.orders for m in one):
            assert any(matches(o, member) for o in there), f"{claim.text}: {member}"


def test_a_question_about_cells_that_are_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        'title = "-"\n[[cells]]\ndataset = "digits"\nmethod = "flame"\nmodel = "personal"\n'
        '[[questions]]\ntext = "-"\norders = [[{ method = "flame" }, { method = "pfedme" }]]\n'
    )
    with pytest.raises(SartorError, match=r"own.toml, line 6: questions.0: no cell is method = 'pfedme'"):
        checked(str(tmp_path / "own.toml"))


def whole(cells: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"quick": False, "rounds": None, "network": None, "cells": cells, **more}


def test_a_table_in_short() -> None:
    """Two of three numbers agree as written, one of two with the authors' switches; "a before b" holds on one of two
    data sets as written and on the only one with the authors' switches; a cell was not run."""
    cells = [
        cell("a", ours=0.9, ours_authors=0.9),
        cell("b", ours=0.8, ours_authors=0.8, verdict_authors="ours higher"),
        cell("a", dataset="digits", ours=0.5, verdict="ours lower"),
        cell("b", dataset="digits", ours=0.6, verdict="no printed number"),
        cell("c", ours=None, verdict="not run: no such data"),
    ]
    said = in_short(whole(cells), [order("a", "b"), order("b", "a", of={"dataset": "digits"}), order("a", "c")])
    assert said == (
        "Printed numbers that come out: as written 2 of 3 (1 below the paper's); with the authors' switches 1 of 2 "
        "(1 above the paper's). Orders of methods that come out: as written, of 2, 1 in every case, 1 in half or "
        "fewer; with the authors' switches, of 2, 1 in every case, 1 in half or fewer. "
        "Cells that have no number: as written 1 of 5."
    )


def test_small_tables_are_not_judged_by_their_numbers() -> None:
    cells = [cell("a", ours=0.9), cell("b", ours=0.8)]
    assert in_short(whole(cells, quick=True), [order("a", "b")]) == QUICK
    reduced = in_short(whole(cells, network="softmax"), [order("b", "a")])
    assert reduced == f"{REDUCED} Orders of methods that come out: ours, of 1, 1 in none."
