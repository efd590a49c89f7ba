"""The report and the live page by keyboard and for screen readers (axe-core), and with thousands of clients."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import axe
import chromium
import pytest
from chromium import Browser
from commandline import OWN, good, hospitals
from large import TEN, enlarge
from pages import live_page

PROGRAM = chromium.find()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason=chromium.MISSING)
needs_axe = pytest.mark.skipif(axe.find() is None, reason=axe.MISSING)

QUICK = ("--model", "softmax", "--rounds", 2, "--evaluate-every", 1)
NODES = 15_000  # of a page, however many clients there are
ROWS = "document.querySelectorAll('#{} tbody tr:not(.spacer)').length"
FIRST = "[...document.querySelectorAll('#{} tbody tr:not(.spacer)')].map((row) => row.cells[{}].textContent)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert PROGRAM is not None
    made = Browser(PROGRAM)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run and a comparison of ten methods, of four hospitals."""
    place = tmp_path_factory.mktemp("access")
    table = hospitals(place / "visits.csv", names=("A", "B", "C", "D"), each=30)
    good("run", *QUICK, "--method", "ditto", "--data", table, *OWN, "--out", place / "run", "--quiet")
    asked = ("--methods", TEN, "--seeds", "0", "--out", place / "compare", "--quiet")
    good("compare", *QUICK, "--data", table, *OWN, *asked)
    return {"run": place / "run", "compare": place / "compare"}


@pytest.fixture(scope="module")
def large(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same with 10,000 clients, and with 1,000 clients of ten methods."""
    made = {}
    for name, clients in (("run", 10_000), ("compare", 1_000)):
        made[name] = tmp_path_factory.mktemp("large") / name
        shutil.copytree(folders[name], made[name])
        enlarge(made[name], clients)
        good("report", made[name], "--quiet")
    return made


def same(script: str, value: object) -> str:
    """The condition that a script gives a value."""
    return f"JSON.stringify({script}) === {json.dumps(json.dumps(value, separators=(',', ':')))}"


@needs_axe
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["run", "compare"])
def test_nothing_grave_in_a_report(browser: Browser, folders: dict[str, Path], name: str, dark: bool) -> None:
    with browser.page(dark=dark) as page:
        page.open(folders[name] / "report.html")
        if name == "run":
            page.run("sartor.pick(1)")
        assert axe.grave(axe.findings(page)) == []


@needs_axe
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_grave_in_the_live_page(browser: Browser, folders: dict[str, Path], dark: bool) -> None:
    with live_page(folders["compare"]) as port, browser.page(dark=dark) as page:
        page.open(f"http://127.0.0.1:{port}/")
        page.wait("document.body.dataset.seen")
        assert axe.grave(axe.findings(page)) == []


@needs_axe
def test_what_is_grave_is_found(browser: Browser, folders: dict[str, Path]) -> None:
    """The tests above can fail: a button without words, and words that can hardly be seen."""
    with browser.page(width=800) as page:
        page.open(folders["run"] / "report.html")
        page.run("document.querySelector('th button').textContent = ''")
        page.run("document.querySelector('h2').style.color = getComputedStyle(document.body).backgroundColor")
        assert {"button-name"} <= {one["id"] for one in axe.grave(axe.findings(page))}


def test_a_client_is_picked(browser: Browser, folders: dict[str, Path]) -> None:
    """By the list and from the table: its own curves, its own numbers; and back."""
    found = json.loads((folders["run"] / "metrics.json").read_text())["models"]["chosen"]
    heat = "document.querySelector('#chart-confusion .plot').data[0].text"
    with browser.page() as page:
        page.open(folders["run"] / "report.html")
        page.wait(same(heat, found["confusion"]))
        page.run("document.querySelector('.picker select').focus()")
        for letter in "c":  # what one types goes to the name that begins so
            page.call("Input.dispatchKeyEvent", type="char", text=letter)
        page.wait("document.querySelector('.picker select').value === '2'")
        page.wait(same(heat, found["clients"][2]["confusion"]))
        page.wait("!document.querySelector('.card').hidden")
        card = page.run("[...document.querySelectorAll('.card tbody tr')].map((r) => r.cells[1].textContent)")
        row = found["clients"][2]
        low, high = row["intervals"]["accuracy"]
        assert f"{row['accuracy']:.3f} [{low:.3f}, {high:.3f}]" in card and len(card) == len(row["intervals"])
        page.run("document.querySelector('#client-metrics-table').closest('details').open = true")
        page.wait("document.querySelector('#client-metrics-table .pick')")
        page.run("document.querySelectorAll('#client-metrics-table .pick')[1].click()")
        page.wait("document.querySelector('.picker .note').textContent.includes('B: ')")
        page.wait("document.activeElement === document.querySelector('.picker select')")
        page.run("sartor.pick(-1)")
        page.wait(same(heat, found["confusion"]))
        assert page.run("document.querySelector('.card').hidden") and page.trouble() == []


def test_two_methods_client_by_client(browser: Browser, folders: dict[str, Path]) -> None:
    known = {r["client"]: r for r in json.loads((folders["compare"] / "clients.json").read_text())}
    with browser.page() as page:
        page.open(folders["compare"] / "report.html")
        methods = page.run("[...document.querySelector('.pair select').options].map((o) => o.textContent)")
        a, b = methods.index("local"), methods.index("fedavg")
        for place, value in enumerate((a, b)):
            select = f"document.querySelectorAll('.pair select')[{place}]"
            page.run(f"{select}.value = '{value}'; {select}.dispatchEvent(new Event('change'))")
        off = {c: round(r["local"] - r["fedavg"], 9) for c, r in known.items()}
        note = page.run("document.querySelector('.pair .note').textContent")
        up, down = sum(d > 0 for d in off.values()), sum(d < 0 for d in off.values())
        assert note.startswith(f"local is better than fedavg for {up} of 4 clients, worse for {down}, the same for")
        page.click("document.querySelectorAll('#pair-table thead button')[3]")
        shown = page.run(FIRST.format("pair-table", 3))
        assert [float(t) for t in shown] == pytest.approx(sorted(off.values(), reverse=True), abs=5e-4)
        page.wait("document.querySelector('#chart-pair .plot').data[0].name.startsWith('local')")
        drawn = page.run("document.querySelector('#chart-pair .plot').data.map((t) => t.y)")
        assert [x + y for x, y in zip(*drawn, strict=True)] == pytest.approx(sorted(off.values()), abs=1e-5)
        assert page.trouble() == []


@pytest.mark.parametrize("name", ["run", "compare"])
def test_a_large_report_stays_small(
    browser: Browser, large: dict[str, Path], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page of 10,000 clients, or of 1,000 clients with ten methods, has few nodes and few bytes. How long it takes is
    printed, and depends on the machine."""
    page_file = large[name] / "report.html"
    with browser.page() as page:
        page.call("Performance.enable")
        page.open(page_file)
        spent = {one["name"]: one["value"] for one in page.call("Performance.getMetrics")["metrics"]}
        at = page.run("['seen', 'ready'].map((name) => performance.getEntriesByName(name)[0].startTime / 1000)")
        nodes = page.run("document.querySelectorAll('*').length")
        page.run("document.querySelectorAll('details').forEach((part) => { part.open = true })")
        assert nodes < NODES and page.run("document.querySelectorAll('*').length") < NODES
        assert page_file.stat().st_size < 12e6
        assert page.trouble() == [] and page.requests() == []
    with capsys.disabled():
        print(
            f"\n{name}: {page_file.stat().st_size / 1e6:.1f} MB, {nodes} nodes; what is seen is drawn after "
            f"{at[0]:.1f} s, everything after {at[1]:.1f} s; its thread computed for {spent['ThreadTime']:.1f} s"
        )


def test_ten_thousand_clients_are_found_sorted_and_scrolled(browser: Browser, large: dict[str, Path]) -> None:
    rows = json.loads((large["run"] / "clients.json").read_text())
    box = "document.querySelector('#each-client').closest('.wide')"
    with browser.page() as page:
        page.open(large["run"] / "report.html")
        page.run(f"{box}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        assert page.run("document.querySelector('#each-client').getAttribute('aria-rowcount')") == "10001"
        assert page.run(ROWS.format("each-client")) < 60
        page.run(f"{box}.focus()")  # by keyboard to the end
        page.call("Input.dispatchKeyEvent", type="keyDown", key="End", code="End", windowsVirtualKeyCode=35)
        page.wait(f"{FIRST.format('each-client', 0)}.at(-1) === 'site-09999'")
        assert page.run(ROWS.format("each-client")) < 60
        last = "[...document.querySelectorAll('#each-client tbody tr:not(.spacer)')].at(-1)"
        assert page.run(f"{last}.getAttribute('aria-rowindex')") == "10001"
        page.wait(
            f"(() => {{ const a = {last}.getBoundingClientRect(), b = {box}.getBoundingClientRect(); "
            "return a.bottom <= b.bottom + 1 && a.bottom > b.top })()"
        )  # the rows lie where the scroll bar says, once it has come to the end
        column = page.run("[...document.querySelectorAll('#each-client thead button')].map((b) => b.textContent)")
        page.click(f"document.querySelectorAll('#each-client thead button')[{column.index('chosen')}]")
        top = page.run(FIRST.format("each-client", column.index("chosen")))
        best = sorted((r["chosen_test_accuracy"] for r in rows), reverse=True)[: len(top)]
        assert [float(t) for t in top] == pytest.approx(best, abs=5e-4)
        find = f"{box}.previousElementSibling.querySelector('input')"
        page.run(f"{find}.focus()")
        page.call("Input.insertText", text="SITE-0123")
        page.wait(f"{ROWS.format('each-client')} === 10")
        names = page.run(FIRST.format("each-client", 0))
        assert set(names) == {f"site-0123{i}" for i in range(10)}
        said = page.run(f"{box}.previousElementSibling.querySelector('[role=status]').textContent")
        assert said == "10 of 10000" and page.trouble() == []
