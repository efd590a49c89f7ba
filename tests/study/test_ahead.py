"""Cells that other processes play ahead: once each, with the same results; one that fails is played again here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sartor.data import load
from sartor.run.recipe import Recipe
from sartor.study import compare
from sartor.study.ahead import Ahead


def noted(place: Path) -> Iterator[None]:
    """A cell that writes who has played it."""
    place.write_text(str(os.getpid()))
    yield


def failing() -> Iterator[None]:
    raise MemoryError
    yield


def killed() -> Iterator[None]:
    os._exit(9)
    yield


def test_every_cell_is_played_once_here_or_there(tmp_path: Path) -> None:
    places = [tmp_path / str(i) for i in range(5)]
    ahead = Ahead([partial(noted, place) for place in places], 1)
    first = ahead.take(0)  # unless all five were played before
    ahead.processes[0].join()
    for i in range(5):
        ahead.wait(i)
        assert not ahead.take(i)
    assert [place.exists() for place in places] == [not first, True, True, True, True]
    assert {place.read_text() for place in places[1:]} == {str(ahead.processes[0].pid)}
    ahead.close()


@pytest.mark.parametrize("cell", [failing, killed])
def test_nobody_waits_for_a_cell_that_failed(cell: Any) -> None:
    ahead = Ahead([failing, cell], 1)
    ahead.processes[0].join()
    ahead.wait(1)
    ahead.close()


def test_a_comparison_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a cell diverges, which each process finds out by itself."""
    made, real = list[Ahead](), compare.Ahead

    def watched(*given: Any) -> Ahead:
        made.append(real(*given))
        return made[-1]

    monkeypatch.setattr(compare, "cores", lambda: 2)
    monkeypatch.setattr(compare, "Ahead", watched)

    def played(name: str, **options: Any) -> list[dict[str, Any]]:
        base = Recipe(model="softmax", partition="iid", clients=3, rounds=2, diagnostics=False, **options)
        wild = {"ditto": {"lam": 1e30}}
        *_, last = compare.compare(base, ["fedavg", "ditto"], [0, 1], load("digits"), tmp_path / name, wild)
        return [{k: v for k, v in row.items() if k != "seconds"} for row in last.table.summaries()]

    ahead = played("ahead")
    assert len(made) == 1 and not any(process.is_alive() for process in made[0].processes)
    assert ahead == played("alone", workers=1) and any("error" in row for row in ahead)
    assert len(made) == 1
