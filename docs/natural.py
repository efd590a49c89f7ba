"""The table and the figure of docs/natural.md, from docs/natural.json: what `sartor bench natural` has left.

python docs/natural.py runs/natural     # takes its natural.json first
python docs/natural.py                  # the page again, from what is stored
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from sartor.storage import write_json
from sartor.study.natural import LINEAR, Benched, Score, verdicts, with_error

DOCS = Path(__file__).parent
BEGIN, END = "<!-- natural: sartor bench natural -->\n", "<!-- /natural -->\n"


def read(folder: Path) -> dict[str, Benched]:
    """What was found, by set."""
    found = {}
    for name, on in json.loads((folder / "natural.json").read_text(encoding="utf-8")).items():
        made = Benched(name, on, on["metric"], on["clients"], on["rows"])
        made.scores = {s: Score(s, v["federated"], v["each"]) for s, v in on["scores"].items()}
        made.recommended, made.seconds, made.against_local = on["recommended"], on["seconds"], on["against_local"]
        found[name] = made
    return found


def table(found: dict[str, Benched]) -> str:
    """A row for each candidate and reference, a column for each set; then what was recommended and how that did."""
    names = list(dict.fromkeys(s for on in found.values() for s in on.scores))
    federated = {s.name: s.federated for on in found.values() for s in on.scores.values()}
    names.sort(key=lambda name: (name != "advised", not federated[name]))
    text = "| |" + "".join(f" {on.about['title']}, {on.metric} |" for on in found.values()) + "\n"
    text += "|---|" + "---|" * len(found) + "\n"
    for name in names:
        said = "**advised**" if name == "advised" else f"`{name}`" if federated[name] else f"{name} (not federated)"
        cells = [on.scores.get(name) for on in found.values()]
        text += f"| {said} |" + "".join(f" {_cell(c)} |" for c in cells) + "\n"
    text += "\n| set | recommended | over the best linear reference | over the best candidate | rank | seconds |\n"
    text += "|---|---|---|---|---|---|\n"
    for name, said in verdicts(found).items():
        on = found[name]
        took = f"{min(on.seconds):.0f} to {max(on.seconds):.0f}"
        which = ", ".join(f"`{r}` {on.recommended.count(r)}×" for r in dict.fromkeys(on.recommended))
        linear = f"{_over(said['over_best_linear'])} ({said['best_linear']})"
        best = f"{_over(said['over_best_candidate'])} (`{said['best_candidate']}`)"
        text += f"| {on.about['title']} | {which} | {linear} | {best} | {said['rank']} of {said['of']} | {took} |\n"
    notes = [f"- {on.about['title']}: {a}." for on in found.values() for a in on.about.get("anchors", ())]
    return text + ("\nPublished:\n\n" + "\n".join(notes) + "\n" if notes else "")


def _cell(score: Score | None) -> str:
    return "" if score is None else with_error(f"{score.mean:.3f}", score.error)


def _over(found: dict[str, Any]) -> str:
    return with_error(f"{found['mean']:+.3f}", found["standard_error"]).replace("-", "−")


def figure(found: dict[str, Benched], path: Path) -> None:
    """For each set the scores of all, the advised marked: federated candidates, linear references, trees."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(8, 0.8 + 0.9 * len(found)), layout="constrained")
    FigureCanvasAgg(made)
    for i, (axes, on) in enumerate(zip(made.subplots(len(found), 1, squeeze=False)[:, 0], found.values(), strict=True)):
        kinds = {
            "federated candidates": ([s.mean for s in on.scores.values() if s.federated], "o", "#7a7a7a", 24),
            "linear references": ([on.scores[s].mean for s in LINEAR if s in on.scores], "|", "#1f6fb4", 160),
            "trees": ([s.mean for s in on.scores.values() if "trees" in s.name], "x", "#a0522d", 36),
            "advised": ([on.scores["advised"].mean], "D", "#c1121f", 44),
        }
        for label, (values, marker, colour, size) in kinds.items():
            axes.scatter(values, [0] * len(values), marker=marker, s=size, color=colour, label=label, zorder=3)
        ours = on.scores["advised"]
        axes.errorbar([ours.mean], [0], xerr=[ours.error], color="#c1121f", zorder=2)
        axes.set_yticks([])
        axes.set_title(f"{on.about['title']} ({on.metric})", fontsize=9, loc="left")
        axes.spines[["top", "left", "right"]].set_visible(False)
        if i == 0:
            axes.legend(fontsize=7, ncols=4, frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    made.savefig(path, dpi=110)


def main() -> None:
    if len(sys.argv) > 1:
        write_json(DOCS / "natural.json", json.loads((Path(sys.argv[1]) / "natural.json").read_text(encoding="utf-8")))
    found = read(DOCS)
    page = DOCS / "natural.md"
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    page.write_text(before + BEGIN + table(found) + END + rest.split(END)[1], encoding="utf-8")
    figure(found, DOCS / "natural.png")


if __name__ == "__main__":
    main()
