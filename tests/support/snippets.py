"""The code in documents."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(path: str, kind: str = "python") -> list[str]:
    """The blocks of code of a kind; between two blocks is text."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / path).read_text(encoding="utf-8"), re.S | re.M)
    return [code for its, code in found if its == kind]
