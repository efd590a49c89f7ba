"""The version is in one place, and `make release` and `make next` write the changelog as they say."""

from __future__ import annotations

import datetime
import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import sartor

ROOT = Path(__file__).parents[2]
DAY = datetime.date(2027, 3, 1)


@pytest.fixture(scope="module")
def changelog() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "release"))
    yield importlib.import_module("changelog")
    sys.path.remove(str(ROOT / "release"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "sartor").mkdir()
    for name in ("CHANGELOG.md", "CITATION.cff", "sartor/__init__.py"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_version_is_said_once(changelog: ModuleType) -> None:
    newest = next(iter(changelog.sections((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))))
    cited = changelog.CITED.findall((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert changelog.version() == sartor.__version__ == newest
    assert cited == [f"version: {sartor.__version__}"]
    assert '\nversion = "' not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_a_release_dates_its_section_and_the_next_one_begins(changelog: ModuleType, copy: Path) -> None:
    path = copy / "CHANGELOG.md"
    text = f"# Log\n\n## {sartor.__version__} - unreleased\n\n### Added\n\n- Much.\n\n## 0.0.9 - 2026-01-02\n\n- Old.\n"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit, match="has not been released"):
        changelog.begun(copy, "9.0.0")
    assert changelog.dated(copy, DAY) == "### Added\n\n- Much."
    assert path.read_text(encoding="utf-8") == text.replace("- unreleased", "- 2027-03-01")
    assert changelog.dated(copy, datetime.date(2028, 1, 1)) and "2028" not in path.read_text(encoding="utf-8")
    for wrong, said in (("0.0.9", "comes after"), ("9.0", "three numbers")):
        with pytest.raises(SystemExit, match=said):
            changelog.begun(copy, wrong)
    changelog.begun(copy, "9.0.0")
    found = changelog.sections(path.read_text(encoding="utf-8"))
    assert list(found) == ["9.0.0", sartor.__version__, "0.0.9"] and found["9.0.0"] == ("unreleased", "")
    assert changelog.version(copy) == "9.0.0"
    assert "version: 9.0.0\n" in (copy / "CITATION.cff").read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="says nothing about 9"):
        changelog.dated(copy, DAY)
