"""Whether a claim holds: the stated rule, on numbers whose intervals are known."""

from __future__ import annotations

from typing import Any

import pytest

from sartor.papers.reproduce import claims_table, document, load, names
from sartor.papers.reproduce.document import FIELDS
from sartor.papers.reproduce.experiment import Claim
from sartor.papers.reproduce.verdicts import FAILS, HOLDS, OPEN, Verdict, decided, interval, standing

WORK = [10, 0, 1, 3]
BETTER, WORSE, SAME = [0.91, 0.92, 0.93], [0.81, 0.82, 0.83], [0.9101, 0.9199, 0.9301]
NOISY = [0.80, 0.95, 0.99]


def cell(method: str, values: list[float], *, authors: list[float] | None = None, **more: Any) -> dict[str, Any]:
    known = {"dataset": "mnist", "method": method, "model": "personal", "unit": "fraction", "row": method}
    known |= {"each": {str(i): v for i, v in enumerate(values)}, "work": WORK, "verdict": "agrees"}
    if authors is not None:
        known |= {"verdict_authors": "agrees", "each_authors": {str(i): v for i, v in enumerate(authors)}}
    return {**dict.fromkeys(FIELDS), **known, **more}


def table(*cells: dict[str, Any], quick: bool = False) -> dict[str, Any]:
    return {"cells": list(cells), "quick": quick}


def order(*methods: str, **more: Any) -> Claim:
    return Claim(text="-", orders=[[{"method": m} for m in methods]], **more)


def said(claim: Claim, *cells: dict[str, Any], quick: bool = False) -> str:
    return decided(claim, load(names()[0])[0], table(*cells, quick=quick), {}).verdict


def test_the_interval_is_student_s() -> None:
    """Mean 2, standard deviation 1, three values: t(0.975, 2) = 4.302653, so the half width is 4.302653/√3."""
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.484138, 2 + 2.484138), abs=1e-5)
    assert interval([1.0, 2.0, 3.0], 0.99)[1] == pytest.approx(2 + 9.924843 / 3**0.5, abs=1e-5)


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (BETTER, WORSE, HOLDS),
        (WORSE, BETTER, FAILS),
        (BETTER, SAME, f"{FAILS}: level"),
        (BETTER, NOISY, OPEN),
        (BETTER[:2], WORSE[:2], OPEN),  # two seeds have no interval
    ],
)
def test_one_comparison(first: list[float], second: list[float], verdict: str) -> None:
    assert said(order("a", "b"), cell("a", first), cell("b", second)) == verdict


def test_a_claim_of_many_cases_holds_in_all_of_them_or_in_some() -> None:
    both = [cell("a", BETTER), cell("b", WORSE), cell("a", BETTER, dataset="digits"), cell("b", SAME, dataset="digits")]
    assert said(order("a", "b"), *both) == HOLDS  # better once, level once
    against = [*both[:2], cell("a", WORSE, dataset="digits"), cell("b", BETTER, dataset="digits")]
    assert said(order("a", "b"), *against) == "holds only in 1 of 2 comparisons"


def test_more_comparisons_need_more_evidence() -> None:
    """Differences 0.05, 0.06, 0.08: t = 7.18 on two degrees, above 4.30 (95%) and below 8.86 (98.75%, one of four)."""
    a, b = [0.95, 0.96, 0.98], [0.90, 0.90, 0.90]
    assert said(order("a", "b"), cell("a", a), cell("b", b)) == HOLDS
    sets = [c for d in "wxyz" for c in (cell("a", a, dataset=d), cell("b", b, dataset=d))]
    assert said(order("a", "b"), *sets) == OPEN


def test_what_goes_against_a_paper_needs_equal_work() -> None:
    less = cell("a", WORSE, work=[5, 0, 1, 3])
    assert said(order("a", "b"), less, cell("b", BETTER)) == OPEN
    assert said(order("a", "b"), cell("a", WORSE, work=[20, 0, 1, 3]), cell("b", BETTER)) == FAILS
    assert said(order("a", "b"), cell("a", WORSE, work=None), cell("b", BETTER)) == OPEN
    assert said(order("a", "b"), cell("a", BETTER, work=[5, 0, 1, 3]), cell("b", WORSE)) == HOLDS
    detail = standing(order("a", "b"), table(less, cell("b", BETTER)), "as written").detail
    assert "1 against it with less work or tuning" in detail


def test_the_authors_switches_may_be_what_it_takes() -> None:
    cells = cell("a", WORSE, authors=BETTER), cell("b", BETTER, authors=WORSE)
    assert said(order("a", "b"), *cells) == "holds only with the authors' switches"


def test_comparable_is_within_so_many_points() -> None:
    near = [v - 0.005 for v in BETTER]
    assert said(order("a", "b", within=1.0), cell("a", near), cell("b", [*BETTER[:2], 0.9301])) == HOLDS
    assert said(order("a", "b", within=1.0), cell("a", WORSE), cell("b", SAME)) == FAILS


def test_a_size_that_the_paper_gives_is_looked_at_too() -> None:
    cells = cell("a", [0.91, 0.92, 0.935]), cell("b", WORSE)
    assert said(order("a", "b", claimed=[10.0]), *cells) == HOLDS
    assert said(order("a", "b", claimed=[20.0]), *cells) == "holds only in direction"


def test_a_threshold_is_met_by_every_cell() -> None:
    claim = Claim(text="-", least=90.0)
    assert said(claim, cell("a", [0.95, 0.96, 0.955])) == HOLDS
    assert said(claim, cell("a", [0.95, 0.96, 0.955]), cell("b", WORSE)) == "holds only in 1 of 2 comparisons"


def test_other_measures_are_low_where_they_are_good_and_need_their_own_seeds() -> None:
    def spread(method: str, values: list[float]) -> dict[str, Any]:
        return cell(method, BETTER, more={"spread": {str(i): v for i, v in enumerate(values)}})

    claim = order("a", "b", measure="spread")
    assert said(claim, spread("a", [0.01, 0.02, 0.03]), spread("b", [0.11, 0.12, 0.13])) == HOLDS
    assert said(claim, cell("a", BETTER, spread=0.02), cell("b", BETTER, spread=0.12)) == OPEN


def test_quick_sizes_and_what_was_not_run_decide_nothing() -> None:
    cells = cell("a", BETTER), cell("b", WORSE)
    assert said(order("a", "b"), *cells, quick=True) == OPEN
    assert decided(order("a", "b"), None, None, {}) == Verdict(OPEN, "not run yet")
    assert decided(Claim(text="-", undecidable="why"), None, None, {}) == Verdict(OPEN, "why")


def test_equal_work_decides_where_the_printed_settings_do_not() -> None:
    printed, against, for_it = Verdict(HOLDS, "p"), Verdict(FAILS, "q"), Verdict(HOLDS, "q")
    assert printed.with_fair(against, "x").verdict == "holds only with the printed settings"
    assert Verdict(OPEN, "p").with_fair(against, "x").verdict == FAILS
    assert Verdict(OPEN, "p").with_fair(for_it, "x").verdict == HOLDS
    assert printed.with_fair(Verdict(OPEN, "not run yet"), "x").verdict == HOLDS


def test_a_theorem_is_decided_by_its_check() -> None:
    claim = Claim(text="-", theory=["one", "two: second row"])
    rows = [{"what": f"{n} row", "agrees": n == "first", "theory": 1.0, "measured": 0.5} for n in ("first", "second")]
    found = {"one": {"agrees": True, "rows": []}, "two": {"agrees": True, "rows": rows}}
    assert decided(claim, None, None, found).verdict == FAILS
    assert decided(claim, None, None, found).detail.endswith("1 in the paper, 0.5 measured")
    assert decided(Claim(text="-", theory=["one", "two"]), None, None, found).verdict == HOLDS
    assert decided(claim, None, None, {}).verdict == OPEN


def test_the_page_opens_with_every_claim_of_every_paper() -> None:
    known = {name: load(name)[0] for name in names()}
    found = claims_table.entries(known, lambda name: document.stored(name))
    written = [c["text"] for e in claims_table.files() for c in e[1].get("claims", [])]
    assert sorted(e.claim.text for e in found) == sorted(written) and len(found) > 70
    page = document.DOCUMENT.read_text(encoding="utf-8")
    table = page[: page.index("## How to read the tables below")]
    for e in found:
        assert f"| {e.paper} {e.number} |" in table
    assert all(e.claim.orders or e.claim.theory or e.claim.undecidable or e.claim.least for e in found)
