"""The examples run, and show what they say they show."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWS = {  # what each prints, among other things
    "quickstart": ["local", "chosen: 0."],
    "own_csv": ["cedar", "birch: ['"],
    "own_model": ["personal", "Residual("],
}
ELSEWHERE = {
    "adapters",  # tests/test_adapters.py, in a small size
    "compare_under_attack",  # below
    "federation",  # make federation-demo; it starts processes, and tests/federation/test_nvflare.py does the same
}


def test_every_example_is_run() -> None:
    assert {p.stem for p in EXAMPLES.glob("*.py")} == set(SHOWS) | ELSEWHERE


@pytest.mark.parametrize("name", SHOWS)
def test_an_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert all(words in shown for words in SHOWS[name])


def test_the_attacked_average_is_the_one_that_suffers(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "compare_under_attack.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()[1:]
    scores = {line[:34].strip(): [float(v) for v in line[34:].split()] for line in lines}
    lost = {name: clean - attacked for name, (clean, attacked) in scores.items()}
    assert max(lost, key=lambda name: lost[name]) == "fedavg" and lost["local"] == 0
