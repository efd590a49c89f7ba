"""/healthz says what happens, /metrics counts it: held against what crossed between server and sites."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import commandline
import psutil
import pytest
from sites import NAMES, QUICK, Federation

from sartor.errors import SartorError
from sartor.federation import kits
from sartor.federation.health import STARTING, Health, memory_limit, resident
from sartor.federation.health_port import served
from sartor.federation.limits import SiteLimits
from sartor.federation.logs import EVENTS, EventLog
from sartor.federation.rounds import decode
from sartor.federation.site_meter import SiteMeter
from sartor.federation.work_folder import STATUS, play
from sartor.run.recipe import Recipe
from sartor.storage import write_json


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=30) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def numbers(text: str) -> dict[str, float]:
    """Prometheus' text format, read strictly: every sample has HELP and TYPE before it, and no name comes twice."""
    found: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in kinds and kind in ("gauge", "counter")
            kinds[name] = kind
            continue
        read = re.fullmatch(r'([a-z_]+)(\{[a-z]+="[^"\n]*"(?:,[a-z]+="[^"\n]*")*\})? (\S+)', line)
        assert read is not None and read[1] in kinds and line.split(" ")[0] not in found, line
        assert (kinds[read[1]] == "counter") == read[1].endswith("_total")
        found[read[1] + (read[2] or "")] = float(read[3])
    assert text.endswith("\n") and found
    return found


def test_a_server_says_what_it_does_and_counts_what_came(flame: Federation) -> None:
    place = flame.folder / "work"
    calls = flame.calls()
    lead, health = flame.lead(calls), Health(place, "server", "trial")
    seen = [health.now()]
    lead.say = lambda text: seen.append(health.now())
    play(lead, place, EventLog(place, "server"))
    seen.append(health.now())
    assert [words for _, words in seen] == [
        "starting",
        "waiting for sites",  # it said who has joined
        "in round 2 of 3",
        "in round 3 of 3",
        "scoring after round 3 of 3",
        "done",
    ]
    said = numbers(health.metrics())
    answers = [decode(d) for way, _, d in calls.seen if way == "up" and decode(d).kind == "answer"]
    trained = [m for m in answers if m.note["stage"] == "train"]
    assert said["sartor_round"] == said["sartor_rounds"] == 3 and said['sartor_state{state="done"}'] == 1
    assert len(trained) == 9 and said["sartor_answers_total"] == len(answers)
    sent = sum(v.nbytes for m in trained for k, v in m.arrays.items() if k.startswith("message/"))
    assert said["sartor_bytes_received_total"] == sent > 0
    assert said["sartor_seconds_total"] > 0 and said['sartor_silent{site="a"}'] == 0
    assert not any("epsilon" in name for name in said)
    events = [json.loads(line) for line in (place / EVENTS).read_text().splitlines()]
    assert [e["round"] for e in events if e["event"] == "round"] == [1, 2, 3]


def test_a_site_counts_what_it_did_and_its_events_name_no_client(tmp_path: Path, paths: dict[str, Path]) -> None:
    """The budget is for two messages: the third is refused, with the client's name in the site's own log alone."""
    recipe = Recipe(method="flame", **QUICK, dp_noise=2.0, dp_where="client")
    limits = SiteLimits(least_rows=1, least_scored=1, most_epsilon=3.5)
    fed = Federation(tmp_path, recipe, paths, key="ward", share="none", limits=limits)
    calls = fed.calls()
    meters = {name: SiteMeter(tmp_path / name, name) for name in NAMES}
    health = {name: Health(tmp_path / name, name, "trial") for name in NAMES}
    seen = list[str]()

    def counted(name: str) -> None:
        member = fed.member(name)

        def answer(data: bytes) -> bytes:
            reply = member.answer(data)
            meters[name].note(member, data, reply, 0.25)
            if name == "b":
                seen.append(health["b"].now()[1])
            return reply

        calls.members[name] = answer

    for name in NAMES:
        counted(name)
    with contextlib.suppress(SartorError):
        fed.play(calls)
    passed = {way: [d for w, s, d in calls.seen if (w, s) == (way, "b")] for way in ("down", "up")}
    refused = [decode(d) for d in passed["up"] if decode(d).kind == "refused"]
    said = numbers(health["b"].metrics())
    assert said["sartor_bytes_received_total"] == sum(map(len, passed["down"]))
    assert said["sartor_bytes_sent_total"] == sum(map(len, passed["up"]))
    assert said["sartor_seconds_total"] == 0.25 * len(passed["up"])
    assert said["sartor_answers_total"] == len(passed["up"]) - len(refused)
    assert said['sartor_refusals_total{why="limit"}'] == len(refused) > 0
    assert 0 < said['sartor_epsilon_spent{delta="1e-05"}'] <= 3.5
    assert {"waiting for the first round", "in round 1 of 3", "in round 2 of 3"} <= set(seen)
    told = (tmp_path / "b" / EVENTS).read_text() + health["b"].metrics() + " ".join(seen)
    assert any(
        "client east" in text or "client west" in text for text in fed.said
    )  # the log is for the site's own eyes
    assert not any(word in told for word in ("east", "west", "north", "ill", "well", "dose", str(tmp_path)))
    again = SiteMeter(tmp_path / "b", "b")  # the next job's process goes on counting
    assert again.totals == meters["b"].totals


def test_what_an_earlier_process_wrote_is_not_said_to_be_now(tmp_path: Path) -> None:
    write_json(tmp_path / STATUS, {"state": "playing", "round": 4, "rounds": 9})
    health = Health(tmp_path, "server", "trial")
    assert health.now() == ("starting", STARTING)
    health.wait("waiting for sites: b")
    assert health.now() == ("waiting", "waiting for sites: b")
    write_json(tmp_path / STATUS, {"state": "playing", "round": 5, "rounds": 9})
    assert health.now() == ("playing", "in round 6 of 9")
    health.wait("waiting for sites: c")
    assert health.now() == ("waiting", "waiting for sites: c")
    (tmp_path / STATUS).write_text("{")  # as after a disk went bad
    assert health.now() == ("waiting", "waiting for sites")


@pytest.fixture
def port() -> Iterator[int]:
    yield free_port()


def test_it_is_answered_on_this_machine_only(tmp_path: Path, port: int) -> None:
    health = Health(tmp_path, "server", "trial")
    with served(health, port):
        health.wait("waiting for sites: b")
        assert get(port, "/healthz") == (200, "waiting for sites: b\n")
        code, text = get(port, "/metrics")
        assert code == 200 and numbers(text)['sartor_state{state="waiting"}'] == 1
        assert get(port, "/secrets")[0] == 404 and get(port, "/healthz/../x")[0] == 404
        with pytest.raises(urllib.error.URLError):
            get(port, "/healthz", "127.0.0.2")  # also this machine, but not the address that is listened on
        health.failed = "the server at x:1 does not take this kit"
        assert get(port, "/healthz") == (503, "failed: the server at x:1 does not take this kit\n")
    with pytest.raises(urllib.error.URLError):
        get(port, "/healthz")


@pytest.mark.parametrize(
    ("begun", "said"), [(True, "failed: no server after 600 s."), (False, "failed: at its start;")]
)
def test_a_failure_is_said_and_what_may_quote_data_is_not(begun: bool, said: str, tmp_path: Path, port: int) -> None:
    health = Health(tmp_path, "a", "trial")
    with pytest.raises(SartorError), served(health, port):
        if begun:
            health.wait("waiting for the server")
            raise SartorError("no server after 600 s.")
        raise SartorError("row 7: 'Jane Roe' is not a number.")
    assert health.now()[1].startswith(said) and "Jane" not in health.metrics() + health.now()[1]


def test_a_port_that_is_taken_or_none_is_refused_in_a_line(tmp_path: Path, port: int) -> None:
    health = Health(tmp_path, "server", "trial")
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(SartorError, match=rf"--health-port {port} cannot be had.*in use.*choose another port"):
            served(health, port).__enter__()
    for wrong in (0, -1, 65536):
        with pytest.raises(SartorError, match="1 to 65535"):
            served(health, wrong).__enter__()


def test_memory_is_that_of_a_process_and_all_it_started() -> None:
    code = "import sys; held = bytearray(80_000_000); print('ready', flush=True); sys.stdin.read()"
    before = resident(os.getpid())
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        now, own = resident(os.getpid()), resident(child.pid)
        assert own is not None and abs(own - psutil.Process(child.pid).memory_info().rss) < 5_000_000
        assert before is not None and now is not None and now - before > 70_000_000
    assert resident(2**30) is None
    limit = memory_limit()
    assert limit is None or limit > 0


def test_wrong_options_end_a_start_in_a_line(tmp_path: Path, port: int) -> None:
    pytest.importorskip("nvflare")
    kits.make("trial", f"localhost:{free_port()}", ["a"], tmp_path / "kits")
    (tmp_path / "recipe.toml").write_text('method = "flame"\n')
    start = ("server", tmp_path / "kits" / "server", "--recipe", tmp_path / "recipe.toml")
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert f"--health-port {port} cannot be had" in commandline.refused(*start, "--health-port", port)
    assert "--health-port is a port, 1 to 65535; got 70000" in commandline.refused(*start, "--health-port", 70000)
    linger = commandline.refused(*start, "--health-port", port, "--health-linger", -1)
    assert "--health-linger is a number of seconds, 0 to 86400; got -1" in linger
    assert "--log to be one of 'text', 'json'; got 'yaml'" in commandline.refused(*start, "--log", "yaml")
