"""Downloads from a server on 127.0.0.1: what comes is verified, what fails leaves nothing behind."""

from __future__ import annotations

import gzip
import hashlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.data.known_sets.download import cache_folder, fetch
from sartor.errors import SartorError

DATA = bytes(range(256)) * 50
MD5 = hashlib.md5(DATA).hexdigest()
Serve = Callable[[dict[str, object]], str]


def nothing_left(folder: Path) -> bool:
    return not folder.exists() or not os.listdir(folder)


@pytest.mark.parametrize("digest", [MD5, hashlib.sha256(DATA).hexdigest()])
def test_success(serve: Serve, tmp_path: Path, digest: str) -> None:
    target = tmp_path / "new" / "file.gz"
    packed = gzip.compress(DATA)
    assert fetch(serve({"/file.gz": packed}) + "/file.gz", digest, target) == target
    assert target.read_bytes() == packed and os.listdir(target.parent) == ["file.gz"]


def test_digest_of_the_file_itself(serve: Serve, tmp_path: Path) -> None:
    packed = gzip.compress(DATA)
    url = serve({"/f": packed}) + "/f"
    fetch(url, hashlib.md5(packed).hexdigest(), tmp_path / "a" / "f", content=False)
    with pytest.raises(SartorError, match="not the published file"):
        fetch(url, MD5, tmp_path / "b" / "f", content=False)


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (DATA + b"!", f"was refused: it is not the published file: md5 {MD5} expected"),
        (gzip.compress(DATA)[:-20], "was refused: it is truncated or damaged"),
        ((200, DATA[:100], len(DATA)), "broke off"),
        ((404, b"", 0), "answered 404"),
        ((500, b"oh", 2), "answered 500"),
    ],
    ids=["other content", "cut gzip", "broken off", "404", "500"],
)
def test_failures_leave_nothing(serve: Serve, tmp_path: Path, page: object, message: str) -> None:
    folder = tmp_path / "cache"
    url = serve({"/file": page}) + "/file"
    with pytest.raises(SartorError, match=message) as caught:
        fetch(url, MD5, folder / "file")
    assert url in str(caught.value) and "\n" not in str(caught.value) and ".partial" not in str(caught.value)
    assert nothing_left(folder)


def test_a_good_file_survives_a_failed_fetch(serve: Serve, tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(SartorError):
        fetch(serve({"/file": b"wrong"}) + "/file", MD5, target)
    assert target.read_bytes() == b"old"


def test_connection_refused(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file"
    with pytest.raises(SartorError, match=r"could not be reached \(.*refused\)"):
        fetch(url, MD5, tmp_path / "c" / "file")
    assert nothing_left(tmp_path / "c")


def test_a_silent_server_times_out(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file"
        with pytest.raises(SartorError, match=r"could not be reached .*timed out"):
            fetch(url, MD5, tmp_path / "c" / "file", timeout=0.2)
    assert nothing_left(tmp_path / "c")


def test_other_addresses_and_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SartorError, match="only http and https"):
        fetch("file:///etc/hostname", MD5, tmp_path / "f")
    (tmp_path / "plain").write_text("")
    with pytest.raises(SartorError, match=r"cannot write to .*set SARTOR_CACHE"):
        fetch("http://127.0.0.1:9/", MD5, tmp_path / "plain" / "f")


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SARTOR_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("SARTOR_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "sartor"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "sartor"
