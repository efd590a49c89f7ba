"""/healthz and /metrics over HTTP, on 127.0.0.1 only: who may log in to this machine may look, nobody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .. import __version__
from ..errors import SartorError, need, reason
from .health import STARTING, Health

HOST = "127.0.0.1"


class _Answers(BaseHTTPRequestHandler):
    """GET /healthz, /metrics; nothing else, and nothing is taken from who asks."""

    timeout = 5
    server_version, sys_version = f"sartor/{__version__}", ""
    health: Health

    def do_GET(self) -> None:
        if self.path == "/healthz":
            state, words = self.health.now()
            self._say(503 if state == "failed" else 200, words + "\n", "text/plain; charset=utf-8")
        elif self.path == "/metrics":
            self._say(200, self.health.metrics(), "text/plain; version=0.0.4; charset=utf-8")
        else:
            self._say(404, "there are /healthz and /metrics\n", "text/plain; charset=utf-8")

    def _say(self, code: int, text: str, kind: str) -> None:
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Who asks is not logged."""


@contextmanager
def served(health: Health, port: int | None, linger: float = 0.0) -> Iterator[None]:
    """Answer monitors on a port of 127.0.0.1 while the block runs, and for `linger` seconds after its end, so that the
    last state is seen. Without a port nobody is answered."""
    if port is None:
        yield
        return
    need(1 <= port <= 65535, f"--health-port is a port, 1 to 65535; got {port}.")
    need(0 <= linger <= 86400, f"--health-linger is a number of seconds, 0 to 86400; got {linger:g}.")
    try:
        server = ThreadingHTTPServer((HOST, port), type("Answers", (_Answers,), {"health": health}))
    except OSError as e:
        text = f"--health-port {port} cannot be had on {HOST}: {reason(e)}"
        raise SartorError(f"{text}. End what listens there, or choose another port.") from e
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True)
    thread.start()
    try:
        yield
        health.done = True
        time.sleep(linger)
    except SartorError as e:
        # Before a supervisor has begun, an error may quote the data file: that is said on the terminal only.
        health.failed = "at its start; its own output says why" if health.waiting == STARTING else str(e)
        time.sleep(linger)
        raise
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
