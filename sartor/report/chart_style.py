"""How lines and marks are told apart, by colour, dash and shape: in the page's charts (Plotly; colours are variables of
the page's style) and in PNG files (matplotlib, the extra `plots`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..storage import replacing

# Okabe and Ito's, told apart by everybody, without the yellow, which is too faint for a line on white.
PNG_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#888888")
PNG_DASHES = ("", "6 3", "2 2", "8 3 2 3", "1 3")
PNG_MARKS = ("o", "s", "^", "D", "v")
COLOURS = len(PNG_COLOURS)  # the same in the page: --c0 to --c6
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "x", "star", "cross", "pentagon")
# The models of a client, and training alone.
MODEL_MARKS: dict[str, dict[str, Any]] = {
    "local": {"color": "--soft", "symbol": "square", "size": 8},
    "global": {"color": "--c0", "symbol": "circle", "size": 9},
    "personal": {"color": "--c1", "symbol": "diamond", "size": 9},
    "chosen": {"color": "--c2", "symbol": "circle-open", "size": 14, "line": {"width": 2.5}},
}
MODEL_DASHES = {"local": "dot", "global": "dash", "personal": "dot", "chosen": "solid"}
FLOOR = -1.0  # R² has no lower end; axes do not go below this


def line(place: int) -> dict[str, Any]:
    """The line of the entry at this place."""
    return {"color": f"--c{place % COLOURS}", "dash": DASHES[place // COLOURS % len(DASHES)], "width": 2}


def marker(place: int, size: int = 7) -> dict[str, Any]:
    """Its marks."""
    return {"color": f"--c{place % COLOURS}", "symbol": SHAPES[place % len(SHAPES)], "size": size}


def shade(place: int, many: bool = False) -> str:
    """The fill of its band, fainter where there are many."""
    return f"--c{place % COLOURS} {0.07 if many else 0.15}"


def scores(title: str) -> dict[str, Any]:
    """An axis of accuracies or R²; of −RMSE and the like, which have other units, without a floor."""
    return {"title": {"text": title}} | ({} if "−" in title else {"autorangeoptions": {"clipmin": FLOOR}})


# --- PNG --------------------------------------------------------------------------------------------------------------


def new_figure(**look: Any) -> Any | None:
    """An empty figure of matplotlib; None where it is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(**look)
    FigureCanvasAgg(figure)
    return figure


def frame(axes: Any, title: str, size: float, **grid: Any) -> None:
    """A panel's title, its faint grid, and no lines above and to the right of it."""
    axes.set_title(title, fontsize=size, loc="left")
    axes.grid(**grid)
    axes.spines[["top", "right"]].set_visible(False)


def panel_grid(panels: int) -> tuple[int, int]:
    """How many panels stand beside and below each other."""
    wide = min(3, panels)
    return wide, -(-panels // wide)


def save_png(figure: Any, path: Path) -> None:
    """Write the file, whole or not at all."""
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")
