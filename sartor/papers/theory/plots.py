"""The plot of a finding as a PNG, with matplotlib (the extra `plots`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...report.chart_style import PNG_COLOURS, PNG_MARKS, frame, new_figure, save_png
from .findings import Panel


def write_png(path: Path, panels: Sequence[Panel], title: str) -> bool:
    """Draw the panels side by side; False where matplotlib is not installed."""
    figure = new_figure(figsize=(5.4 * len(panels), 4.6), dpi=130, layout="constrained")
    if figure is None:
        return False
    figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for curve in panel.curves:
            look = {"color": PNG_COLOURS[curve.colour % len(PNG_COLOURS)], "label": curve.label}
            if curve.dots:
                mark = PNG_MARKS[curve.colour % len(PNG_MARKS)]
                axes.errorbar(
                    curve.x, curve.y, yerr=curve.error, fmt=mark, markersize=4.5, capsize=2.5, linewidth=1, **look
                )
            else:
                axes.plot(curve.x, curve.y, linestyle="--" if curve.dashed else "-", linewidth=1.6, **look)
        for letter, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
            if letter in panel.log:
                _logarithmic(axes, axis, letter)
        for place, (at, label) in enumerate(panel.marks):
            axes.axvline(at, color="#666666", linewidth=1, linestyle=":")
            height = 0.97 - 0.06 * place  # one below the other, so that neighbours can be read
            where = {"transform": axes.get_xaxis_transform(), "clip_on": True, "in_layout": False}
            axes.text(at, height, f" {label}", fontsize=8, va="top", **where)
        frame(axes, panel.title, 10, color="#e4e4e4", linewidth=0.7)
        axes.set_xlabel(panel.x)
        axes.set_ylabel(panel.y)
        axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    save_png(figure, path)
    return True


def _logarithmic(axes: Any, axis: Any, letter: str) -> None:
    """A logarithmic axis; one of few decades gets 1, 2, 5 written out, as powers of ten alone would be too few."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    (axes.set_xscale if letter == "x" else axes.set_yscale)("log")
    low, high = axis.get_view_interval()
    axis.set_minor_formatter(NullFormatter())
    if high < 150 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
