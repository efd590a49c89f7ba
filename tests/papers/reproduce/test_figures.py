"""What is drawn of a table: the points, their units and the column they come from; legends that fit."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("matplotlib")
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from sartor.papers.reproduce import figures
from sartor.papers.reproduce.document import FIELDS


def cell(method: str, **more: Any) -> dict[str, Any]:
    known = {"dataset": "digits", "method": method, "model": "personal", "unit": "fraction"}
    return {**dict.fromkeys(FIELDS), **known, **more}


def drawn(cells: list[dict[str, Any]]) -> Figure:
    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    assert figures._fairness(figure, cells)
    return figure


def points(figure: Figure) -> list[list[tuple[float, float]]]:
    return [[tuple(p) for c in a.collections for p in c.get_offsets().tolist()] for a in figure.axes]


def test_points_in_percent_and_in_fractions_share_an_axis() -> None:
    cells = [cell("a", ours=62.0, unit="percent", loss_var=0.2), cell("b", ours=0.5, loss_var=0.3)]
    figure = drawn(cells)
    assert points(figure) == [[(0.2, 0.62), (0.3, 0.5)]]
    assert figure.axes[0].get_title(loc="left") == "digits"


def test_a_panel_shows_the_column_of_which_more_was_run() -> None:
    both = {"ours": 0.1, "loss_var": 1.0, "ours_authors": 0.2, "loss_var_authors": 2.0}
    more = [cell("a", **both), cell("b", ours_authors=0.3, loss_var_authors=3.0)]
    same = [cell("a", dataset="mnist", partition="iid", **both)]
    figure = drawn(more + same)
    assert points(figure) == [[(2.0, 0.2), (3.0, 0.3)], [(1.0, 0.1)]]
    assert [a.get_title(loc="left") for a in figure.axes] == ["digits, authors' switches", "mnist, iid"]


@pytest.mark.parametrize("letters", [1, 12, 30])
def test_a_legend_is_not_wider_than_its_figure(letters: int) -> None:
    figure = drawn([cell(f"{i}" + "m" * letters, ours=0.5, loss_var=0.1 * i) for i in range(8)])
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width
