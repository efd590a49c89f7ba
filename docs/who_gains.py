"""The README's picture, from a comparison: every client's test accuracy against training alone.

make demo
python docs/who_gains.py runs/demo     # writes docs/who-gains.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

SHOWN = ("fedavg-ft", "flame", "pfedme", "ditto", "fedavg")  # some lines of the demo's table
GAIN, LOSS, SAME = "#1f6f8b", "#c0392b", "#999999"


def chosen(folder: Path, method: str) -> dict[tuple[int, int], float]:
    """The chosen model's test accuracy in percent by seed and client."""
    found = {}
    for path in folder.glob(f"{method}-[0-9]*/clients.json"):
        for row in json.loads(path.read_text(encoding="utf-8")):
            found[int(path.parent.name.rpartition("-")[2]), row["client"]] = 100 * row[f"{row['chosen']}_test_accuracy"]
    return found


def main(folder: Path) -> None:
    alone = chosen(folder, "local")
    figure, axes = plt.subplots(figsize=(8, 3.4), dpi=110)
    for at, method in enumerate(SHOWN):
        own = chosen(folder, method)
        gain = np.array([own[key] - alone[key] for key in sorted(alone)])
        place = len(SHOWN) - at + np.linspace(-0.28, 0.28, len(gain))
        colours = [GAIN if g > 0 else LOSS if g < 0 else SAME for g in gain]
        axes.scatter(np.sort(gain), place, s=26, c=[colours[i] for i in np.argsort(gain)], alpha=0.85, linewidths=0)
        words = f"{(gain > 0).sum()} gain, {(gain < 0).sum()} lose"
        axes.text(1.02, len(SHOWN) - at, words, transform=axes.get_yaxis_transform(), va="center", fontsize=10)
    axes.axvline(0, color="black", linewidth=1)
    axes.set_yticks(range(1, len(SHOWN) + 1), SHOWN[::-1], fontsize=11)
    axes.set_xlabel("points of test accuracy against training alone (a dot is a client; left: it loses)", fontsize=10)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    seeds, clients = (len({key[i] for key in alone}) for i in (0, 1))
    title = f"Who gains and who loses by federating? The demo: {clients} clients, {seeds} seeds"
    axes.set_title(title, fontsize=12, loc="left")
    figure.tight_layout()
    figure.savefig(Path(__file__).with_name("who-gains.png"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
