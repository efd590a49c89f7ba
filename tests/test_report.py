"""report.html: self-contained, escaped, with a drawing for each chart."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from commandline import OWN, QUICK, good, hospitals

SCRIPT = "<script>alert(1)</script>"


class Page(HTMLParser):
    """The tags, attributes and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def _is_self_contained(html: str) -> Page:
    page = Page(html)
    assert not re.search(r"https?://|//\w|url\(|@import", html)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(page.tags)
    assert not {"src", "href", "onload", "onclick", "data"} & {name for name, _ in page.attributes}
    assert {"html", "title", "style", "body"} <= set(page.tags)
    return page


@pytest.mark.parametrize("method", ["flame", "fedavg", "local"])
def test_the_page_of_a_run(method: str, tmp_path: Path) -> None:
    good("run", *QUICK, "--method", method, "--evaluate-every", 1, "--out", tmp_path, "--quiet")
    html = (tmp_path / "report.html").read_text()
    page = _is_self_contained(html)
    rows = json.loads((tmp_path / "clients.json").read_text())
    models = [m for m in ("global", "personal", "chosen") if f"{m}_test_accuracy" in rows[0]]
    assert page.tags.count("svg") == 2
    assert page.tags.count("polyline") == len(models)
    assert html.count("<title>") == 1 + len(rows) * len(models)  # every mark says whose it is
    for row in rows:
        assert f"{row['chosen_test_accuracy']:.3f}" in page.text
    assert any(f'method = "{method}"' in text for text in page.text)


def test_what_a_client_is_called_is_no_html(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "<b>visits.csv", names=(SCRIPT, "a & b", "'\"><img src=x>"))
    good("run", *QUICK, "--data", table, *OWN, "--out", tmp_path / "a", "--quiet")
    html = (tmp_path / "a" / "report.html").read_text()
    page = Page(html)
    assert not {"script", "img", "b"} & set(page.tags) and "src" not in dict(page.attributes)
    assert SCRIPT in page.text and "a & b" in page.text  # as words, whole, in the table


def test_the_page_of_a_comparison(tmp_path: Path) -> None:
    good("compare", *QUICK, "--methods", "flame,fedavg,local", "--seeds", "0,1", "--out", tmp_path, "--quiet")
    page = _is_self_contained((tmp_path / "report.html").read_text())
    assert page.tags.count("svg") == 1
    for method in ("flame", "fedavg", "local"):
        found = [
            s["chosen"]["accuracy_mean"]
            for s in json.loads((tmp_path / "compare.json").read_text())
            if s["method"] == method
        ]
        assert any(text.startswith(f"{sum(found) / 2:.3f} ±") for text in page.text)
        assert any(f"[{method}]" in text or f"[{method}.solver]" in text for text in page.text)


def test_a_page_without_scores(tmp_path: Path) -> None:
    good("run", *QUICK, "--parts", "1,0,0", "--no-diagnostics", "--out", tmp_path, "--quiet")
    page = _is_self_contained((tmp_path / "report.html").read_text())
    assert "svg" not in page.tags and any("no test data" in text for text in page.text)


def test_a_bad_r2_does_not_break_the_drawing(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv", target="dose")
    good(
        "run",
        "--rounds",
        1,
        "--steps",
        1,
        "--lr",
        "1e-6",
        "--data",
        table,
        *OWN,
        "--parts",
        "0.9,0.05,0.05",
        "--out",
        tmp_path / "a",
        "--quiet",
    )
    assert min(r["personal_test_accuracy"] for r in json.loads((tmp_path / "a" / "clients.json").read_text())) < 0
    places = re.findall(r" c[xy]=(-?[\d.]+)", (tmp_path / "a" / "report.html").read_text())
    assert places and all(0 <= float(p) <= 1000 for p in places)
