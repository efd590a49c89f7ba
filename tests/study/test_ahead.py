"""Cells that other processes play ahead: once each, with the same results; one that fails is played again here."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sartor.data import load
from sartor.run.recipe import Recipe
from sartor.study import compare
from sartor.study.advise import advise
from sartor.study.ahead import Ahead, in_order
from sartor.study.tune import tune


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

    monkeypatch.setattr("sartor.study.ahead.cores", lambda: 2)
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


def squared(number: int, place: Path) -> list[float]:
    with (place / str(number)).open("a") as file:
        file.write(f"{os.getpid()}\n")
    if number == 3 and os.getpid() != int((place / "parent").read_text()):
        raise MemoryError
    return [number**2, math.nan]


@pytest.mark.parametrize("processes", [0, 1, 3])
def test_answers_come_in_order_and_are_made_once(tmp_path: Path, processes: int) -> None:
    """But for one that fails elsewhere, which is made again here."""
    (tmp_path / "parent").write_text(str(os.getpid()))
    found = list(in_order([partial(squared, number, tmp_path) for number in range(8)], processes))
    assert [first for first, _ in found] == [number**2 for number in range(8)]
    assert all(math.isnan(second) for _, second in found)
    makers = [(tmp_path / str(number)).read_text().split() for number in range(8)]
    assert all(len(each) == 1 for number, each in enumerate(makers) if number != 3)
    assert makers[3][-1] == str(os.getpid())


def test_who_stops_listening_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, real = list[Ahead](), Ahead
    monkeypatch.setattr(
        "sartor.study.ahead.Ahead", lambda *given, **named: made.append(real(*given, **named)) or made[-1]
    )
    (tmp_path / "parent").write_text(str(os.getpid()))
    answers = in_order([partial(squared, number, tmp_path) for number in range(3)], 2)
    next(answers)
    answers.close()
    assert len(made[0].processes) == 2 and not any(process.is_alive() for process in made[0].processes)


def test_tuning_and_advice_are_the_same_with_other_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    base = Recipe(model="softmax", partition="dirichlet=0.5", clients=4, rounds=2)
    digits = load("digits")

    def both(cores: int) -> tuple[Any, Any]:
        monkeypatch.setattr("sartor.study.ahead.cores", lambda: cores)
        *_, (tuning, _, _) = tune(base, ["ditto", "fedavg"], [0], digits, budget=3)
        *_, (advice, _, _) = advise(base, digits, ["fedavg", "ditto"], minutes=1e-3, trials=2, cuts=2)
        told = {k: v for k, v in advice.plain().items() if k != "seconds"}
        return tuning.table(), told

    assert both(1) == both(2)
