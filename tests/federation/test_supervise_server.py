"""The server's supervisor starts NVFlare again until the run is finished, and not once more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("nvflare")

from sartor.federation import supervise_server
from sartor.federation.health import Health
from sartor.federation.nvflare_jobs import RUN, STATUS
from sartor.federation.rounds.remote_engine import Waiting
from sartor.storage import write_json


class Daemon:
    """NVFlare's process: counts how often it was started."""

    alive, starts = True, 0

    def start(self) -> None:
        self.starts += 1

    def stop(self) -> None:
        pass


def supervisor(folder: Path, said: list[str]) -> Any:
    made = object.__new__(supervise_server.ServerSupervisor)
    made.kit = made.place = folder
    made.say = said.append
    made.health = Health(folder, "server", "trial")
    made.about = SimpleNamespace(federation="trial", host="localhost", port=1, sites=["a"])  # type: ignore[assignment]
    return made


@pytest.mark.parametrize(("rounds", "done"), [(5, True), (4, False)])
def test_a_job_that_is_lost_as_it_sends_the_sites_home_leaves_a_finished_run(
    rounds: int, done: bool, tmp_path: Path
) -> None:
    """All is saved, and nobody will come again to hear of it. Where a round is missing they are waited for."""
    said: list[str] = []
    made = supervisor(tmp_path, said)
    made.waiting = Waiting(seconds=0.05)
    (tmp_path / "recipe.toml").write_text('method = "flame"\nrounds = 5\n')
    write_json(tmp_path / STATUS, {"state": "playing", "round": rounds})
    write_json(tmp_path / RUN / "summary.json", {"rounds": rounds, "stopped": "rounds"})
    looks = 0

    def nobody(admin: object) -> set[str]:
        nonlocal looks
        looks += 1
        if looks == 4:
            raise supervise_server._Lost("enough was waited")
        return set()

    with mock.patch.object(supervise_server, "sites", nobody), mock.patch.object(supervise_server, "POLL", 0.1):
        if done:
            assert made._job(None, Daemon())
        else:
            with pytest.raises(supervise_server._Lost, match="enough was waited"):
                made._job(None, Daemon())
    assert (made._state() == "finished") == done
    assert any("the run is finished" in line for line in said) == done


def test_a_run_that_is_finished_as_nvflare_falls_silent_is_finished(tmp_path: Path) -> None:
    """The sites have gone home: who starts again waits for them for ever."""
    said: list[str] = []

    @contextmanager
    def silent(folder: Path, daemon: Daemon) -> Iterator[None]:
        if daemon.starts == 2:
            write_json(tmp_path / STATUS, {"state": "finished", "round": 5})
        raise supervise_server._Lost("NVFlare's server does not answer")
        yield

    daemon = Daemon()
    with mock.patch.object(supervise_server, "session", silent):
        supervisor(tmp_path, said)._supervise(daemon)
    assert daemon.starts == 2
    lost = [line for line in said if "does not answer" in line]
    assert [line.rpartition("; ")[2] for line in lost] == ["starting again", "the run is finished"]
