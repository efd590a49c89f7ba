"""Reading a page as a browser would: its tags, its text, its scripts and what is behind its charts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from sartor.report import live


@contextmanager
def live_page(folder: Path) -> Iterator[int]:
    """The port on which a folder's live page is served meanwhile."""
    made = live.serve(folder)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made.server_port
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


class Page(HTMLParser):
    """The tags, attributes, text, scripts and charts of a page, and what lies behind its long tables."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.charts: dict[str, dict[str, Any]] = {}
        self.tables: dict[str, dict[str, Any]] = {}
        self.style = ""
        self._inside, self._figure, self._table = "", "", ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        given = dict(attrs)
        self._figure = given.get("data-name") or self._figure
        self._table = given.get("data-table") or ""
        self._inside = tag if tag != "script" else given.get("type") or "code"
        if self._inside == "code":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "code":
            self.scripts[-1] += data
        elif self._inside == "application/json":
            (self.tables if self._table else self.charts)[self._table or self._figure] = json.loads(data)
        elif self._inside == "style":
            self.style += data
        else:
            self.text.append(data)

    def policy(self) -> dict[str, str]:
        rules = next(v or "" for k, v in self.attributes if k == "content" and v and v.startswith("default-src"))
        return dict(rule.strip().split(" ", 1) for rule in rules.split(";"))

    def is_self_contained(self) -> None:
        """Assert that nothing is asked for, and that no script runs but the page's own."""
        links = [v or "" for k, v in self.attributes if k in ("href", "src", "action", "data", "srcset", "poster")]
        assert all(link.startswith(("#", "data:")) for link in links), links
        assert not [k for k, _ in self.attributes if k.startswith("on")]
        assert not {"iframe", "object", "embed", "img", "base", "form"} & set(self.tags)
        policy = self.policy()
        assert policy["default-src"] == "'none'"
        digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in self.scripts]
        assert policy["script-src"].split() == [f"'sha256-{d}'" for d in digests]
        assert not re.search(r"url\(|@import", self.style)

    def drawn(self, name: str) -> list[list[dict[str, Any]]]:
        """The traces of each variant of a chart, of which none is empty."""
        chart = self.charts[name]
        found = [variant["data"] for variant in chart["variants"].values()]
        assert found and all(data for data in found), name
        for data in found:
            for trace in data:
                assert len(trace["x"]) > 0 and len(trace.get("y", trace.get("z"))) > 0, name
        values = 1
        for switch in chart["switches"]:
            values *= len(switch["values"])
        assert len(found) == values, name  # every choice has its drawing
        assert chart["table"]["rows"] and all(len(r) == len(chart["table"]["head"]) for r in chart["table"]["rows"])
        return found
