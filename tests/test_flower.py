"""Over Flower: the local engine's numbers, whatever is lost; states on our disks; nothing of a site's troubles is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conformance import CASES, PARTIAL, PLAIN, RAISES, SLOW, Case, agrees, data, disturbed, of_sites
from sites import NAMES

pytest.importorskip("flwr")

from flower_runs import Simulated, configurations
from flwr.app import Context, Message

from sartor.deploy.apps import client, server
from sartor.engines.flower import _payload
from sartor.errors import SartorError
from sartor.federation import decode
from sartor.federation.hub import Hub
from sartor.storage import read_json

FLAME = CASES["flame"]
QUICK = {"ask-again": 2.0, "round-timeout": 30.0, "join-timeout": 30.0, "min-clients": 1}


def simulated(folder: Path, case: Case = FLAME, **config: Any) -> Simulated:
    """Three SuperNodes that are started with a hospital's file each."""
    folder.mkdir(exist_ok=True)
    (folder / "recipe.toml").write_text(case.recipe().toml())
    own = {"folder": str(folder / "server"), "recipe": str(folder / "recipe.toml"), "sites": ",".join(NAMES)}
    return Simulated(server, client, configurations(folder, data(), NAMES), own | QUICK | config)


def conforms(folder: Path, case: Case = FLAME) -> None:
    agrees(case, of_sites(folder / "server" / "run", [folder / n for n in NAMES]))


def said(folder: Path, name: str = "server") -> str:
    return (folder / name / "log.txt").read_text()


@pytest.mark.parametrize("name", [*PLAIN, PARTIAL[0], PARTIAL[4], RAISES[0], SLOW[0]])
def test_the_numbers_of_the_local_engine(name: str, tmp_path: Path) -> None:
    run = simulated(tmp_path, CASES[name])
    with disturbed(CASES[name]):
        run.play()
    conforms(tmp_path, CASES[name])
    assert all(len(context.state) == 0 for context in run.contexts)  # nothing is left with Flower


def test_nodes_that_are_not_registered_are_asked_for_their_names(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    run.registered = False
    run.play()
    conforms(tmp_path)


def test_a_second_node_in_a_sites_name_changes_nothing_and_is_said(tmp_path: Path) -> None:
    """Nodes without keys may say what they like: here another one is b too, with other data."""
    run = simulated(tmp_path)
    run.registered = False
    late: list[Message] = []

    def away(name: str, message: Message, context: Context, app: Callable[[Message, Context], Message]) -> Message:
        if name == "thief" and not (tmp_path / "server" / "run" / "roster.json").exists():
            late.append(message)
            raise RuntimeError("not yet there")
        return app(message, context)

    run.nodes = dict(run.nodes) | {"thief": dict(run.nodes["b"]) | {"folder": str(tmp_path / "thief")}}
    run.between = away
    run.play()
    conforms(tmp_path)
    assert late and "in the name of site b: not taken" in said(tmp_path)


def is_answer(reply: Message, round: int) -> bool:
    found = decode(_payload(reply) or b"")
    return (found.kind, found.round, found.note.get("stage")) == ("answer", round, "train")


def test_an_answer_that_was_lost_is_given_again_and_not_computed_twice(tmp_path: Path) -> None:
    """The process dies between its disk and Flower: what Flower alone would step twice."""
    run = simulated(tmp_path)
    lost: list[str] = []

    def mortal(name: str, message: Message, context: Context, app: Callable[[Message, Context], Message]) -> Message:
        reply = app(message, context)
        if name == "b" and not lost and is_answer(reply, 2):
            lost.append(name)
            raise RuntimeError("killed")
        return reply

    run.between = mortal
    run.play()
    conforms(tmp_path)
    assert lost and "site b did not answer (Flower's error 2)" in said(tmp_path)


def test_a_new_run_goes_on_from_the_checkpoint_and_nothing_is_stepped_twice(tmp_path: Path) -> None:
    """The server is gone when all have taken their fourth step and it has not yet heard of it."""

    class Killed(BaseException):
        pass

    trained = Hub._trained

    def dying(self: Hub, round: int, found: Any) -> Any:
        if round == 3:
            raise Killed
        return trained(self, round, found)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Hub, "_trained", dying)
        simulated(tmp_path).play()
    assert read_json(tmp_path / "server" / "status.json")["round"] == 3
    simulated(tmp_path).play()
    conforms(tmp_path)
    simulated(tmp_path).play()  # finished: nothing more happens
    conforms(tmp_path)


def test_what_goes_wrong_at_a_site_stays_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A node that was started without its file: the server is told that there was an error, not which."""
    run = simulated(tmp_path, **{"join-timeout": 6.0, "min-clients": 3})
    run.nodes = dict(run.nodes) | {"b": {"site": "b", "folder": str(tmp_path / "b")}}
    replies: list[Message] = []

    def seen(name: str, message: Message, context: Context, app: Callable[[Message, Context], Message]) -> Message:
        replies.append(app(message, context))
        return replies[-1]

    run.between = seen
    with pytest.raises(SartorError, match=r"only 2 of at least 3 sites .* \(missing: b\)"):
        run.play()
    errors = [r.error for r in replies if r.has_error()]
    assert errors and {e.reason for e in errors} == {"the site's own log says why"}
    assert "lacks data" in capfd.readouterr().err
    crossed = b"".join(_payload(r) or b"" for r in replies if r.has_content())
    assert crossed and str(tmp_path).encode() not in crossed


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"recipe": ""}, "lacks recipe; it may have folder, recipe, sites"),
        ({"folder": "here"}, "give the whole path of here"),
        ({"min-clients": 0}, "min-clients >= 1"),
    ],
)
def test_a_run_that_cannot_be_led_is_refused_in_one_line(config: dict[str, Any], words: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(SartorError, match=words):
        simulated(tmp_path, **config).play()
    assert time.monotonic() - began < 5
