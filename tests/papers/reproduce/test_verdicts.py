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
    return decided(claim, load(names()[0])[0], [table(*cells, quick=quick)], {}).verdict


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


def test_what_goes_against_a_paper_must_stand_for_all_comparisons_together() -> None:
    """Differences 0.05, 0.06, 0.08: t = 7.18 on two degrees, above 4.30 (95%) and below 8.86 (98.75%, one of four)."""
    a, b = [0.95, 0.96, 0.98], [0.90, 0.90, 0.90]
    sets = [c for d in "wxyz" for c in (cell("a", a, dataset=d), cell("b", b, dataset=d))]
    assert said(order("a", "b"), *sets[:2]) == HOLDS and said(order("b", "a"), *sets[:2]) == FAILS
    assert said(order("a", "b"), *sets) == HOLDS  # all of them are needed, each at 95%
    assert said(order("b", "a"), *sets) == OPEN


def test_where_some_cannot_be_told_it_holds_only_in_the_others() -> None:
    sets = [c for d in "wx" for c in (cell("a", BETTER, dataset=d), cell("b", WORSE, dataset=d))]
    sets += [cell("a", BETTER, dataset="y"), cell("b", NOISY, dataset="y")]
    assert said(order("a", "b"), *sets) == "holds only in 2 of 3 comparisons"
    assert said(order("a", "b", most=True), *sets) == HOLDS
    assert said(order("a", "b"), *sets[2:], cell("a", BETTER, dataset="z"), cell("b", NOISY, dataset="z")) == OPEN
    less = [cell("a", WORSE, dataset="z", work=[5, 0, 1, 3]), cell("b", BETTER, dataset="z")]
    assert said(order("a", "b"), *sets, *less) == "holds only in 2 of 4 comparisons"  # not equal: not to be told
    assert said(order("a", "b"), *sets[:2], *less, *less) == OPEN


def test_most_cases_decide_where_a_paper_says_most() -> None:
    sets = [c for d in "wx" for c in (cell("a", BETTER, dataset=d), cell("b", WORSE, dataset=d))]
    sets += [cell("a", WORSE, dataset="y"), cell("b", BETTER, dataset="y")]
    assert said(order("a", "b", most=True), *sets) == HOLDS
    assert said(order("b", "a", most=True), *sets) == FAILS
    assert said(order("a", "b", most=True), *sets[2:]) == "holds only in 1 of 2 comparisons"


def test_two_measures_are_asked_together() -> None:
    def both(method: str, values: list[float], spread: float) -> dict[str, Any]:
        more = {"spread": {str(i): spread + 0.001 * i for i in range(3)}}
        return cell(method, values, more=more)

    claim = order("a", "b", also=["spread"])
    assert said(claim, both("a", BETTER, 0.1), both("b", WORSE, 0.2)) == HOLDS
    assert said(claim, both("a", BETTER, 0.2), both("b", WORSE, 0.1)) == "holds only in 1 of 2 comparisons"
    assert said(order("a", "b"), both("a", BETTER, 0.2), both("b", WORSE, 0.1)) == HOLDS


def test_how_far_a_number_falls() -> None:
    """a falls from .92 to .82, b from .99 to .80: a falls less although b was better before."""
    clean, hit = {"attack": "none", "attackers": 0.0}, {"attack": "noise", "attackers": 0.5}
    high = [v + 0.07 for v in BETTER]
    low = [v - 0.02 for v in WORSE]
    cells = [cell("a", BETTER, **clean), cell("a", WORSE, **hit), cell("b", high, **clean), cell("b", low, **hit)]
    cells[1]["each"]["2"] += 0.01
    fall = [{"attack": "none", "attackers": 0.0}, {"attackers": 0.5}]
    assert said(order("a", "b", fall=fall), *cells) == HOLDS
    assert said(order("b", "a", fall=fall), *cells) == FAILS
    detail = standing(order("a", "b", fall=fall), table(*cells), "as written").detail
    assert detail.startswith("+9.33 ")  # 9, 9 and 10 points


def test_bytes_until_an_accuracy_are_compared_by_how_many_times_more() -> None:
    def cells(method: str, values: list[float]) -> dict[str, Any]:
        return cell(method, values, unit="bytes", target=0.6)

    few, many = cells("a", [1000, 1100, 1000]), cells("b", [100_000, 110_000, 100_000])
    claim = order("a", "b", measure="bytes")
    assert said(claim, few, many, cells("b", [])) == HOLDS  # one that never gets there says nothing
    assert said(order("b", "a", measure="bytes"), few, many) == FAILS
    assert standing(claim, table(few, many), "as written").detail.startswith("100 times fewer bytes [100, 100]")


def test_the_full_size_comes_first_and_the_reduced_one_where_it_says_nothing() -> None:
    full, reduced = table(cell("a", WORSE), cell("b", BETTER)), table(cell("a", BETTER), cell("b", WORSE))
    reduced["reduced"] = "fewer rounds"
    some = load(names()[0])[0]
    assert decided(order("a", "b"), some, [full, reduced], {}).verdict == FAILS
    one_seed = table(cell("a", WORSE[:1]), cell("b", BETTER[:1]))
    found = decided(order("a", "b"), some, [one_seed, reduced], {})
    assert found.verdict == HOLDS and found.detail.endswith("(reduced size)")


def test_what_goes_against_a_paper_needs_equal_work() -> None:
    less = cell("a", WORSE, work=[5, 0, 1, 3])
    assert said(order("a", "b"), less, cell("b", BETTER)) == OPEN
    assert said(order("a", "b"), cell("a", WORSE, work=[20, 0, 1, 3]), cell("b", BETTER)) == FAILS
    assert said(order("a", "b"), cell("a", WORSE, work=None), cell("b", BETTER)) == OPEN
    assert said(order("a", "b"), cell("a", BETTER, work=[5, 0, 1, 3]), cell("b", WORSE)) == HOLDS
    tuned_later = cell("b", BETTER, work=[10, 50, 1, 3, 10])  # 10 a round and 50 at the end: 150
    assert said(order("a", "b"), cell("a", WORSE, work=[10, 0, 1, 3, 15]), tuned_later) == FAILS
    assert said(order("a", "b"), cell("a", WORSE, work=[10, 0, 1, 3, 14]), tuned_later) == OPEN
    detail = standing(order("a", "b"), table(less, cell("b", BETTER)), "as written").detail
    assert "1 against it with less work, tuning" in detail


def test_a_best_setting_at_an_end_of_its_grid_is_not_held_against_a_method() -> None:
    assert said(order("a", "b"), cell("a", WORSE, edge=["rho"]), cell("b", BETTER)) == OPEN
    assert said(order("a", "b"), cell("a", WORSE), cell("b", BETTER, edge=["rho"])) == FAILS
    assert said(order("a", "b"), cell("a", BETTER, edge=["rho"]), cell("b", WORSE)) == HOLDS


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
    assert decided(order("a", "b"), None, [], {}) == Verdict(OPEN, "not run yet")
    assert decided(Claim(text="-", undecidable="why"), None, [], {}) == Verdict(OPEN, "why")


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
    assert decided(claim, None, [], found).verdict == FAILS
    assert decided(claim, None, [], found).detail.endswith("1 in the paper, 0.5 measured")
    rows[1]["relation"] = "<="  # a bound of ours is no number of the paper's
    assert decided(claim, None, [], found).detail.endswith("at most 1 asked for, 0.5 measured")
    assert decided(Claim(text="-", theory=["one", "two"]), None, [], found).verdict == HOLDS
    assert decided(claim, None, [], {}).verdict == OPEN
    assert decided(Claim(text="-", theory=["two: third row"]), None, [], found).verdict == OPEN  # nobody measured it


def test_the_page_opens_with_every_claim_of_every_paper() -> None:
    known = {name: load(name)[0] for name in names()}
    found = claims_table.entries(known, document.shown_tables)
    written = [c["text"] for e in claims_table.files() for c in e[1].get("claims", [])]
    assert sorted(e.claim.text for e in found) == sorted(written) and len(found) > 70
    page = document.DOCUMENT.read_text(encoding="utf-8")
    table = page[: page.index("## How to read the tables below")]
    for e in found:
        assert f"| {e.paper} {e.number} |" in table
    assert all(e.claim.orders or e.claim.theory or e.claim.undecidable or e.claim.least for e in found)
