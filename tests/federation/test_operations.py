"""A real federation is watched from its beginning to its end, and saved while it runs."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from sites import NAMES, tables

pytest.importorskip("nvflare")

from processes import Processes, free_port

from sartor.errors import SartorError
from sartor.federation.backup import back_up, restore
from sartor.storage import read_json

RECIPE = 'method = "flame"\nmodel = "mlp(6)"\nseed = 3\nrounds = 30\nevaluate_every = 10\n'


@pytest.mark.federation
def test_watched_and_saved_while_it_runs(tmp_path: Path) -> None:
    found, port = Processes.make(tmp_path, RECIPE, tables(tmp_path / "tables")), free_port()
    found.options = (*found.options, "--health-port", port, "--health-linger", 20, "--log", "json")
    seen: list[str] = []

    def healthy() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as reply:
                line = reply.read().decode().strip()
        except (urllib.error.URLError, ConnectionError):
            line = ""
        seen.extend([line] if line and line not in seen else [])
        return line

    try:
        found.start("server")
        found.until(lambda: healthy() == "waiting for sites: a, b, c")
        found.start(*NAMES)
        found.until(lambda: healthy().startswith("in round "))
        for name in ("server", "b"):
            assert "of trial" in back_up(found.kits / name, tmp_path / f"{name}.backup")
        with pytest.raises(SartorError, match="a process works in"):
            restore(tmp_path / "b.backup", found.kits / "b")
        found.until(lambda: healthy() == "done")
        found.finish()
    finally:
        found.end()
    rounds = [int(line.split()[2]) for line in seen if line.startswith("in round ")]
    assert rounds == sorted(rounds) and rounds[-1] <= 30 and seen[-1] == "done"
    events = [json.loads(line) for line in found.said("server").splitlines()]
    assert [e["round"] for e in events if e["event"] == "round"] == list(range(1, 31))
    assert events[-1]["event"] == "finished"
    with pytest.raises(SartorError, match="is newer than the backup"):  # it has answered since
        restore(tmp_path / "b.backup", found.kits / "b")
    status = read_json(found.kits / "b" / "play" / "status.json")
    assert status["state"] == "finished" and status["round"] == status["rounds"] == 30 and status["bytes_sent"] > 0
