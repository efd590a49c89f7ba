"""A killed run goes on to the same result; nothing that was saved is lost."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from commandline import (
    METHODS,
    OWN,
    elsewhere,
    files,
    good,
    hospitals,
    killed,
    one_line,
    refused,
    same_run,
    sartor,
    stop_in_round,
    summary,
)
from subsets import one_in

from sartor import FLAME
from sartor.run.rounds import Run
from sartor.storage import read_note

KILLED = (
    "run",
    "--method",
    "flame",
    "--data",
    "digits",
    "--partition",
    "hybrid",
    "--clients",
    10,
    "--rounds",
    20,
    "--seed",
    0,
    "--quiet",
)
SHORT = ("run", "--model", "softmax", "--rounds", 6, "--evaluate-every", 2, "--checkpoint-every", 2, "--quiet")
CHECKPOINT = Path("state", "checkpoint.safetensors")

KILL_IN_ROUND = """
from sartor import FLAME
from sartor.run.rounds import Run
step = Run.step
def dying(run):
    if run.round == {}:
        os.kill(os.getpid(), signal.SIGKILL)
    step(run)
Run.step = dying
"""
KILL_WHILE_SAVING = """
replace = os.replace
def dying(a, b):
    if b.name == "checkpoint.safetensors" and b.exists():
        os.kill(os.getpid(), signal.SIGKILL)
    replace(a, b)
os.replace = dying
"""


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FLAME on digits without an interruption."""
    folder = tmp_path_factory.mktemp("unbroken") / "B"
    good(*KILLED, "--out", folder)
    return folder


@pytest.mark.parametrize(
    ("prelude", "every", "reached"),
    [
        (KILL_IN_ROUND.format(13), 10, 10),
        pytest.param(KILL_IN_ROUND.format(4), 10, None, marks=pytest.mark.long),
        (KILL_WHILE_SAVING, 3, 3),
    ],
    ids=["mid-run", "before the first checkpoint", "while saving"],
)
def test_a_killed_run_resumes_to_the_same_bytes(
    prelude: str, every: int, reached: int | None, tmp_path: Path, unbroken: Path
) -> None:
    folder = tmp_path / "A"
    killed(prelude, *KILLED, "--checkpoint-every", every, "--out", folder)
    assert not (folder / "summary.json").exists()
    assert (folder / CHECKPOINT).exists() == (reached is not None)
    assert reached is None or read_note(folder / CHECKPOINT)["round"] == reached
    good("run", "--resume", folder, "--quiet")
    same_run(folder, unbroken)
    assert not list(folder.rglob(".*"))


@pytest.mark.parametrize(
    ("prelude", "every"),
    [
        (KILL_IN_ROUND.format(13), 5),
        pytest.param(KILL_IN_ROUND.format(4), 10, marks=pytest.mark.long),
        pytest.param(KILL_WHILE_SAVING, 3, marks=pytest.mark.long),
    ],
    ids=["mid-run", "before the first checkpoint", "while saving"],
)
def test_a_killed_run_with_its_states_on_disk_loses_nothing(
    prelude: str, every: int, tmp_path: Path, unbroken: Path
) -> None:
    """And it ends as the run in memory did."""
    folder = tmp_path / "A"
    killed(prelude, *KILLED, "--store", "disk", "--checkpoint-every", every, "--out", folder)
    assert not (folder / "summary.json").exists() and any((folder / "state" / "rows").iterdir())
    good("run", "--resume", folder, "--quiet")
    same_run(folder, unbroken)


@pytest.mark.parametrize("method", one_in(3, METHODS))
def test_every_method_resumes_exactly_with_a_partial_cohort(method: str, tmp_path: Path) -> None:
    arguments = (*SHORT, "--rounds", 5, "--method", method, "--cohort", 4, "--no-diagnostics")
    good(*arguments, "--out", tmp_path / "B")
    with stop_in_round(3):
        answer = sartor(*arguments, "--out", tmp_path / "A")
    assert answer.code == 130 and "--resume" in one_line(answer.err)
    assert read_note(tmp_path / "A" / CHECKPOINT)["round"] == 2
    good("run", "--resume", tmp_path / "A", "--quiet")
    same_run(tmp_path / "A", tmp_path / "B")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A run that was stopped in its last round."""
    with stop_in_round(5):
        assert sartor(*SHORT, "--out", tmp_path / "A").code == 130
    return tmp_path / "A"


def test_a_finished_run_resumes_to_itself(tmp_path: Path) -> None:
    good(*SHORT, "--out", tmp_path)
    before = files(tmp_path)
    good("run", "--resume", tmp_path)
    assert files(tmp_path) == before


def test_a_run_that_died_after_its_last_round_is_completed(tmp_path: Path) -> None:
    good(*SHORT, "--out", tmp_path / "A")
    good(*SHORT, "--out", tmp_path / "B")
    for name in ("summary.json", "clients.json", "report.html"):
        (tmp_path / "A" / name).unlink()
    good("run", "--resume", tmp_path / "A", "--quiet")
    same_run(tmp_path / "A", tmp_path / "B")


def test_a_finished_run_can_be_made_longer_not_shorter(tmp_path: Path) -> None:
    good(*SHORT, "--out", tmp_path / "A")
    good("run", "--resume", tmp_path / "A", "--rounds", 8, "--quiet")
    good(*SHORT, "--rounds", 8, "--out", tmp_path / "B")
    same_run(tmp_path / "A", tmp_path / "B")
    before = files(tmp_path / "A")
    assert "played 8 rounds" in refused("run", "--resume", tmp_path / "A", "--rounds", 7)
    assert files(tmp_path / "A") == before


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (("--method", "ditto"), "method"),
        (("--set", "lam=2.125"), "lam"),
        (("--lr", "0.3125"), "lr"),
        (("--seed", "1"), "seed"),
        (("--partition", "iid"), "partition"),
        (("--cohort", "3"), "cohort"),
        (("--dtype", "float64"), "dtype"),
    ],
)
def test_other_settings_are_refused(other: tuple[str, str], word: str, broken: Path) -> None:
    before = files(broken)
    assert word in refused("run", "--resume", broken, *other)
    assert files(broken) == before


def test_the_same_settings_may_be_repeated(broken: Path, tmp_path: Path) -> None:
    good(*SHORT, "--method", "flame", "--set", f"lam={FLAME().lam}", "--resume", broken)
    good(*SHORT, "--out", tmp_path / "B")
    same_run(broken, tmp_path / "B")


def test_another_engine_may_go_on_with_states_on_disk(tmp_path: Path) -> None:
    start = ("run", "--rounds", 4, "--checkpoint-every", 2, "--model", "softmax", "--store", "disk", "--quiet")
    good(*start, "--out", tmp_path / "A")
    good("run", "--resume", tmp_path / "A", "--rounds", 6, "--engine", "serial", "--quiet")
    assert summary(tmp_path / "A")["rounds"] == 6


def test_another_engine_may_go_on(broken: Path, tmp_path: Path) -> None:
    good("run", "--resume", broken, "--engine", "serial", "--quiet")
    assert json.loads((broken / "summary.json").read_text())["rounds"] == 6


def test_resume_stays_in_its_folder(broken: Path, tmp_path: Path) -> None:
    assert "--out" in refused("run", "--resume", broken, "--out", tmp_path / "C")
    assert not (tmp_path / "C").exists()


def test_other_data_under_the_same_name_are_refused(tmp_path: Path) -> None:
    table = hospitals(tmp_path / "visits.csv")
    with stop_in_round(5):
        sartor(*SHORT, "--data", table, *OWN, "--out", tmp_path / "A")
    table.write_text(table.read_text().replace("east", "west", 3))
    assert "other data" in refused("run", "--resume", tmp_path / "A")


def test_a_truncated_checkpoint_is_refused(broken: Path) -> None:
    path = broken / CHECKPOINT
    whole = path.read_bytes()
    for length in (0, 5, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert "checkpoint.safetensors" in refused("run", "--resume", broken)
    path.write_bytes(whole)
    good("run", "--resume", broken, "--quiet")


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    assert "recipe.toml" in refused("run", "--resume", tmp_path)
    assert "recipe.toml" in refused("run", "--resume", tmp_path / "nowhere")


def test_a_stopped_comparison_goes_on(tmp_path: Path) -> None:
    # One process: others would play cells ahead.
    arguments = ("compare", *SHORT[1:-1], "--methods", "local,flame,ditto", "--seeds", "0", "--workers", "1")
    whole = good(*arguments, "--out", tmp_path / "B").out
    step, calls = Run.step, list[int]()

    def stopping(run: Run) -> None:
        calls.append(run.round)
        if len(calls) == 6 + 5:  # in the second method's fifth round
            raise KeyboardInterrupt
        step(run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "step", stopping)
        assert sartor(*arguments, "--out", tmp_path / "A").code == 130
        assert not (tmp_path / "A" / "compare.json").exists()
        calls.clear()
        calls += [0] * 100  # counts on, and stops no more
        again = good(*arguments, "--out", tmp_path / "A").out
    assert len(calls) - 100 == 2 + 6  # what was left of flame, and ditto
    for m in ("local", "flame", "ditto"):
        same_run(tmp_path / "A" / f"{m}-0", tmp_path / "B" / f"{m}-0")
    tables = [
        [line[:70] for line in text.splitlines() if line.startswith(("local  ", "flame  ", "ditto  "))]
        for text in (whole, again)
    ]
    assert len(tables[0]) == 3 and tables[0] == tables[1]  # the first 70 characters end before the seconds


# --- a full disk ------------------------------------------------------------------------------------------------------

SMALL_DISK = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
"""


def test_a_disk_that_is_full_for_real(tmp_path: Path) -> None:
    good(*SHORT, "--out", tmp_path / "A")
    good(*SHORT, "--rounds", 12, "--out", tmp_path / "B")
    before = (tmp_path / "A" / CHECKPOINT).read_bytes()
    assert len(before) > 60_000
    done = elsewhere(SMALL_DISK, "run", "--resume", tmp_path / "A", "--rounds", 12, "--quiet")
    assert done.returncode == 2 and "cannot write" in one_line(done.stderr) and "unharmed" in done.stderr
    assert (tmp_path / "A" / CHECKPOINT).read_bytes() == before
    assert not list(tmp_path.rglob(".*"))
    good("run", "--resume", tmp_path / "A", "--quiet")
    same_run(tmp_path / "A", tmp_path / "B")


@pytest.mark.parametrize("file", ["checkpoint.safetensors", "history.jsonl", "personal.safetensors", "summary.json"])
def test_a_full_disk_at_any_file(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good(*SHORT, "--out", tmp_path / "A")
    before = files(tmp_path / "A")
    replace = os.replace

    def full(source: Path, target: Path) -> None:
        if target.name == file:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    line = refused("run", "--resume", tmp_path / "A", "--rounds", 12, "--quiet")
    assert "No space left" in line and file in line
    after = files(tmp_path / "A")
    assert set(after) == set(before)
    assert {k: v for k, v in after.items() if k.endswith(file)} == {k: v for k, v in before.items() if k.endswith(file)}
    monkeypatch.undo()
    good("run", "--resume", tmp_path / "A", "--quiet")
    good(*SHORT, "--rounds", 12, "--out", tmp_path / "B")
    same_run(tmp_path / "A", tmp_path / "B")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "cannot write" in refused(*SHORT, "--out", tmp_path / "file" / "A")
    assert "cannot write" in refused(*SHORT, "--out", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
