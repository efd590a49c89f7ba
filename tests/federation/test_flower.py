"""Over Flower: the local engine's numbers, whatever is lost; states on our disks; a site's troubles stay there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conformance import CASES, PARTIAL, PLAIN, RAISES, SLOW, Case, agrees, data, disturbed, of_sites
from identities import identities, written
from sites import EXACT, NAMES
from subsets import first

pytest.importorskip("flwr")

from flower_processes import Flower
from flower_runs import Simulated
from flwr.app import Context, Message

from sartor.errors import SartorError
from sartor.federation import server as module
from sartor.federation.flower_apps import client, server
from sartor.federation.rounds import decode
from sartor.federation.rounds.remote_engine import RemoteEngine
from sartor.federation.transports.flower import _payload
from sartor.run.recipe import Recipe
from sartor.storage import read_json

FLAME = CASES["flame"]
QUICK = {"ask-again": 1.0, "round-timeout": 900.0, "join-timeout": 900.0, "min-clients": 1}


def configured(folder: Path, recipe: Recipe, /, **config: Any) -> dict[str, Any]:
    """A run's configuration."""
    (folder / "recipe.toml").write_text(recipe.toml())
    own = {"folder": str(folder / "server"), "recipe": str(folder / "recipe.toml"), "sites": ",".join(NAMES)}
    return own | config


def simulated(at: Path, case: Case = FLAME, /, **config: Any) -> Simulated:
    """Three SuperNodes that are started with a hospital's file each."""
    return Simulated(server, client, nodes(at), configured(at, case.recipe(), **QUICK | config))


def nodes(folder: Path) -> dict[str, dict[str, Any]]:
    """Each node's configuration."""
    limits = {"least-scored": EXACT.least_scored, "score-digits": EXACT.score_digits}
    own = {n: {"site": n, "folder": str(folder / n), "data": str(data()[n]), "target": "outcome"} for n in NAMES}
    return {n: values | limits for n, values in own.items()}


def conforms(folder: Path, case: Case = FLAME) -> None:
    agrees(case, of_sites(folder / "server" / "run", [folder / n for n in NAMES]))


def said(folder: Path, name: str = "server") -> str:
    return (folder / name / "log.txt").read_text()


@pytest.mark.parametrize(
    "name", first([*PLAIN, PARTIAL[0], PARTIAL[4], RAISES[0], SLOW[0]], "fedamp", PARTIAL[0], RAISES[0])
)
def test_the_numbers_of_the_local_engine(name: str, tmp_path: Path) -> None:
    run = simulated(tmp_path, CASES[name])
    with disturbed(CASES[name]):
        run.play()
    conforms(tmp_path, CASES[name])
    assert all(len(context.state) == 0 for context in run.contexts)  # nothing is left with Flower


def test_masked_rounds_with_the_certificates_of_kits(tmp_path: Path) -> None:
    """Secure aggregation over Flower: the numbers of the simulation; without a kit it is refused."""
    case = Case("secure", {"method": "flame", "secure_aggregation": True, "compress_down": "int8"})
    kits = {name: written(own, tmp_path / "kits" / name) for name, own in identities(NAMES).items()}
    run = simulated(tmp_path, case, kit=str(kits["a"]))
    for name, values in run.nodes.items():
        values["kit"] = str(kits[name])
    run.play()
    conforms(tmp_path, case)


def test_nodes_that_are_not_registered_are_asked_for_their_names(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    run.registered = False
    run.play()
    conforms(tmp_path)


def test_a_second_node_in_a_sites_name_changes_nothing_and_is_said(tmp_path: Path) -> None:
    """Nodes without keys may say what they like. One comes as b when b has joined: it takes the terms and answers."""
    run = simulated(tmp_path)
    run.registered = False
    answered: list[str] = []

    def late(name: str, message: Message, context: Context, app: Callable[[Message, Context], Message]) -> Message:
        data = _payload(message) or b""
        if name == "thief" and len(data) > 1:
            if decode(data).kind == "hello":
                raise RuntimeError("not yet there")
            answered.append(decode(data).kind)
        return app(message, context)

    run.nodes = dict(run.nodes) | {"thief": dict(run.nodes["b"]) | {"folder": str(tmp_path / "thief")}}
    run.between = late
    run.play()
    conforms(tmp_path)
    assert {"welcome", "train", "evaluate"} <= set(answered)
    assert "rejected an answer in the name of site b from another process" in said(tmp_path)


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

    trained = RemoteEngine._trained

    def dying(self: RemoteEngine, round: int, found: Any) -> Any:
        if round == 3:
            raise Killed
        return trained(self, round, found)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(RemoteEngine, "_trained", dying)
        simulated(tmp_path).play()
    assert read_json(tmp_path / "server" / "status.json")["round"] == 3
    simulated(tmp_path).play()
    conforms(tmp_path)
    simulated(tmp_path).play()  # finished: nothing more happens
    conforms(tmp_path)


def test_what_goes_wrong_at_a_site_stays_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that was started without its file: the server is told that there was an error, not which."""
    run = simulated(tmp_path, **{"min-clients": 3})
    run.nodes = dict(run.nodes) | {"b": {"site": "b", "folder": str(tmp_path / "b")}}
    replies: list[Message] = []
    asked: list[str] = []

    def seen(name: str, message: Message, context: Context, app: Callable[[Message, Context], Message]) -> Message:
        asked.append(name)
        replies.append(app(message, context))
        return replies[-1]

    def now() -> float:
        """The hour has passed when b alone is asked again: the others have joined."""
        return time.monotonic() + (3600 if asked[-2:] == ["b", "b"] else 0)

    run.between = seen
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=now))
    with pytest.raises(SartorError, match=r"only 2 of at least 3 sites .* missing after [0-9]+ s: b\."):
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
        ({"folder": "here"}, "here must be an absolute path"),
        ({"min-clients": 0}, "min-clients >= 1"),
    ],
)
def test_a_run_that_cannot_be_led_is_refused_in_one_line(config: dict[str, Any], words: str, tmp_path: Path) -> None:
    run = simulated(tmp_path, **config)
    asked: list[str] = []

    def seen(name: str, message: Message, context: Context, app: Callable[[Message, Context], Message]) -> Message:
        asked.append(name)
        return app(message, context)

    run.between = seen
    with pytest.raises(SartorError, match=words):
        run.play()
    assert not asked


# --- real SuperLinks and SuperNodes: slow -----------------------------------------------------------------------------

SHORT = Case("flame, three rounds", {"method": "flame", "rounds": 3, "evaluate_every": 3})


@pytest.fixture
def flower(tmp_path: Path) -> Iterator[Flower]:
    config = configured(tmp_path, SHORT.recipe(), **{"ask-again": 20.0, "round-timeout": 900.0, "min-clients": 3})
    found = Flower(tmp_path / "flower", nodes(tmp_path), config)
    try:
        yield found
    finally:
        found.end()


@pytest.mark.federation
@pytest.mark.parametrize("what", ["an app's process", "a SuperNode", "the ServerApp", "the SuperLink"])
def test_killed_anywhere_to_the_same_bytes(what: str, flower: Flower, tmp_path: Path) -> None:
    flower.start()
    flower.run()
    flower.until(lambda: flower.status()["round"] >= 1)
    began = time.monotonic()
    if what == "an app's process":
        flower.until(lambda: flower.program("b", "flwr-clientapp") is not None)
        process = flower.program("b", "flwr-clientapp")
        assert process is not None
        process.kill()
    elif what == "a SuperNode":
        flower.kill("b")
        flower.start("b")
    elif what == "the ServerApp":
        process = flower.program("superlink", "flwr-serverapp")
        assert process is not None
        process.kill()
        flower.run()
    else:
        flower.kill("superlink")
        flower.start("superlink")
        flower.run()
    assert flower.status()["round"] < 3
    flower.finish()
    print(f"\nkilled {what}: finished {time.monotonic() - began:.0f} s later")
    conforms(tmp_path, SHORT)


@pytest.mark.federation
def test_over_tls_with_keys_for_nodes(tmp_path: Path) -> None:
    """And a node whose key is not registered is turned away."""
    short = Case("flame, one round", {"method": "flame", "rounds": 1, "evaluate_every": 1})
    config = configured(tmp_path, short.recipe(), **{"min-clients": 3})
    known = nodes(tmp_path)
    found = Flower(tmp_path / "flower", known | {"mallory": known["b"]}, config, secure=True, strangers=("mallory",))
    try:
        found.start()
        found.until(lambda: found.started["mallory"].poll() not in (None, 0))
        assert "Failed to activate SuperNode" in found.said("mallory")
        found.run()
        found.finish()
        conforms(tmp_path, short)
    finally:
        found.end()
