"""Exactly once: killed between any two writes, everything ends in the same bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from killed import Killed, Mortal, killed_at
from sites import QUICK, Federation, last, vectors
from subsets import first

from sartor.run.recipe import Recipe


def writes(folder: Path, paths: dict[str, Path]) -> int:
    with killed_at(10**9, "before") as done:
        Federation(folder, Recipe(method="flame", **QUICK), paths).play()
    return len(done)


@pytest.mark.parametrize("part", first(range(4), 0))
@pytest.mark.parametrize("when", ["before", "after"])
def test_everything_killed_between_any_two_writes_ends_in_the_same_bytes(
    when: str, part: int, tmp_path: Path, paths: dict[str, Path], undisturbed: dict[str, bytes]
) -> None:
    total = writes(tmp_path / "count", paths)
    assert total > 20
    for at in range(part, total, 4):
        fed = Federation(tmp_path / str(at), Recipe(method="flame", **QUICK), paths)
        with killed_at(at, when), pytest.raises(Killed):
            fed.play()
        fed.play()  # server and sites are made anew from their disks
        assert vectors(fed.folder) == undisturbed, at


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_site_killed_at_any_of_its_writes_is_asked_again_and_ends_in_the_same_bytes(
    when: str, tmp_path: Path, paths: dict[str, Path], undisturbed: dict[str, bytes]
) -> None:
    """The server lives on, gets no answer, and repeats itself to the site that was started again."""
    deaths = 0
    for at in range(4):
        fed = Federation(tmp_path / str(at), Recipe(method="flame", **QUICK), paths)
        calls, site = fed.calls(), Mortal(lambda data, fed=fed: fed.member("b").answer(data), at, when)  # type: ignore[misc]
        calls.members["b"] = site
        last(fed.patient(calls, 30))
        deaths += site.deaths
        assert vectors(fed.folder) == undisturbed, at
    assert deaths == 4


def test_a_site_in_a_process_of_its_own_is_killed_and_restarted(
    tmp_path: Path, paths: dict[str, Path], undisturbed: dict[str, bytes]
) -> None:
    from site_process import Process

    fed = Federation(tmp_path, Recipe(method="flame", **QUICK), paths)
    fed.waiting = replace(fed.waiting, seconds=60)
    process = Process(tmp_path / "c", paths["c"])
    calls = fed.calls()
    calls.members["c"] = process.answer
    try:
        for at, _ in enumerate(fed.lead(calls).play()):
            process.kill_at = {0: "write", 1: "reply"}.get(at)  # in round 1 while it writes, in round 2 after that
    finally:
        process.end()
    assert process.kills == 2 and vectors(tmp_path) == undisturbed
