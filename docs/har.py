"""The tables of methods on HAR in docs/models.md, and what is behind them in docs/har.json: from what `make har` left.

    python docs/har.py runs/har

A part that was not run there stays as docs/har.json has it. Intervals are those of docs/headline.py, over seeds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from headline import percent

DOCS = Path(__file__).parent
BEGIN, END = "<!-- har: make har -->\n", "<!-- /har -->\n"
NAMES = {"fedavg, norm": "FedBN: `fedavg --personal norm`"}
SCORES = ("accuracy_mean", "accuracy_worst10")
Found = dict[str, dict[str, Any]]  # by method


def read(folder: Path) -> Found:
    """Of one seed: what was found on test data, with the settings that the tuning chose."""
    found = {}
    for path in sorted(folder.glob("compared*/compare.json")):
        part = path.parent.name.removeprefix("compared").strip("-")
        tuned = json.loads((folder / path.parent.name.replace("compared", "tuned") / "tune.json").read_text("utf-8"))
        for cell in json.loads(path.read_text(encoding="utf-8")):
            models = {m: cell[m] and {s: cell[m][s] for s in SCORES} for m in ("chosen", "personal", "global")}
            trials = tuned["methods"][cell["method"]]
            found[cell["method"] + (f", {part}" if part else "")] = models | {
                "gradients": cell["gradients_per_client"]["total"],
                "megabytes": (cell["bytes_up"] + cell["bytes_down"]) / cell["clients"] / 1e6,
                "settings": trials["best"]["settings"],
                "validation": [trial["score"] for trial in trials["trials"]],
                "people": cell["clients"],
                "rounds": cell["rounds"],
                "local_steps": cell["local_steps"],
                "seed": cell["seed"],
                "budget": tuned["budget"],
            }
    return found


def table(seeds: list[Found]) -> str:
    """A row for each method that every seed has, the best first."""

    def each(method: str, model: str, score: str = "accuracy_mean") -> list[float]:
        return [found[method][model][score] for found in seeds if found[method][model]]

    text = "| method | chosen, % | personal | global | worst tenth | gradients | MB | settings |\n" + "|---" * 8 + "|\n"
    everywhere = [m for m in seeds[0] if all(m in found for found in seeds)]
    for method in sorted(everywhere, key=lambda m: -mean(each(m, "chosen"))):
        scores = [each(method, model) for model in ("chosen", "personal", "global")]
        scores.append(each(method, "chosen", "accuracy_worst10"))
        own = seeds[0][method]
        said = [", ".join(f"{k}={v}" for k, v in found[method]["settings"].items()) for found in seeds]
        cells = [NAMES.get(method, f"`{method}`"), *(percent(values) if values else "" for values in scores)]
        cells += [f"{own['gradients']:.0f}", f"{own['megabytes']:.3g}"]
        cells.append("; ".join(f"`{settings}`" if settings else "its defaults" for settings in said))
        text += f"| {' | '.join(cells)} |\n"
    return text


def main() -> None:
    stored = DOCS / "har.json"
    found: dict[str, dict[str, Found]] = json.loads(stored.read_text(encoding="utf-8"))  # by model and seed
    for folder in sorted(Path(sys.argv[1]).glob("*/*/")):
        if (rows := read(folder)) and folder.parent.name in found:
            found[folder.parent.name][folder.name] = rows
    stored.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    text = ""
    for model, by_seed in found.items():
        if not by_seed:
            text += f"`{model}`: this part of `make har` has not been run to its end.\n\n"
            continue
        seeds = [by_seed[seed] for seed in sorted(by_seed, key=int)]
        one = next(iter(seeds[0].values()))
        size = f"{one['people']} people, {one['rounds']} rounds of {one['local_steps']} gradients"
        which = f"seed{'s' * (len(seeds) > 1)} {', '.join(sorted(by_seed, key=int))}"
        text += f"`{model}`, {size}, {one['budget']} trials each, {which}:\n\n{table(seeds)}\n"
    page = DOCS / "models.md"
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    page.write_text(before + BEGIN + text.rstrip("\n") + "\n" + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
