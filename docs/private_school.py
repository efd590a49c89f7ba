"""The table of School under patient-level privacy in docs/privacy.md: from what `make private-school` has left.

    python docs/private_school.py runs/private-school

Intervals are those of docs/headline.py, over seeds that cut the same schools' rows anew: too narrow.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean
from typing import Any

from headline import percent, read

PAGE = Path(__file__).parent / "privacy.md"
BEGIN, END = "<!-- school: make private-school -->\n", "<!-- /school -->\n"
PUBLISHED = {"local": 0.02628, "fedavg": 0.02564, "mr-mtl": 0.02394}  # Liu et al. 2022, School, ε = 6


def errors(cells: list[dict[str, Any]], model: str) -> list[float]:
    """For each seed the mean over schools of the squared error, as a share of the variance of all pupils' scores."""
    return [2 * c[model]["loss_mean"] for c in cells if c[model] is not None]


def main() -> None:
    found = read(Path(sys.argv[1]))
    text = "| method | personal | global | chosen | published |\n|---|---|---|---|---|\n"
    for method in sorted(found, key=lambda m: mean(errors(found[m], "chosen"))):
        each = [errors(found[method], model) for model in ("personal", "global", "chosen")]
        cells = [percent(values) if values else "" for values in each]
        text += f"| `{method}` | {' | '.join(cells)} | {PUBLISHED.get(method, '')} |\n"
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + text + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
