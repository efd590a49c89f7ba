"""The README's Python runs, and says what it should."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def test_the_readme_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(code) == 1
    monkeypatch.chdir(tmp_path)
    exec(compile(code[0], "README.md", "exec"), {})
    assert "personal" in capsys.readouterr().out
    assert (tmp_path / "runs" / "flame" / "summary.json").exists()


def test_its_links_lead_somewhere() -> None:
    root = Path(__file__).parents[2]
    links = re.findall(r"\]\(([^):#]+)[)#]", (root / "README.md").read_text(encoding="utf-8"))
    assert "docs/methods/index.md" in links
    assert [link for link in links if not (root / link).exists()] == []
