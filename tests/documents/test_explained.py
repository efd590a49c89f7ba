"""Refusals point to headings that exist, and every heading explains some refusal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from commandline import hospitals, refused

from sartor.errors import EXPLAINED, Topic, see

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / EXPLAINED).read_text(encoding="utf-8")
TABLE = ("--data", "patients.csv", "--target", "outcome", "--client-key", "hospital")


def anchor(heading: str) -> str:
    """As the documentation's builder and most viewers of Markdown make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def test_every_topic_is_a_heading_and_every_heading_a_topic_that_some_message_names() -> None:
    topics = set(get_args(Topic))
    assert {anchor(h) for h in re.findall(r"^## (.+)$", PAGE, re.M)} == topics
    assert see("memory") == " See docs/troubleshooting.md#memory."
    code = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "sartor").rglob("*.py"))
    assert set(re.findall(r"""\bsee\(\s*["']([\w-]+)["']\s*\)""", code)) == topics


@pytest.mark.parametrize(
    "words, topic",
    [
        (["--data", "patients.csv"], "the-target"),
        (["--data", "patients.csv", "--target", "outcom"], "the-target"),
        (["--data", "latin.csv", "--target", "a"], "encoding"),
        (["--data", "patients.csv", "--target", "hospital", "--client-key", "hospital"], "the-target"),
        (["--data", "patients.csv", "--target", "outcome", "--client-key", "age"], "small-clients"),
        ([*TABLE, "--clients", 9], "small-clients"),
        (["--data", "patients.xlsx", "--target", "outcome"], "data-sets"),
        (["--method", "flam"], "names-and-settings"),
        (["--set", "lamda=1"], "names-and-settings"),
        (["--model", "resnet"], "names-and-settings"),
        (["--attack", "signflip", "--attackers", "0.2"], "names-and-settings"),
        (["--clients", 400, "--partition", "labels=2"], "small-clients"),
    ],
)
def test_a_refusal_ends_with_its_page(
    words: list[object], topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hospitals(tmp_path / "patients.csv")
    (tmp_path / "latin.csv").write_bytes("a,b\nné,1\n".encode("latin-1"))
    assert refused("run", *words).endswith(f"See docs/troubleshooting.md#{topic}.")
