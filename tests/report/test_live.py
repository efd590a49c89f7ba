"""The live page's server: this machine alone, read-only, one page and its news."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commandline import OWN, QUICK, good, history, hospitals, refused, sartor, stop_in_round
from pages import Page, live_page
from waiting import STILL, ended

from sartor.report import live


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    with live_page(tmp_path) as port:
        yield tmp_path, port


def ask(port: int, path: str, method: str = "GET", host: str | None = None) -> tuple[int, dict[str, str], bytes]:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=STILL)
    try:
        line.request(method, path, headers={} if host is None else {"Host": host})
        answer = line.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        line.close()


def test_only_this_machine_is_answered(served: tuple[Path, int]) -> None:
    _, port = served
    assert ask(port, "/")[0] == 200 and ask(port, "/", host=f"localhost:{port}")[0] == 200
    for host in ("example.org", f"example.org:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", f"[::1]:{port}", ""):
        code, _, body = ask(port, "/state.json", host=host)
        assert code == 403 and b"{" not in body, host  # another name for this address (DNS rebinding)
    with socket.socket() as other:  # on no other interface
        assert other.connect_ex((_own_address(), port)) != 0 or _own_address().startswith("127.")


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def test_there_is_nothing_to_write_and_nothing_else_to_read(served: tuple[Path, int]) -> None:
    folder, port = served
    (folder / "secret.txt").write_text("secret")
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert ask(port, "/", method)[0] == 501
    for path in ("/secret.txt", "/../secret.txt", "/state.json/", "/%2e%2e/", "/?x", "/recipe.toml"):
        code, _, body = ask(port, path)
        assert code == 404 and b"secret" not in body, path
    assert {p.name for p in folder.iterdir()} == {"secret.txt"}
    code, headers, body = ask(port, "/", "HEAD")
    assert code == 200 and body == b"" and int(headers["Content-Length"]) > 0


def test_the_page_allows_itself_its_own_server_and_nothing_else(served: tuple[Path, int]) -> None:
    folder, port = served
    table = hospitals(folder / "x.csv", names=("<img src=x onerror=alert(1)>", "</script><script>", "c"))
    good("run", *QUICK, "--data", table, *OWN, "--out", folder, "--quiet")
    code, headers, body = ask(port, "/")
    page = Page(body.decode())
    page.is_self_contained()
    assert code == 200 and page.policy()["connect-src"] == "'self'"
    assert headers["Cache-Control"] == "no-store" and headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY" and "Access-Control-Allow-Origin" not in headers
    _, headers, news = ask(port, "/state.json")
    assert headers["Content-Type"] == "application/json" and b"<" not in news


def test_the_news_grow_with_the_run(tmp_path: Path) -> None:
    assert "nothing to see yet" in live.state(tmp_path)["title"]
    call = ("run", *QUICK, "--rounds", 4, "--evaluate-every", 1, "--checkpoint-every", 1, "--out", tmp_path)
    with stop_in_round(2):
        sartor(*call)
    found = live.state(tmp_path)
    assert found["lead"][0] == ["Round 2 of 4.", "lead"] and found["tables"]["progress-table"][0][1][0] == "running"
    good("run", "--resume", tmp_path, "--quiet")
    later = live.state(tmp_path)
    assert later["lead"][0] == ["Complete.", "lead"] and later["parts"] == found["parts"]
    curve = next(t for t in later["charts"]["accuracy"]["variants"]["rounds"]["data"] if t["name"] == "chosen")
    assert curve["y"] == [line["chosen"]["accuracy_mean"] for line in history(tmp_path)]


def test_the_news_of_a_comparison_name_what_is_to_come(tmp_path: Path) -> None:
    asked = ("--methods", "fedavg,local", "--seeds", "0,1", "--workers", 1)  # one method after the other
    call = ("compare", *QUICK, "--evaluate-every", 1, *asked, "--out", tmp_path)
    with stop_in_round(1):
        sartor(*call)
    rows = live.state(tmp_path)["tables"]["progress-table"]
    assert [(r[0][0], r[1][0]) for r in rows] == [
        ("fedavg, seed 0", "running"),
        ("local, seed 0", "waiting"),
        ("fedavg, seed 1", "running"),  # together with the first
        ("local, seed 1", "waiting"),
    ]
    good(*call, "--quiet")
    found = live.state(tmp_path)
    assert found["lead"][0][0] == "Complete." and {r[1][0] for r in found["tables"]["progress-table"]} == {"complete"}
    begun = tmp_path / "fedavg-1"  # as if its second round were not there yet
    (begun / "summary.json").unlink()
    (begun / "history.jsonl").write_text((begun / "history.jsonl").read_text().splitlines()[0] + "\n")
    (tmp_path / "compare.json").unlink()
    found = live.state(tmp_path)
    curves = found["charts"]["accuracy"]["variants"]["chosen|rounds"]["data"]
    assert [t["x"] for t in curves if t["name"] == "fedavg"] == [[1, 2]]  # of the seed that is complete
    assert found["lead"][0][0] == "3 of 4 runs are complete."


def test_what_is_half_written_is_looked_at_again(served: tuple[Path, int]) -> None:
    folder, port = served
    good("run", *QUICK, "--out", folder, "--quiet")
    whole = (folder / "history.jsonl").read_text()
    for text in ("", whole[: len(whole) // 2], "null"):
        (folder / "history.jsonl").write_text(text)
        code, _, body = ask(port, "/state.json")
        assert code in (200, 503) and (code == 503 or json.loads(body)["title"])
    (folder / "history.jsonl").write_text(whole)
    assert ask(port, "/state.json")[0] == 200


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "  # may be ignored here
    code += "sys.argv = ['sartor', 'watch', sys.argv[1]]; from sartor.cli import main; main()"
    words = [sys.executable, "-c", code, str(tmp_path)]
    watching = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert watching.stdout is not None
    line = watching.stdout.readline()
    assert line.startswith("http://127.0.0.1:") and "Ctrl-C" in line
    assert ask(int(line.split(":")[2].split("/")[0]), "/")[0] == 200
    watching.send_signal(signal.SIGINT)
    out, err = ended(watching)
    assert watching.returncode == 0 and out == "" and err == ""


def test_what_cannot_be_watched_is_refused(tmp_path: Path, served: tuple[Path, int]) -> None:
    assert "is not a folder" in refused("watch", tmp_path / "nowhere")
    assert "cannot listen" in refused("watch", tmp_path, "--port", served[1])
    assert "cannot listen" in refused("watch", tmp_path, "--port", 70000)
