"""Each "stopped" of the threat model names a test, and that test is there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_what_is_said_to_be_stopped_is_tested() -> None:
    text = (TESTS.parent / "docs" / "threat-model.md").read_text(encoding="utf-8")
    sources = {path.name: path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")}
    everything = "\n".join(sources.values())
    rows = [line for line in text.splitlines() if re.search(r"\| stopped|turned away|\*\*not taken\*\*", line)]
    assert len(rows) > 12
    for line in rows:
        assert re.search(r"`[^`]*test_|BAD\[|the same test", line), line
    for file, name in re.findall(r"`(test_\w+\.py)::(test_\w+)`", text):
        assert f"def {name}(" in sources[file], name
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in everything, name
    for key in re.findall(r'BAD\["([^"]+)"\]', text):
        assert f'"{key}": (' in sources["test_bad_messages.py"], key
