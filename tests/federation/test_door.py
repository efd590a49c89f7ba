"""A site's way to its server: TLS that looks at revoked certificates, proxies, and what is said if there is none."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from commandline import one_line, refused, sartor
from proxies import Proxy, proxy
from sites import tables

pytest.importorskip("nvflare")

from sartor.errors import SartorError
from sartor.federation import authority, kits, signing_requests, supervise_site
from sartor.federation.authority import Authority
from sartor.federation.door import Door, proxy_for
from sartor.federation.kits import Kit
from sartor.federation.membership import rotate
from sartor.federation.revocation import refusing


@dataclass
class Listener:
    """Answers over TLS as NVFlare's driver would, with the server's kit; an `early` one hangs up."""

    kit: Path
    early: bool = False
    socket: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def start(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self.socket.accept()
                with contextlib.suppress(OSError), line:
                    self._answer(line)

    def _answer(self, line: socket.socket) -> None:
        if self.early:
            return
        place = self.kit / "startup"
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(place / "rootCA.pem"))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(place / "server.crt", place / "server.key")
        refusing(context, self.kit)
        with context.wrap_socket(line, server_side=True) as safe:
            safe.recv(100)


@pytest.fixture(autouse=True, scope="module")
def smaller_keys() -> Iterator[None]:
    """Quickly made ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signing_requests, "KEY_BITS", 2048)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("door") / "kits"
    kits.make("trial", "localhost:443", ["a", "b"], found)
    return found


@pytest.fixture
def server(folder: Path) -> Iterator[Listener]:
    found = Listener(folder / "server")
    found.start()
    yield found
    found.socket.close()


def door(folder: Path, port: int, through: str | None = None) -> Door:
    return Door(folder, replace(Kit.load(folder, "site"), port=port), through)


def test_a_site_finds_its_server_and_says_why_not(server: Listener, folder: Path) -> None:
    assert door(folder / "a", server.port).closed() == ""
    server.early = True
    assert door(folder / "a", server.port).closed() == f"the connection to localhost:{server.port} was cut"
    server.socket.close()
    assert door(folder / "a", 1).closed() == "no server at localhost:1"


def test_a_revoked_certificate_is_refused_in_the_handshake_on_either_side(
    server: Listener, folder: Path, tmp_path: Path
) -> None:
    """The old kit of a is a thief's; then the server gets a new key, and its old one is used by somebody."""
    thief = Path(shutil.copytree(folder / "a", tmp_path / "thief"))
    old = Path(shutil.copytree(folder / "server", tmp_path / "server"))
    assert door(thief, server.port).closed() == ""
    rotate(folder, "a")
    assert door(folder / "a", server.port).closed() == ""
    with pytest.raises(SartorError, match="refuses this kit: its certificate is revoked"):
        door(thief, server.port).closed()
    rotate(folder, "server")
    assert door(folder / "a", server.port).closed() == ""
    pretender = Listener(old)
    pretender.start()
    with pytest.raises(SartorError, match="uses a certificate that is revoked: it needs its new kit"):
        door(folder / "a", pretender.port).closed()
    pretender.socket.close()


async def _until_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.close()


def test_a_server_that_hangs_up_is_asked_a_few_times_only(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NVFlare's does, which is asyncio's: without an alert."""
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: None)
    monkeypatch.setattr(supervise_site, "time", clock)
    thief = Path(shutil.copytree(folder / "b", tmp_path / "thief"))
    rotate(folder, "b")
    place, loop = folder / "server" / "startup", asyncio.new_event_loop()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(place / "rootCA.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(place / "server.crt", place / "server.key")
    refusing(context, folder / "server")
    server = loop.run_until_complete(asyncio.start_server(_until_the_end, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        port = int(server.sockets[0].getsockname()[1])
        assert door(folder / "b", port).closed() == ""
        old = door(thief, port)
        assert (
            old.closed()
            == old.hung_up
            == f"the server at localhost:{port} hangs up when it sees this kit's certificate"
        )
        place = thief / "kit.json"
        place.write_text(place.read_text().replace('"port": 443', f'"port": {port}'))
        line = one_line(sartor("client", thief, "--data", tables(tmp_path)["b"], "--target", "outcome").err)
        assert "it is revoked, or by the server's clock not valid (it is from 2" in line
    finally:
        server.close()
        asyncio.run_coroutine_threadsafe(server.wait_closed(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_server_that_is_not_ours_or_out_of_date_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    kits.make("corporate-proxy", "localhost:443", ["a"], other)
    stranger = Listener(other / "server")
    stranger.start()
    with pytest.raises(SartorError, match="has a certificate of 'corporate-proxy', not of this federation's authority"):
        door(folder / "a", stranger.port).closed()
    stranger.socket.close()
    signer = Authority.load(folder)

    class LastYear(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) - timedelta(days=365)

    monkeypatch.setattr(authority, "datetime", LastYear)
    kits.own_kit(signer, "server", tmp_path / "late", instead=True)
    late = Listener(tmp_path / "late")
    late.start()
    with pytest.raises(SartorError, match=r"the certificate of the server expired on .* UTC, and this machine's clock"):
        door(folder / "a", late.port).closed()
    late.socket.close()


def test_a_site_goes_through_a_proxy(server: Listener, folder: Path) -> None:
    with proxy() as way:
        through = way.address.replace("//", "//user:pass%20word@")
        found = door(folder / "b", server.port, through)
        assert found.closed() == ""
        assert way.asked == [f"CONNECT localhost:{server.port} HTTP/1.0"] and way.bytes > 1000
        assert "Proxy-Authorization: Basic dXNlcjpwYXNzIHdvcmQ=" in way.headers  # user:pass word
        assert found.words == f"localhost:{server.port} (through {way.address.removeprefix('http://')})"
        way.refuse = "407 Proxy Authentication Required"
        assert "does not connect to the server (407 Proxy Authentication Required)" in found.closed()
    assert "does not connect to the server" in found.closed()  # it is gone


def test_which_proxy_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kit = replace(Kit.load(folder / "a", "site"), host="fl.example.org")
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert proxy_for(kit, None) is None
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example.org:3128")
    assert proxy_for(kit, None) == "http://proxy.example.org:3128"
    assert proxy_for(kit, "http://other:1") == "http://other:1"
    assert proxy_for(replace(kit, host="localhost"), None) is None
    monkeypatch.setenv("NO_PROXY", ".example.org")
    assert proxy_for(kit, None) is None
    data = tables(tmp_path)["a"]
    for bad in ("socks5://x:1", "http://x:port", "http://"):
        line = refused("client", folder / "a", "--data", data, "--target", "outcome", "--proxy", bad)
        assert "a proxy is http://HOST:PORT" in line


def test_any_port_may_be_chosen(folder: Path) -> None:
    """443, which is often the only one that leaves a hospital."""
    about = (folder / "b" / "startup" / "fed_client.json").read_text()
    assert Kit.load(folder / "b", "site").port == 443 and '"target": "localhost:443"' in about


def test_a_proxy_cuts_what_it_carries() -> None:
    """What the test's own proxy is for."""
    with proxy() as way, socket.create_server(("127.0.0.1", 0)) as beyond:
        line = _through(way, int(beyond.getsockname()[1]))
        there, _ = beyond.accept()
        with line, there:
            line.sendall(b"x")
            assert there.recv(1) == b"x"
            way.cut()
            assert line.recv(1) == b"" and there.recv(1) == b""


def _through(way: Proxy, port: int) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", int(way.address.rpartition(":")[2])))
    line.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
    assert b"200" in line.recv(100)
    return line
