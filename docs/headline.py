"""The table of methods tuned alike, in README.md and docs/comparing.md: from what `make headline` has left."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- headline: make headline -->\n", "<!-- /headline -->\n"


def table(cells: list[dict[str, Any]]) -> str:
    """A row for each method, the best first: means over seeds."""
    by_method: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        by_method.setdefault(cell["method"], []).append(cell)
    alone = mean(c["chosen"]["accuracy_mean"] for c in by_method["local"])
    rows = []
    for method, own in by_method.items():
        found = [c["chosen"]["accuracy_mean"] for c in own]
        worst = mean(c["chosen"]["accuracy_worst10"] for c in own)
        gain = round(100 * (mean(found) - alone), 1)
        said = f"{gain:+.1f}".replace("-", "−") if gain else "0.0"
        sent = mean(c["bytes_up"] + c["bytes_down"] for c in own) / own[0]["clients"] / 1e6
        spread = f" ± {100 * stdev(found):.1f}" if len(found) > 1 else ""
        line = f"| `{method}` | {100 * mean(found):.1f}{spread} | {100 * worst:.1f} | {said} | {sent:.3g} |"
        rows.append((-mean(found), line))
    head = "| method | accuracy, % | worst tenth of clients | points over `local` | MB per client |\n"
    return head + "|---|---|---|---|---|\n" + "".join(f"{line}\n" for _, line in sorted(rows))


def main() -> None:
    cells = json.loads((Path(sys.argv[1]) / "compare.json").read_text(encoding="utf-8"))
    for page in (ROOT / "README.md", ROOT / "docs" / "comparing.md"):
        before, rest = page.read_text(encoding="utf-8").split(BEGIN)
        page.write_text(before + BEGIN + table(cells) + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
