"""Every notebook runs from start to end, in an empty folder; those in the repository keep what they printed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

from sartor import data

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
NEEDS = {"adapters_shakespeare": "peft", "federation": "nvflare", "compare_and_attack": "matplotlib"}


@pytest.fixture(scope="module")
def notebooks() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "docs"))
    yield importlib.import_module("notebooks")
    sys.path.remove(str(ROOT / "docs"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_what_is_kept_is_small_executed_and_installs_nothing(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    cells = [c for c in book.cells if c.cell_type == "code"]
    assert cells[0].source.count("%pip install") == 1 and 'find_spec("sartor") is None' in cells[0].source
    assert [c.execution_count for c in cells] == list(range(1, len(cells) + 1)), "run docs/notebooks.py"
    outputs = [o for c in cells for o in c.outputs]
    assert all(o.output_type != "error" for o in outputs) and not cells[0].outputs
    assert path.stat().st_size < 40_000
    assert not any(word in path.read_text(encoding="utf-8") for word in ("/tmp/", "/home/", "site-packages"))


def test_the_pages_name_every_notebook() -> None:
    page, readme = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/notebooks.md", "README.md"))
    assert len(NOTEBOOKS) == 5
    assert all(f"`{p.name}`" in page and f"examples/{p.name}" in readme for p in NOTEBOOKS)


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, notebooks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that fails raises, also one of commands (%%bash)."""
    needed = NEEDS.get(path.stem)
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    if path.stem == "adapters_shakespeare" and data.find("shakespeare") is None:
        pytest.skip("Shakespeare's text is not at hand: put it where sartor doctor says")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    book = notebooks.executed(path, tmp_path)
    said = "".join(o.get("text", "") for c in book.cells for o in c.get("outputs", []))
    assert said and "Traceback" not in said
