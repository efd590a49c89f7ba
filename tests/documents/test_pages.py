"""The documentation agrees with the code: pages are up to date and can be reached, copied numbers are the originals."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

import sartor as st
from sartor.cli import app
from sartor.papers.reproduce import document

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def fill() -> Iterator[ModuleType]:
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module("fill")
    sys.path.remove(str(DOCS))


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def rows(text: str) -> dict[str, list[str]]:
    """The rows of all tables by what stands in backticks in their first cell."""
    found = {}
    for line in text.splitlines():
        cells = [c.strip() for c in line.strip()[1:-1].split("|")]
        if line.startswith("|"):
            found.update({name: cells[1:] for name in re.findall(r"`([^`]+)`", cells[0]) if name not in found})
    return found


def test_every_method_has_a_page_and_every_setting_its_words(fill: ModuleType) -> None:
    assert fill.complaints() == []


def test_the_pages_say_what_the_code_says(fill: ModuleType) -> None:
    assert fill.out_of_date() == [], "run: python docs/fill.py"


def test_a_changed_default_is_noticed(fill: ModuleType) -> None:
    text = read("methods/flame.md")
    assert "| `lam` | `0.3` |" in text
    assert fill.filled(text.replace("| `lam` | `0.3` |", "| `lam` | `0.1` |"), ["flame"]) == text


def test_the_page_on_real_clients_is_made_of_what_is_stored(fill: ModuleType) -> None:
    natural = importlib.import_module("natural")
    assert natural.table(natural.read(DOCS)) in read("natural.md"), "run: python docs/natural.py"


def test_every_page_can_be_reached() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = {
        m for line in nav.splitlines() if not line.strip().startswith("#") for m in re.findall(r"[\w/-]+\.md", line)
    }
    assert named == {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")}


def test_every_public_name_is_in_the_reference() -> None:
    text = "".join(p.read_text(encoding="utf-8") for folder in ("api", "methods") for p in (DOCS / folder).glob("*.md"))
    assert [name for name in st.__all__ if not re.search(rf"\b{name}\b", text)] == []


def test_options_in_the_pages_exist() -> None:
    """Every --option of a `sartor run` or `compare` line in a page is one that the command has."""
    runner, seen = CliRunner(), 0
    for command in ("run", "compare", "predict", "tune", "reproduce", "doctor"):
        has = set(re.findall(r"--[a-z][a-z-]*", runner.invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output))
        for page in [*DOCS.rglob("*.md"), ROOT / "README.md"]:
            text = page.read_text(encoding="utf-8").replace("\\\n", " ")
            for line in re.findall(rf"sartor {command} ([^\n`]*)", text):
                asked = set(re.findall(r"(?<=\s)--[a-z][a-z-]*", f" {line.split('   #')[0]}"))
                assert asked <= has, f"{page.name}: {command} has no {asked - has}"
                seen += len(asked)
    assert seen > 100


def test_numbers_from_flame_s_table_are_the_stored_ones() -> None:
    """choosing-a-method.md tells the global models with two labels a client, and what skews of size and quality do."""
    table = document.stored("flame-table3", "full")
    assert table is not None
    ours = {(c["dataset"], c["partition"], c["method"], c["model"]): c["ours"] for c in table["cells"]}
    ditto, pfedme, flame = (
        [f"{ours[data, 'labels(k=2)', method, 'global']:.2f}" for data in ("mnist", "fashion-mnist")]
        for method in ("ditto", "pfedme", "flame")
    )
    page = " ".join(read("choosing-a-method.md").split())
    assert pfedme == flame
    assert f"had {ditto[0]} on MNIST and {ditto[1]} on Fashion-MNIST" in page
    assert f"pFedMe's and FLAME's {flame[0]} and {flame[1]}" in page
    for data in ("mnist", "fashion-mnist"):
        for partition in ("noise(sigma=0.1)", "quantity(beta=0.5)"):
            assert ours[data, partition, "flame", "global"] > ours[data, partition, "flame", "personal"]


def test_numbers_from_flame_s_attacks_are_the_stored_ones() -> None:
    table = document.stored("flame-robustness", "full")
    assert table is not None
    ours = {(c["method"], c["attack"], c["model"]): f"{c['ours']:.2f}" for c in table["cells"] if c["ours"]}
    crude = ("same-value", "sign-flip", "gaussian")
    personal = sorted(ours[method, attack, "personal"] for method in ("flame", "pfedme", "ditto") for attack in crude)
    page = " ".join(read("choosing-a-method.md").split())
    (kept,) = {ours["fedavg", attack, "global"] for attack in crude}
    assert f"multi-Krum keeps {kept} under same-value, sign-flip and Gaussian" in page
    assert f"falls to {ours['fedavg', 'label-poison', 'global']} under poisoned labels" in page
    assert f"Ditto's personal models keep {ours['ditto', 'label-poison', 'personal']}." in page
    assert f"under the three: between {personal[0]} and {personal[-1]}." in page


def test_numbers_that_are_copied_are_the_originals() -> None:
    """choosing-a-method.md shows chosen accuracies without privacy from privacy.md, and bytes from compression.md."""
    page = read("choosing-a-method.md")
    copied = rows(page[page.index("## Does federating pay") : page.index("## How different")])
    three, six = (rows(part) for part in re.split(r"\| 6 labels each", read("privacy.md").split("| 3 labels each")[1]))
    for name in ("local", "fedavg", "fedavg-ft", "ditto", "pfedme", "flame"):
        whole = [table[name][0].split("/")[-1].strip() for table in (three, six)]
        assert [value.strip("*") for value in copied[name]] == whole
    sent = rows(page[page.index("## What must be sent") : page.index("## Will there be")])
    original = rows(read("compression.md").split("## Lp-Proj's communication table")[1])
    for name in ("fedavg", "fedavg+qsgd(s=16)", "lp-proj-1"):
        whole = [original[name][0], original[name][3]]
        assert [v.replace(",", "") for v in sent[name]] == [v.replace(",", "") for v in whole]


def test_whatever_lies_in_the_package_is_in_the_wheel() -> None:
    """Files other than code are named in pyproject.toml's package-data; make test-wheel looks at the wheel itself."""
    given = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]
    covered = {p for pattern in given["sartor"] for p in (ROOT / "sartor").glob(pattern)}
    there = {p for p in (ROOT / "sartor").rglob("*.*") if p.suffix != ".py" and "__pycache__" not in p.parts}
    assert there - covered == set()
