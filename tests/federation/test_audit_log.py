"""The audit log: everything that left a site is in it, it cannot be changed unseen, and without it nothing leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from sites import NAMES, QUICK, Federation, is_message, vectors

from sartor.errors import SartorError
from sartor.federation import commands
from sartor.federation.audit_log import AUDIT, AuditLog, verified
from sartor.federation.rounds import decode
from sartor.run.recipe import Recipe


def test_everything_that_leaves_is_in_the_log_and_no_value_is(flame: Federation) -> None:
    calls = flame.calls()
    flame.play(calls)
    for name in NAMES:
        lines = verified(flame.folder / name)
        sent = [decode(d) for way, s, d in calls.seen if way == "up" and s == name]
        assert [(line["left"]["what"], line["left"]["round"], line["left"]["numbers"]) for line in lines] == [
            (m.kind, m.round, sum(v.size for v in m.arrays.values())) for m in sent
        ]
        assert {line["asked"]["what"] for line in lines} >= {"hello", "measure", "welcome", "train", "evaluate", "done"}
        assert all(set(line) == {"line", "time", "asked", "left", "before", "hash"} for line in lines)
        numbers = {float(x) for row in flame.paths[name].read_text().splitlines()[1:] for x in row.split(",")[:2]}
        assert not any(str(n) in (flame.folder / name / AUDIT).read_text() for n in numbers)


def test_the_epsilon_that_is_spent_stands_beside_each_message(tmp_path: Path, paths: dict[str, Path]) -> None:
    fed = Federation(tmp_path, Recipe(method="flame", **QUICK, dp_noise=2.0, dp_where="client"), paths)
    fed.play()
    spent = [line["epsilon"] for line in verified(tmp_path / "a") if line["left"].get("stage") == "train"]
    assert len(spent) == 3 and 0 < spent[0] < spent[1] < spent[2]


@pytest.mark.parametrize("what", ["a number", "a word", "a line less", "a line more", "two lines turned", "nonsense"])
def test_a_change_breaks_the_chain_where_it_was_made(what: str, flame: Federation) -> None:
    flame.play()
    place = flame.folder / "b" / AUDIT
    lines = place.read_text().splitlines()
    assert len(verified(flame.folder / "b")) == len(lines) > 6
    if what == "a number":
        lines[3] = lines[3].replace('"numbers": ', '"numbers": 1', 1)
    elif what == "a word":
        changed = json.loads(lines[3]) | {"time": "2020-01-01T00:00:00+00:00"}
        lines[3] = json.dumps(changed)
    elif what == "a line less":
        del lines[3]
    elif what == "a line more":
        lines.insert(3, lines[2])
    elif what == "two lines turned":
        lines[3], lines[4] = lines[4], lines[3]
    else:
        lines[3] = "[]"
    place.write_text("\n".join(lines) + "\n")
    with pytest.raises(SartorError, match=r"was changed: line 4"):
        verified(flame.folder / "b")


def test_a_disk_without_room_for_the_log_lets_nothing_leave(flame: Federation) -> None:
    calls, fsync = flame.calls(), os.fsync
    said: list[str] = []

    def full(handle: int) -> None:
        if os.readlink(f"/proc/self/fd/{handle}").endswith(f"/b/{AUDIT}"):
            raise OSError(28, "No space left on device")
        fsync(handle)

    with mock.patch.object(os, "fsync", full):
        result = flame.play(calls)
    sent = [decode(d) for way, s, d in calls.seen if way == "up" and s == "b"]
    assert {m.kind for m in sent} == {"refused"} and not any(m.arrays for m in sent)
    assert {m.note["why"] for m in sent} == {"disk"} and result.data.names == ["a", "c"]
    assert any("b: refused (disk): nothing leaves, as" in s and "No space left" in s for s in flame.said), said


def test_a_line_cut_short_by_a_kill_is_written_again(flame: Federation, undisturbed: dict[str, bytes]) -> None:
    """The site dies while it writes the line of its answer in round 2: that has not left, and is asked for again."""
    calls = flame.calls()
    write, dead = AuditLog.add, []

    def dying(self: AuditLog, entry: Any) -> None:
        if (
            not dead
            and self.path.parent.name == "b"
            and entry["left"].get("stage") == "train"
            and entry["asked"]["round"] == 1
        ):
            dead.append(1)
            with self.path.open("ab") as file:
                file.write(b'{"line": 7, "time": "20')
            raise KeyboardInterrupt
        write(self, entry)

    answer = calls.members["b"]

    def restarted(data: bytes) -> bytes | None:
        try:
            return answer(data) if not dead else flame.member("b").answer(data)
        except KeyboardInterrupt:
            return None

    calls.members["b"] = restarted
    with mock.patch.object(AuditLog, "add", dying):
        flame.play(calls)
    assert dead and vectors(flame.folder) == undisturbed
    lines = verified(flame.folder / "b")
    assert sum(line["left"].get("stage") == "train" for line in lines) == 3
    assert any(is_message(d, "answer", "train", 1) for way, s, d in calls.seen if way == "up" and s == "b")


def test_a_damaged_log_stops_the_site(flame: Federation) -> None:
    flame.play()
    place = flame.folder / "b" / AUDIT
    place.write_text(place.read_text() + "nonsense\n")
    reply = decode(flame.member("b").answer(b"anything"))
    assert reply.kind == "refused" and reply.note["why"] == "disk"


def test_it_is_read_from_a_kit(tmp_path: Path, flame: Federation) -> None:
    flame.play()
    (tmp_path / "kit").mkdir()
    (flame.folder / "a").rename(tmp_path / "kit" / "play")
    with mock.patch.object(commands, "_any") as kit:
        kit.return_value.who = "a"
        lines, said = commands.audit(tmp_path / "kit")
        assert f"{len(lines)} lines, unbroken" in said and lines[-1]["hash"] in said
        assert "asked: train of round 1; left: train, " in said
        kit.return_value.who = "server"
        with pytest.raises(SartorError, match="audit logs are at the sites"):
            commands.audit(tmp_path / "kit")
