"""Serving a live page: on 127.0.0.1 alone, read-only, one page and its news; nothing else of the machine is shown."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ..errors import SartorError
from . import live
from .pieces import safe_json

ADDRESS = "127.0.0.1"
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def serve(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """A server for the live page of `folder`, ready for `serve_forever`; port 0: one that is free."""
    pages: dict[str, tuple[str, Callable[[], str]]] = {
        "/": ("text/html; charset=utf-8", lambda: live.page(folder)),
        "/state.json": ("application/json", lambda: safe_json(live.state(folder))),
    }

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "sartor", ""
        timeout = 10

        def do_GET(self) -> None:
            names = {f"{ADDRESS}:{made.server_port}", f"localhost:{made.server_port}"}
            if self.headers.get("Host") not in names:  # another site's name for this address: none of its business
                self._answer(403, "text/plain", "this page is for this machine alone\n")
            elif self.path not in pages:
                self._answer(404, "text/plain", "there is one page: /\n")
            else:
                kind, make = pages[self.path]
                try:
                    self._answer(200, kind, make())
                except Exception:  # what lies in the folder is half written, or odd: the next look may do
                    self._answer(503, "text/plain", "try again\n")

        do_HEAD = do_GET

        def _answer(self, code: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for name, value in HEADERS.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    try:
        made = ThreadingHTTPServer((ADDRESS, port), Handler)
    except (OSError, OverflowError) as e:
        raise SartorError(f"cannot listen on port {port} of {ADDRESS}: {e}; choose another --port, or 0.") from e
    made.daemon_threads = True
    return made
