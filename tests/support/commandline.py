"""Calls of the command line from tests: in this process where possible, and what a run folder holds."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import fresh
import numpy as np

from sartor import cli
from sartor.cli import main
from sartor.run.rounds import Run

cli.out.width = 120  # whatever COLUMNS says where the tests run

QUICK = ("--model", "softmax", "--rounds", "2")
METHODS = (
    "flame",
    "flame-lp-proj",
    "pfedme",
    "ditto",
    "lp-proj-1",
    "lp-proj-2",
    "fedamp",
    "heurfedamp",
    "fedavg",
    "fedprox",
    "fedavg-ft",
    "fedprox-ft",
    "local",
)

SUMMARY = {  # what summary.json holds, besides the time
    "privacy",
    "unseen",
    "method",
    "data",
    "partition",
    "model",
    "clients",
    "cohort",
    "rounds",
    "report",
    "reported_round",
    "seed",
    "attack",
    "attackers",
    "hostile",
    "aggregator",
    "compress",
    "compress_down",
    "drop",
    "stragglers",
    "trained",
    "steps",
    "finetune_steps",
    "gradients_per_client",
    "local_steps",
    "own_work",
    "excluded",
    "dropped",
    "late",
    "skipped",
    "bytes_up",
    "bytes_down",
    "accuracy_per_megabyte",
    "budget",
    "target_accuracy",
    "rounds_to_target",
    "bytes_to_target",
    "stopped",
    "parameters",
    "personal",
    "global",
    "chosen",
    "personal_model",
    "choice",
    "warnings",
}


class Answer(NamedTuple):
    """What a call gave back."""

    code: int
    out: str
    err: str


def sartor(*arguments: object) -> Answer:
    """Run `sartor ARGUMENTS` in this process."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with (
        mock.patch.object(sys, "argv", ["sartor", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as e:
            code = e.code
    return Answer(int(str(code or 0)), out.getvalue(), err.getvalue())


def good(*arguments: object) -> Answer:
    """Run `sartor ARGUMENTS`, which must go well."""
    answer = sartor(*arguments)
    assert answer.code == 0 and answer.err == "", answer
    return answer


def refused(*arguments: object) -> str:
    """Run `sartor ARGUMENTS`, which must be refused with one line and code 2; the line."""
    answer = sartor(*arguments)
    assert answer.code == 2, answer
    return one_line(answer.err)


def one_line(err: str) -> str:
    """The only line of standard error."""
    assert err.startswith("sartor: ") and err.count("\n") == 1 and "Traceback" not in err, err
    return err.strip()


def elsewhere(prelude: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python lines and then `sartor ARGUMENTS` in a process of its own."""
    words = ["sartor", *map(str, arguments)]
    lines = ["import os, signal, sys", f"sys.argv = {words!r}", prelude, "from sartor.cli import main", "main()"]
    return fresh.run("\n".join(lines))


def killed(prelude: str, *arguments: object) -> None:
    """The same for lines that kill the process."""
    done = elsewhere(prelude, *arguments)
    assert done.returncode == -signal.SIGKILL, done


@contextlib.contextmanager
def stop_in_round(round: int) -> Iterator[None]:
    """As if somebody pressed Ctrl-C in this round (the first is 0)."""
    step = Run.step

    def stopping(run: Run) -> None:
        if run.round == round:
            raise KeyboardInterrupt
        step(run)

    with mock.patch.object(Run, "step", stopping):
        yield


def summary(folder: Path) -> dict[str, Any]:
    """summary.json without the time it took."""
    found = json.loads((folder / "summary.json").read_text())
    assert found.pop("seconds") > 0
    return dict(found)


def history(folder: Path) -> list[dict[str, Any]]:
    """history.jsonl without the times."""
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def timeless(text: str) -> str:
    """What was printed, without the time that is left and the plan of what is still to play."""
    return re.sub(r"; about [\d.]+ \w+ left|^\d+ runs, .*\n", "", text, flags=re.MULTILINE)


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, by path."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def same_run(a: Path, b: Path) -> None:
    """Assert that two folders hold the same run, times aside."""
    assert summary(a) == summary(b)
    assert history(a) == history(b)
    assert (a / "clients.json").read_bytes() == (b / "clients.json").read_bytes()
    assert files(a / "models") == files(b / "models") != {}
    assert {p.name for p in a.iterdir()} == {p.name for p in b.iterdir()}


def hospitals(path: Path, names: tuple[str, ...] = ("A", "B", "C"), each: int = 40, target: str = "sick") -> Path:
    """A CSV file with a row per patient: age, dose, ward (text), outcome and hospital."""
    draw = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["age", "dose", "ward", "outcome", "hospital"])
        for i, name in enumerate(names):
            for _ in range(each):
                age, dose = draw.normal(), draw.normal()
                value = age + (i + 1) * dose
                outcome: object = int(value > 0) if target == "sick" else value
                table.writerow([age, dose, draw.choice(["east", "west"]), outcome, name])
    return path


OWN = ("--target", "outcome", "--client-key", "hospital", "--partition", "natural")
