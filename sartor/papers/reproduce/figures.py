"""The figure of an experiment as PNG (with matplotlib, the extra `plots`): curves under attack, accuracy against the
variance of losses, curves over rounds, weights between clients, or the paper's numbers against ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...report.chart_style import PNG_COLOURS, PNG_MARKS, frame, new_figure, panel_grid, save_png
from .cells import UNITS
from .table import ColumnRuns, Reproduction

Cells = Sequence[Mapping[str, Any]]
_MOST = 12  # panels


def draw(path: Path, reproduction: Reproduction, table: Mapping[str, Any]) -> bool | None:
    """Write the figure; None where the experiment has none or nothing is there to draw, False without matplotlib."""
    kind = reproduction.experiment.figure
    good = [c for c in table["cells"] if c["ours"] is not None or c["ours_authors"] is not None]
    if kind is None or not good:
        return None
    figure = new_figure(dpi=120, layout="constrained")
    if figure is None:
        return False
    makers: dict[str, Callable[[Any], bool]] = {
        "agreement": lambda f: _agreement(f, good),
        "robustness": lambda f: _robustness(f, good),
        "fairness": lambda f: _fairness(f, good),
        "rounds": lambda f: _rounds(f, reproduction, "training", "loss"),
        "accuracy": lambda f: _rounds(f, reproduction, "accuracy", "accuracy"),
        "weights": lambda f: _weights(f, reproduction),
    }
    if not makers[kind](figure):
        return None
    save_png(figure, path)
    return True


def _panels(figure: Any, titles: Sequence[str]) -> list[Any]:
    wide, deep = panel_grid(len(titles))
    figure.set_size_inches(4.4 * wide, 3.4 * deep + 0.6)
    axes = list(figure.subplots(deep, wide, squeeze=False).flat)
    for one, title in zip(axes, titles, strict=False):
        frame(one, title, 9, color="#d8d8d8", linewidth=0.6)
    for one in axes[len(titles) :]:
        one.set_visible(False)
    return axes[: len(titles)]


def _look(names: Sequence[str], name: str) -> dict[str, Any]:
    at = names.index(name)
    return {"color": PNG_COLOURS[at % len(PNG_COLOURS)], "marker": PNG_MARKS[at // len(PNG_COLOURS) % len(PNG_MARKS)]}


def _legend(figure: Any, axes: Sequence[Any]) -> None:
    handles = {label: h for a in axes for h, label in zip(*a.get_legend_handles_labels(), strict=True)}
    if not handles:
        return
    look = {"loc": "outside lower center", "fontsize": 8, "frameon": False}
    for columns in (4, 3, 2, 1):  # as many as fit
        legend = figure.legend(handles.values(), handles.keys(), ncols=columns, **look)
        figure.draw_without_rendering()
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def _entrant(c: Mapping[str, Any]) -> str:
    rule = c.get("aggregator")
    return f"{c['method']}{f'+{rule}' if rule and rule != 'mean' else ''}, {c['model']}"


def _agreement(figure: Any, cells: Cells) -> bool:
    """Every printed number against ours, as written and with the authors' switches."""
    there = [c for c in cells if c["paper"] is not None and c["unit"] != "bytes"]
    if not there:
        return False
    columns = [("as written", "ours"), ("authors' switches", "ours_authors")]
    columns = [(t, k) for t, k in columns if any(c[k] is not None for c in there)]
    names = list(dict.fromkeys(_entrant(c) for c in there))
    axes = _panels(figure, [t for t, _ in columns])
    for a, (_, key) in zip(axes, columns, strict=True):
        known = [c for c in there if c[key] is not None]
        low = min(min(c["paper"], c[key]) for c in known)
        high = max(max(c["paper"], c[key]) for c in known)
        a.plot([low, high], [low, high], color="#888888", linewidth=1)
        for name in names:
            mine = [c for c in known if _entrant(c) == name]
            a.scatter([c["paper"] for c in mine], [c[key] for c in mine], s=14, label=name, **_look(names, name))
        a.set_xlabel("paper")
        a.set_ylabel("ours")
    _legend(figure, axes)
    return True


def _robustness(figure: Any, cells: Cells) -> bool:
    """Accuracy of benign clients against the share of attackers, a panel for each attack, data set and partition."""
    attacks = list(dict.fromkeys(c["attack"] for c in cells if c["attack"] != "none"))
    places = list(dict.fromkeys((c["dataset"], c["partition"]) for c in cells))
    panels = [(p, a) for p in places for a in attacks][:_MOST]
    if not panels:
        return False
    names = list(dict.fromkeys(_entrant(c) for c in cells))
    axes = _panels(figure, [f"{d}, {p}: {attack}" for (d, p), attack in panels])
    for a, (place, attack) in zip(axes, panels, strict=True):
        for name in names:
            mine = [c for c in cells if (c["dataset"], c["partition"]) == place and _entrant(c) == name]
            points = [(c["attackers"], c["ours"]) for c in mine if c["attack"] in (attack, "none")]
            known = sorted(p for p in points if p[1] is not None)
            if known:
                a.plot(*zip(*known, strict=True), label=name, markersize=4, linewidth=1.2, **_look(names, name))
        a.set_xlabel("share of attackers")
        a.set_ylabel("accuracy, benign clients")
    _legend(figure, axes)
    return True


def _fairness(figure: Any, cells: Cells) -> bool:
    """Mean accuracy against the variance of losses over clients, a panel for each data set and partition: as written,
    or with the authors' switches where more of these has been run."""
    panels: list[tuple[str, str, list[Mapping[str, Any]]]] = []
    for dataset, partition in dict.fromkeys((c["dataset"], c["partition"]) for c in cells):
        here = [c for c in cells if (c["dataset"], c["partition"]) == (dataset, partition)]
        known = {which: [c for c in here if c[f"loss_var{which}"] is not None] for which in ("", "_authors")}
        which = max(known, key=lambda w: len(known[w]))
        title = ", ".join(filter(None, [dataset, partition, "authors' switches" if which else None]))
        panels += [(title, which, known[which])] if known[which] else []
    if not panels:
        return False
    panels = panels[:_MOST]
    names = list(dict.fromkeys(_entrant(c) for _, _, there in panels for c in there))
    axes = _panels(figure, [title for title, _, _ in panels])
    for a, (_, which, there) in zip(axes, panels, strict=True):
        for c in there:
            accuracy = c[f"ours{which}"] / UNITS[c["unit"]]  # points that the text gives may be in percent
            a.scatter(c[f"loss_var{which}"], accuracy, s=24, label=_entrant(c), **_look(names, _entrant(c)))
        a.set_xlabel("variance of test losses over clients")
        a.set_ylabel("mean accuracy")
        a.locator_params(axis="x", nbins=5)
    _legend(figure, axes)
    return True


def _finished(reproduction: Reproduction) -> list[tuple[ColumnRuns, dict[str, Any]]]:
    """The first finished run of each column that follows the paper."""
    found = []
    for (_, authors), entry in reproduction.entries.items():
        kept = [reproduction.store.get(j.key) for j in entry.jobs]
        good = [r for r in kept if r is not None and "error" not in r]
        if good and not authors:
            found.append((entry, good[0]))
    return found


def _rounds(figure: Any, reproduction: Reproduction, wanted: str, instead: str) -> bool:
    """A column of the history over rounds (first seed), or another where that was not computed; a panel for each data
    set, place in the paper and model."""
    finished = _finished(reproduction)
    panels = list(
        dict.fromkeys(
            (e.column.cell.keys["dataset"], e.column.cell.where, model)
            for e, run in finished
            for model in ("personal", "global")
            if model in run["models"]
        )
    )[:_MOST]
    if not panels:
        return False
    shown = wanted if all(wanted in m for _, run in finished for m in _two(run).values()) else instead
    names = list(dict.fromkeys(_keys(e) for e, _ in finished))
    axes = _panels(figure, [", ".join(p) for p in panels])
    for a, (dataset, where, model) in zip(axes, panels, strict=True):
        for e, run in finished:
            cell = e.column.cell
            if (cell.keys["dataset"], cell.where) == (dataset, where) and model in run["models"]:
                look = _look(names, _keys(e)) | {"marker": ""}
                a.plot(run["rounds"], run["models"][model][shown], label=_keys(e), linewidth=1.2, **look)
        a.set_xlabel("round")
        a.set_ylabel({"training": "training loss", "loss": "test loss", "accuracy": "test accuracy"}[shown])
    _legend(figure, axes)
    return True


def _two(run: Mapping[str, Any]) -> dict[str, Any]:
    """The personal and the global model's columns, where there are such."""
    return {k: v for k, v in run["models"].items() if k in ("personal", "global")}


def _keys(entry: ColumnRuns) -> str:
    keys = entry.column.cell.keys
    return ", ".join(
        f"{v}" if k == "method" else f"{k} = {v}" for k, v in keys.items() if k not in ("dataset", "partition")
    )


def _weights(figure: Any, reproduction: Reproduction) -> bool:
    """ξ, how much of client j's model client i is sent; without the diagonal, which would outshine it."""
    there = [(e, run) for e, run in _finished(reproduction) if "weights" in run][:_MOST]
    if not there:
        return False
    axes = _panels(figure, [f"{e.column.cell.keys['dataset']}, {e.column.cell.keys['method']}" for e, _ in there])
    for a, (_, run) in zip(axes, there, strict=True):
        shown = [[v if i != j else 0.0 for j, v in enumerate(row)] for i, row in enumerate(run["weights"])]
        figure.colorbar(a.imshow(shown, cmap="viridis"), ax=a)
        a.grid(False)
        a.set_xlabel("client j")
        a.set_ylabel("client i")
    return True
