"""A proxy on this machine: lets connections through (HTTP CONNECT), notes them, and cuts them when it is told to."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Proxy:
    """Listens on 127.0.0.1 until it is closed; `refuse` is an HTTP status that it answers with instead."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.asked: list[str] = []  # the first lines of all requests
        self.headers = ""
        self.refuse = ""
        self.lines: list[socket.socket] = []
        self.bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), line:
            head = b""
            while b"\r\n\r\n" not in head:
                if not (more := line.recv(1)):
                    return
                head += more
            first, _, self.headers = head.decode().partition("\r\n")
            self.asked.append(first)
            if self.refuse:
                line.sendall(f"HTTP/1.1 {self.refuse}\r\n\r\n".encode())
                return
            host, _, port = first.split()[1].rpartition(":")
            with socket.create_connection((host, int(port))) as beyond:
                line.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                self.lines += [line, beyond]
                back = threading.Thread(target=self._carry, args=(beyond, line), daemon=True)
                back.start()
                self._carry(line, beyond)
                back.join()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.bytes += len(data)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """End all connections, without a word."""
        for line in self.lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        self.lines.clear()


@contextlib.contextmanager
def proxy() -> Iterator[Proxy]:
    found = Proxy()
    try:
        yield found
    finally:
        found.listener.close()
        found.cut()
