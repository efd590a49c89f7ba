"""The tables of methods on HAR in docs/models.md, and what is behind them in docs/har.json: from what `make har` left.

python docs/har.py runs/har
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
BEGIN, END = "<!-- har: make har -->\n", "<!-- /har -->\n"
NAMES = {"fedavg, norm": "FedBN: `fedavg --personal norm`"}
SCORES = ("accuracy_mean", "accuracy_worst10")


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """By method what was found on test data, with the settings that its tuning chose."""
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


def table(found: dict[str, dict[str, Any]]) -> str:
    """A row for each method, the best first."""
    text = "| method | chosen, % | personal | global | worst tenth | gradients | MB | settings |\n" + "|---" * 8 + "|\n"
    for name in sorted(found, key=lambda m: -found[m]["chosen"]["accuracy_mean"]):
        own = found[name]
        each = [f"{100 * own[m]['accuracy_mean']:.1f}" if own[m] else "" for m in ("chosen", "personal", "global")]
        set_to = ", ".join(f"{k}={v}" for k, v in own["settings"].items())
        cells = [NAMES.get(name, f"`{name}`"), *each, f"{100 * own['chosen']['accuracy_worst10']:.1f}"]
        cells += [f"{own['gradients']:.0f}", f"{own['megabytes']:.3g}", f"`{set_to}`" if set_to else "its defaults"]
        text += f"| {' | '.join(cells)} |\n"
    return text


def main() -> None:
    found = {model: read(Path(sys.argv[1]) / model) for model in ("cnn1d", "gru")}
    (DOCS / "har.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    text = ""
    for model, rows in found.items():
        if not rows:
            text += f"`{model}`: this part of `make har` has not been run to its end.\n"
            continue
        one = next(iter(rows.values()))
        size = f"{one['people']} people, {one['rounds']} rounds of {one['local_steps']} gradients"
        text += f"`{model}`, {size}, {one['budget']} trials each, seed {one['seed']}:\n\n{table(rows)}\n"
    page = DOCS / "models.md"
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    page.write_text(before + BEGIN + text.rstrip("\n") + "\n" + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
