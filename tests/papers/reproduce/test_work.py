"""What an experiment gives to the methods that it compares; one that gives more to some says so in its own text."""

from __future__ import annotations

import pytest

from sartor.papers.reproduce import checked, names
from sartor.papers.reproduce.work import Work, compared, is_equal, work_of
from sartor.run.recipe import Recipe

STEPS = {"solver": {"steps": 6}, "cohort": 5, "clients": 10}


@pytest.mark.parametrize(
    ("method", "settings", "known"),
    [
        ("fedavg", {}, (3, 0, 0.5)),  # six steps at half of the clients
        ("local", {}, (6, 0, 1)),
        ("ditto", {}, (6, 0, 0.5)),  # w and v
        ("ditto", {"joint": False, "solver": {"steps": 20}, "global_solver": {"steps": 6}}, (3, 20, 0.5)),
        ("pfedme", {"R": 4, "train_all": True}, (24, 0, 1)),  # R·K
        ("per-fedavg", {}, (12, 2, 0.5)),  # four gradients a step; then one over all data, two batches of 20
        ("authors.ditto-everyone", {}, (12, 0, 1)),
        ("authors.rsa-everyone", {}, (6, 0, 1)),
        ("authors.lg-fedavg-everyone", {}, (6, 0, 1)),
    ],
)
def test_gradients_and_participation_are_those_of_the_method(
    method: str, settings: dict[str, object], known: tuple[float, float, float]
) -> None:
    recipe = Recipe.of({**STEPS, "method": method, "settings": settings})
    assert work_of([recipe, recipe]) == Work(*known, trials=2, rounds=recipe.rounds)


def test_a_grid_counts_as_its_longest_setting_and_by_its_length() -> None:
    grid = [Recipe.of({"method": "local", "solver": {"steps": n}}) for n in (1, 9, 3)]
    assert work_of(grid) == Work(9, 0, 1, 3, grid[0].rounds)
    assert not is_equal([Work(9, 0, 1, 3), Work(9, 0, 1, 1)]) and not is_equal([Work(9, 0, 1, 3), Work(9, 0, 0.5, 3)])
    assert is_equal([Work(9, 0, 1, 3), Work(9.000001, 0, 1, 3)])


@pytest.mark.parametrize("name", names())
def test_an_experiment_that_gives_methods_different_work_says_so(name: str) -> None:
    experiment = checked(name)
    equal = all(is_equal(group.values()) for group in compared(experiment))
    assert equal == (not experiment.unequal), [w.words() for g in compared(experiment)[:1] for w in g.values()]
