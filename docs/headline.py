"""The tables of methods tuned alike, in docs/comparing.md: from what `make headline` has left.

    python docs/headline.py runs/headline

Intervals are Student's, 95%, over seeds. Seeds of a natural set cut the same clients' rows anew, so they are not
independent, and the intervals are too narrow.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy.stats import t as student

ROOT = Path(__file__).parent.parent
SETS = {
    "fashion-mnist": "Fashion-MNIST, 100 clients",
    "har": "HAR, 30 people",
    "heart": "heart disease, 4 hospitals",
}
Cells = dict[str, list[dict[str, Any]]]  # by method


def read(folder: Path) -> Cells:
    """The cells of all comparisons in a folder."""
    found: Cells = {}
    for path in sorted(folder.glob("compared*/compare.json")):
        for cell in json.loads(path.read_text(encoding="utf-8")):
            found.setdefault(cell["method"], []).append(cell)
    return found


def percent(values: list[float]) -> str:
    """The mean in percent, ± half of its interval."""
    if len(values) < 2:
        return f"{100 * mean(values):.1f}"
    half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return f"{100 * mean(values):.1f} ± {100 * half:.1f}"


def accuracy(cells: list[dict[str, Any]], model: str = "chosen") -> list[float]:
    return [c[model]["accuracy_mean"] for c in cells if c[model] is not None]


def points(gains: list[float]) -> str:
    text = percent(gains)
    return text.replace("-", "−") if text.startswith("-") else f"+{text}"


def table(found: Cells) -> str:
    """A row for each method, the best first."""
    alone = accuracy(found["local"])
    head = "| method | chosen, % | personal | global | worst tenth | points over `local` | gradients | MB |\n"
    lines = []
    for method in sorted(found, key=lambda m: -mean(accuracy(found[m]))):
        own = found[method]
        each = [percent(accuracy(own, m)) if accuracy(own, m) else "" for m in ("chosen", "personal", "global")]
        worst = f"{100 * mean(c['chosen']['accuracy_worst10'] for c in own):.1f}"
        gain = "" if method == "local" else points([a - b for a, b in zip(accuracy(own), alone, strict=True)])
        work = mean(c["gradients_per_client"]["total"] for c in own)
        sent = mean(c["bytes_up"] + c["bytes_down"] for c in own) / own[0]["clients"] / 1e6
        lines.append(f"| `{method}` | {' | '.join(each)} | {worst} | {gain} | {work:.0f} | {sent:.3g} |\n")
    return head + "|---|---|---|---|---|---|---|---|\n" + "".join(lines)


def short(found: dict[str, Cells]) -> str:
    """All sets beside each other: the chosen models."""
    methods = list(dict.fromkeys(m for cells in found.values() for m in cells))
    first = next(iter(found.values()))
    methods.sort(key=lambda m: -mean(accuracy(first[m])) if m in first else 0.0)
    text = "| method |" + "".join(f" {SETS[name]} |" for name in found) + "\n|---|" + "---|" * len(found) + "\n"
    for m in methods:
        text += f"| `{m}` |" + "".join(f" {percent(accuracy(c[m])) if m in c else ''} |" for c in found.values()) + "\n"
    return text


def put(page: Path, mark: str, text: str) -> None:
    """Write between two marks."""
    begin, end = f"<!-- {mark}: make headline -->\n", f"<!-- /{mark} -->\n"
    before, rest = page.read_text(encoding="utf-8").split(begin)
    page.write_text(before + begin + text + end + rest.split(end)[1], encoding="utf-8")


def main() -> None:
    folder = Path(sys.argv[1])
    found = {name: read(folder / name) for name in SETS if (folder / name).is_dir()}
    page = ROOT / "docs" / "comparing.md"
    put(page, "headline-short", short(found))
    whole = "".join(f"\n{SETS[name]}:\n\n{table(cells)}" for name, cells in found.items())
    put(page, "headline", whole.lstrip("\n"))


if __name__ == "__main__":
    main()
