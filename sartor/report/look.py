"""How lines and marks are told apart: by colour (Okabe and Ito's, as variables of the page's style), dash and shape."""

from __future__ import annotations

from typing import Any

COLOURS = 7  # --c0 to --c6
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "x", "star", "cross", "pentagon")
# The models of a client, and training alone.
MODELS: dict[str, dict[str, Any]] = {
    "local": {"color": "--soft", "symbol": "square", "size": 8},
    "global": {"color": "--c0", "symbol": "circle", "size": 9},
    "personal": {"color": "--c1", "symbol": "diamond", "size": 9},
    "chosen": {"color": "--c2", "symbol": "circle-open", "size": 14, "line": {"width": 2.5}},
}
MODEL_DASH = {"local": "dot", "global": "dash", "personal": "dot", "chosen": "solid"}
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
    """An axis of accuracies or R²."""
    return {"title": {"text": title}, "autorangeoptions": {"clipmin": FLOOR}}
