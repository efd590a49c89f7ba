"""Shared by the data tests: an own cache folder, a machine without data, and a web server on 127.0.0.1."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sartor.data.known_sets import places

Page = tuple[int, bytes, int]  # status, body, announced length


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, so that no test reads or fills the user's."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("SARTOR_CACHE", str(folder))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return folder


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no data set is installed."""
    monkeypatch.delenv("SARTOR_DATA", raising=False)
    for name in list(places.DEBIAN):
        monkeypatch.delitem(places.DEBIAN, name)


@pytest.fixture
def serve() -> Iterator[Callable[[dict[str, bytes | Page]], str]]:
    """serve({"/file": b"..."}) starts a web server and returns its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(pages: dict[str, bytes | Page]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = pages.get(self.path, (404, b"", 0))
                status, body, length = (200, page, len(page)) if isinstance(page, bytes) else page
                self.send_response(status)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
