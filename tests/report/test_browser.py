"""The report and the live page in a real browser: drawn, quiet, self-contained, and they do what one clicks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import chromium
import pytest
from chromium import Browser
from commandline import OWN, good, hospitals, sartor, stop_in_round
from pages import live_page

from sartor.report.pieces import safe_json

PROGRAM = chromium.find()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason=chromium.MISSING)

NASTY = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    '"><svg onload=alert(3)>',
    "a & <b>b</b>",
)
OPEN = '<script type="application/json">'
QUICK = ("--model", "softmax", "--rounds", 3, "--evaluate-every", 1)
# What a chart shows, by name: how many marks of its traces there are.
MARKS = """Object.fromEntries([...document.querySelectorAll('figure.chart')].map(f => [f.dataset.name,
    f.querySelectorAll('.scatterlayer .point, .scatterlayer .js-line, .heatmaplayer image, .bars .point').length]))"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    assert PROGRAM is not None
    made = Browser(PROGRAM)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison with an attack and FedAMP, on a table with client, column and file names that are HTML."""
    folder = tmp_path_factory.mktemp("browser")
    table = hospitals(folder / "<img src=x onerror=alert(4)>.csv", names=NASTY)
    table.write_text(table.read_text().replace("dose", "<i onclick=alert(5)>dose"))
    grid = ("--attack", "none,sign-flip", "--attackers", "0,0.3")
    asked = ("--methods", "flame,fedamp,local", "--seeds", "0,1", *grid)
    good("compare", *QUICK, "--data", table, *OWN, *asked, "--out", folder / "a", "--quiet")
    return folder / "a" / "report.html"


@pytest.fixture(scope="session")
def page(browser: Browser, compared: Path) -> Iterator[chromium.Page]:
    """The report on a desk, open all the time: to load it takes longer than to look at it."""
    with browser.page() as found:
        found.open(compared)
        yield found


def is_fine(page: chromium.Page) -> None:
    """Nothing in the console, nothing asked for, every chart drawn."""
    assert page.trouble() == []
    assert page.requests() == []
    marks = page.run(MARKS)
    assert marks and all(marks.values()), marks
    assert page.run("document.querySelectorAll('.plot .main-svg').length") >= len(marks)


def test_everything_is_drawn(page: chromium.Page) -> None:
    is_fine(page)
    there = set(page.run("[...document.querySelectorAll('figure.chart')].map(f => f.dataset.name)"))
    assert there == {
        "clients",
        "roc",
        "calibration",
        "pair",
        "accuracy",
        "loss",
        "robustness",
        "fairness",
        "collaboration",
        "skew",
        "diagnostics",
    }
    headings = page.run("[...document.querySelectorAll('h2')].map(h => h.textContent)")
    for words in ("All methods", "Who gains", "As training", "evenly", "more than chance", "repeat", "Citations"):
        assert any(words in h for h in headings), words
    links = page.run("[...document.querySelectorAll('nav a')].map(a => !!document.querySelector(a.hash))")
    assert links and all(links)


def test_an_empty_chart_and_an_error_are_noticed(browser: Browser, compared: Path, tmp_path: Path) -> None:
    """The tests of this file can fail: a chart without data, a script of somebody else's, an image from elsewhere."""
    html = compared.read_text()
    start = html.index(OPEN, html.index('data-name="skew"')) + len(OPEN)
    end = html.index("</script>", start)
    spec = json.loads(html[start:end])
    for variant in spec["variants"].values():
        variant["data"] = []
    broken = html[:start] + safe_json(spec) + html[end:]
    foreign = "<script>alert(1)</script><img src=http://127.0.0.1:9/x.png></main>"
    (tmp_path / "broken.html").write_text(broken.replace("</main>", foreign))
    with browser.page() as page:
        page.open(tmp_path / "broken.html")
        marks = page.run(MARKS)
        assert marks.pop("skew") == 0 and all(marks.values())
        said = page.hear("inline script violates", "Loading the image")
        assert not any(text.startswith("dialog") for text in said)  # it was not run


def test_nothing_that_is_called_like_html_is_html(page: chromium.Page) -> None:
    page.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert page.trouble() == [] and page.requests() == []
    assert page.run("document.querySelectorAll('main img, main b, main i, [onload], [onerror], [onclick]').length") == 0
    cells = page.run("[...document.querySelectorAll('td')].map(d => d.textContent)")
    assert set(NASTY) <= set(cells)
    ticks = page.run("[...document.querySelectorAll('#chart-skew .xtick text')].map(t => t.textContent)")
    assert any(text.startswith("<img src=x on") for text in ticks)  # as words, also in a drawing
    assert page.run("document.querySelectorAll('.plot a, .plot tspan[style*=bold]').length") == 0


def test_tables_are_sorted_by_a_click(page: chromium.Page) -> None:
    column = "[...document.querySelectorAll('#methods-table tbody tr')].map(r => r.cells[3].textContent)"
    head = "document.querySelectorAll('#methods-table thead button')[3]"
    before = page.run(column)
    page.click(head)
    down = page.run(column)
    assert down == sorted(before, key=lambda t: -float(t.split()[0]))
    page.click(head)
    up = page.run(column)
    assert [t.split()[0] for t in up] == sorted(t.split()[0] for t in before) and up != down
    assert page.run("document.querySelectorAll('#methods-table th[aria-sort=ascending]').length") == 1


def test_a_click_on_the_legend_hides_a_line_with_its_band(page: chromium.Page) -> None:
    shown = "document.querySelectorAll('#chart-accuracy .scatterlayer .trace').length"
    before = page.run(shown)
    page.click("document.querySelector('#chart-accuracy .legend .legendtoggle')")
    page.wait(f"{shown} === {before - 2}")
    page.click("document.querySelector('#chart-accuracy .legend .legendtoggle')")
    page.wait(f"{shown} === {before}")
    is_fine(page)


def test_switches_show_another_drawing(page: chromium.Page) -> None:
    title = "document.querySelector('#chart-accuracy .xtitle').textContent"
    assert page.run(title) == "rounds"
    page.click("[...document.querySelectorAll('#chart-accuracy button')].find(b => b.textContent === 'megabytes')")
    page.wait(f"{title}.startsWith('megabytes')")
    select = "document.querySelector('#chart-clients select')"
    notes = "document.querySelector('#chart-clients .note').textContent"
    first = page.run(notes)
    count = page.run(f"{select}.options.length")
    page.run(f"{select}.selectedIndex = {count - 1}; {select}.dispatchEvent(new Event('change'))")
    page.wait(f"{notes} !== {json.dumps(first)}")
    is_fine(page)


def test_the_numbers_are_downloaded(page: chromium.Page) -> None:
    catch = """window.got = ''; URL.createObjectURL = (b) => { b.text().then(t => { window.got = t }); return '#' };
        HTMLAnchorElement.prototype.click = function () { window.file = this.download }"""
    page.run(catch)
    page.click("document.querySelector('#chart-clients .csv')")
    page.wait("window.got")
    lines = page.run("window.got").splitlines()
    assert page.run("window.file") == "clients.csv"
    assert lines[0] == "method,client,local,global,personal,chosen,gain" and len(lines) == 1 + 2 * 2 * 4 - 2
    assert '"""><svg onload=alert(3)>"' in lines[1] or any('"""><svg' in line for line in lines)


@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_nothing_scrolls_sideways(browser: Browser, compared: Path, dark: bool) -> None:
    with browser.page(width=390, height=800, dark=dark) as page:
        page.open(compared)
        is_fine(page)
        assert page.run("document.documentElement.scrollWidth") <= 390
        ends = "[...document.querySelectorAll('.plot .main-svg')].map(s => s.getBoundingClientRect().right)"
        assert max(page.run(ends)) <= 390


def test_colours_follow_the_scheme_and_print_is_light(page: chromium.Page) -> None:
    ink = "getComputedStyle(document.querySelector('#chart-loss .xtitle')).fill"
    light, dark = "rgb(27, 27, 27)", "rgb(232, 232, 232)"
    assert page.run(ink) == light
    page.scheme(dark=True)
    page.wait(f"{ink} === '{dark}'")
    page.run("dispatchEvent(new Event('beforeprint'))")
    page.wait(f"{ink} === '{light}'")
    page.run("dispatchEvent(new Event('afterprint'))")
    page.wait(f"{ink} === '{dark}'")
    assert page.trouble() == []


# --- the live page ----------------------------------------------------------------------------------------------------


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """An empty folder, and the address of its live page."""
    with live_page(tmp_path) as port:
        yield tmp_path, f"http://127.0.0.1:{port}/"


def test_the_live_page_follows_a_run(browser: Browser, watched: tuple[Path, str]) -> None:
    folder, address = watched
    rounds = "(document.querySelector('#progress-table tbody td:nth-child(3)') || {}).textContent"
    points = "document.querySelectorAll('#chart-accuracy .scatterlayer .point').length"
    with browser.page() as page:
        page.open(address)
        assert "nothing to see yet" in page.run("document.title")
        with stop_in_round(2):
            sartor("run", *QUICK, "--rounds", 5, "--checkpoint-every", 1, "--out", folder)
        page.wait(f"{rounds} === '2' && {points} === 6")
        assert "Round 2 of 5" in page.run("document.getElementById('lead').textContent")
        page.run("window.same = 1")  # a page that is loaded anew has forgotten it
        good("run", "--resume", folder, "--quiet")
        page.wait(f"{rounds} === '5' && {points} === 15 && window.same === 1")
        assert "Complete" in page.run("document.getElementById('lead').textContent")
        assert page.trouble() == []
        own = [url for url in page.requests() if not url.startswith(address)]
        assert own == []


def test_the_live_page_of_a_comparison(browser: Browser, watched: tuple[Path, str]) -> None:
    folder, address = watched
    table = hospitals(folder / "x.csv", names=NASTY)
    with stop_in_round(1):
        asked = ("--methods", "flame,fedavg", "--seeds", "0", "--out", folder)
        sartor("compare", *QUICK, "--data", table, *OWN, *asked)
    states = "[...document.querySelectorAll('#progress-table tbody tr')].map(r => r.cells[1].textContent).join()"
    with browser.page(width=390) as page:
        page.open(address)
        page.wait(f"/^running,(waiting|running)$/.test({states})")  # with a core to spare two play at a time
        good("compare", *QUICK, "--data", table, *OWN, *asked, "--quiet")
        page.wait(f"{states} === 'complete,complete' && Object.values({MARKS}).every(n => n > 0)")
        assert page.trouble() == []
        assert [url for url in page.requests() if not url.startswith(address)] == []
        assert page.run("document.documentElement.scrollWidth") <= 390
