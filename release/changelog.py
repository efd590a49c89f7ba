"""The section of CHANGELOG.md that has no date yet. The version itself is in one place, sartor/__init__.py.

python release/changelog.py date           the heading gets today's date; the section is printed: notes for a release
python release/changelog.py begin 0.2.0    after a release: a new section, and the version in __init__ and CITATION
"""

from __future__ import annotations

import datetime
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADING = re.compile(r"^## (\d+\.\d+\.\d+) - (unreleased|\d{4}-\d{2}-\d{2})\n", re.M)
VERSION = re.compile(r'^__version__ = "([^"]+)"', re.M)
CITED = re.compile(r"^version: .*$", re.M)


def version(root: Path = ROOT) -> str:
    found = VERSION.search((root / "sartor" / "__init__.py").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def sections(text: str) -> dict[str, tuple[str, str]]:
    """By version, the newest first: its date, or "unreleased", and what stands below its heading."""
    parts = HEADING.split(text)[1:]
    return {parts[i]: (parts[i + 1], parts[i + 2].strip()) for i in range(0, len(parts), 3)}


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def dated(root: Path, today: datetime.date) -> str:
    """Date the newest section, if it has no date, and return what it says."""
    path, ours = root / "CHANGELOG.md", version(root)
    text = path.read_text(encoding="utf-8")
    newest, (date, said) = next(iter(sections(text).items()))
    if newest != ours:
        raise SystemExit(f"CHANGELOG.md begins with {newest}, the code is {ours}; write the section {ours} first.")
    if not said:
        raise SystemExit(f"CHANGELOG.md says nothing about {ours}; write down what has changed.")
    if date == "unreleased":
        path.write_text(text.replace(f"## {ours} - unreleased\n", f"## {ours} - {today}\n", 1), encoding="utf-8")
    return said


def begun(root: Path, new: str) -> None:
    """Open the next version's section, and write its number where it is needed."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", new):
        raise SystemExit(f"a version is three numbers, as in 0.2.0; got {new!r}.")
    path, ours = root / "CHANGELOG.md", version(root)
    text = path.read_text(encoding="utf-8")
    if number(new) <= number(ours):
        raise SystemExit(f"the next version comes after {ours}; got {new}.")
    date, _ = sections(text)[ours]
    if date == "unreleased":
        raise SystemExit(f"{ours} has not been released: run make release first.")
    at = text.index(f"## {ours} - {date}\n")
    path.write_text(f"{text[:at]}## {new} - unreleased\n\n{text[at:]}", encoding="utf-8")
    code, cited = root / "sartor" / "__init__.py", root / "CITATION.cff"
    code.write_text(VERSION.sub(f'__version__ = "{new}"', code.read_text(encoding="utf-8")), encoding="utf-8")
    cited.write_text(CITED.sub(f"version: {new}", cited.read_text(encoding="utf-8"), count=1), encoding="utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["date"]:
            print(dated(ROOT, datetime.date.today()))
        case ["begin", new]:
            begun(ROOT, new)
        case _:
            sys.exit(__doc__)
