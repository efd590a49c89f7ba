"""Logs have a bounded size, no line is torn or told twice, and a disk that takes no log stops nothing."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from sartor.errors import SartorError
from sartor.federation.logs import EVENTS, EventLog, Follower, Voice, append, before, trim


def _write(path: Path, who: str) -> None:
    for at in range(200):
        append(path, f"{who} {at:03d} " + "x" * 40, 4000)


def test_two_processes_share_a_log_of_bounded_size(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    spawn = multiprocessing.get_context("fork")
    each = [spawn.Process(target=_write, args=(path, who)) for who in "ab"]
    for process in each:
        process.start()
    for process in each:
        process.join()
    assert path.stat().st_size <= 4000 and before(path).stat().st_size <= 4000
    lines = before(path).read_text().splitlines() + path.read_text().splitlines()
    assert {len(line) for line in lines} == {46} and len(lines) > 100
    for who in "ab":  # the newest of each, in order, without a gap
        mine = [int(line.split()[1]) for line in lines if line.startswith(who)]
        assert mine == list(range(200))[-len(mine) :] if mine else who


def test_a_follower_tells_every_line_once_though_files_are_put_aside(tmp_path: Path) -> None:
    path, told = tmp_path / "log.txt", list[str]()
    append(path, "from before")
    follower = Follower(path, told.append)
    for at in range(60):
        append(path, f"line {at}", 100)
        if at % 7 == 0:
            follower.look()
    follower.look()
    assert told == [f"line {at}" for at in range(60)]


def test_a_file_that_another_process_keeps_open_is_trimmed(tmp_path: Path) -> None:
    path = tmp_path / "daemon.txt"
    with path.open("ab", buffering=0) as open_elsewhere:
        open_elsewhere.write(b"old " * 100)
        trim(path, 300)
        assert path.read_bytes() == b"" and before(path).read_bytes() == b"old " * 75
        open_elsewhere.write(b"new")
        trim(path, 300)
        assert path.read_bytes() == b"new"


def test_a_disk_that_takes_no_log_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / EVENTS).symlink_to("/dev/full")
    EventLog(tmp_path, "a").say("a line")
    with pytest.raises(OSError, match="No space left"), (tmp_path / EVENTS).open("w") as full:  # it is that disk
        full.write("a line")


@pytest.mark.parametrize("as_events", [False, True])
def test_what_a_supervisor_says_is_an_event_and_told_once(as_events: bool, tmp_path: Path) -> None:
    told = list[str]()
    voice = Voice(tmp_path / "log.txt", "server", told.append, as_events)
    with pytest.raises(SartorError), voice.last_word():
        voice.say("waiting for site b")
        append(tmp_path / "log.txt", "12:00:00 round 1 of 3")
        raise SartorError("nobody came.")
    events = [json.loads(line) for line in (tmp_path / EVENTS).read_text().splitlines()]
    assert [(e["event"], e["level"], e["text"]) for e in events] == [
        ("message", "info", "waiting for site b"),
        ("failed", "error", "nobody came."),
    ]
    assert {e["who"] for e in events} == {"server"} and all(e["time"].endswith("+00:00") for e in events)
    assert told == (
        (tmp_path / EVENTS).read_text().splitlines() if as_events else ["waiting for site b", "12:00:00 round 1 of 3"]
    )
