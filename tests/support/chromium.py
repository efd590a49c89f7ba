"""A headless Chromium, spoken to over a pipe in the DevTools protocol: nothing to install but the browser itself.

It records what must not happen: errors in the console, exceptions, requests over the network, dialogs.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from waiting import Watch

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"),
    *("--disable-component-update", "--no-first-run", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--force-color-profile=srgb", "--remote-debugging-pipe", "--mute-audio", "--disable-extensions"),
)
# Chromium reads commands from file 3 and writes answers to file 4.
_START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]]
for end, place in zip(ends, (3, 4)):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""
MISSING = "no Chromium was found: apt-get install chromium, or say where it is in $CHROMIUM"


def find() -> str | None:
    """Where a Chromium is; None: nowhere."""
    own = os.environ.get("CHROMIUM")
    return own or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One Chromium, ended by `close`."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        words = [program, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        quiet, fds = subprocess.DEVNULL, (to_read, to_write)
        start = [sys.executable, "-I", "-S", "-c", _START, *map(str, fds), *words]
        self._process = subprocess.Popen(start, pass_fds=fds, stdin=quiet, stdout=quiet, stderr=quiet)
        os.close(to_read)
        os.close(to_write)
        self._number, self._rest = 0, b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """A command and its answer, which is waited for as long as Chromium does something. Events that come before it
        are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        watch = Watch(lambda: [self._process.pid])
        while True:
            try:
                found = self._next(1.0)
            except TimeoutError:
                watch.check()
                continue
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']['message']}")
                return dict(found["result"])
            if "method" in found:
                self.events.append(found)

    def listen(self, seconds: float) -> None:
        """Take what comes in this time."""
        deadline = time.monotonic() + seconds
        with contextlib.suppress(TimeoutError):
            while True:
                self.events.append(self._next(max(0.0, deadline - time.monotonic())))

    def _next(self, seconds: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], seconds)
            if not ready:
                raise TimeoutError
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("Chromium has ended")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for handle in (self._read, self._write):
            os.close(handle)
        self._profile.cleanup()

    @contextlib.contextmanager
    def page(self, width: int = 1280, height: int = 900, dark: bool = False, scale: float = 1.0) -> Iterator[Page]:
        """A page of this size; on a narrow one, a phone's."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
        page.call("Emulation.setDeviceMetricsOverride", **metrics)
        page.scheme(dark)
        try:
            yield page
        finally:
            self.call("Target.closeTarget", targetId=target)
            self.call("Target.disposeBrowserContext", browserContextId=context)
            self.events = [e for e in self.events if e.get("sessionId") != session]


class Page:
    """A page, and what happened on it."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def scheme(self, dark: bool) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def open(self, where: Path | str, ready: str = "document.documentElement.dataset.ready === '1'") -> None:
        """Go there, and wait until `ready` holds."""
        self.call("Page.navigate", url=where if isinstance(where, str) else where.resolve().as_uri())
        self.wait(f"document.readyState === 'complete' && {ready}")

    def run(self, script: str) -> Any:
        """What a script gives."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            about = found["exceptionDetails"]
            raise RuntimeError(str(about.get("exception", {}).get("description", about)))
        return found["result"].get("value")

    def wait(self, condition: str, answers: int = 2000) -> None:
        """Until a condition holds, for as many answers of the page: on a busy machine they take longer."""
        for _ in range(answers):
            if self.run(f"Boolean({condition})"):
                return
            self._browser.listen(0.05)
        raise TimeoutError(f"never: {condition}; {self.trouble()}")

    def hear(self, *words: str, answers: int = 2000) -> list[str]:
        """The troubles in words, when each of these is among them."""
        for _ in range(answers):
            said = self.trouble()
            if all(any(w in text for text in said) for w in words):
                return said
            self.run("0")
        raise TimeoutError(f"never: {words}; {said}")

    def click(self, script: str) -> None:
        """Click with the mouse into the middle of the element that a script gives."""
        box, before = self._box(script), None
        while box != before:  # what is drawn above it meanwhile moves it
            time.sleep(0.05)
            box, before = self._box(script), box
        x, y = box[0] + box[2] / 2, box[1] + box[3] / 2
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def _box(self, script: str) -> Any:
        """x, y, width and height of an element in the middle of the window."""
        self.run(f"({script}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
        return self.run(
            f"(() => {{ const b = ({script}).getBoundingClientRect(); return [b.x, b.y, b.width, b.height] }})()"
        )

    def events(self, *methods: str) -> list[dict[str, Any]]:
        mine = [e for e in self._browser.events if e.get("sessionId") == self._session]
        return [e["params"] for e in mine if e["method"] in methods]

    def trouble(self) -> list[str]:
        """Errors in the console, exceptions and dialogs, in words."""
        self._browser.listen(0.05)
        said = [
            str(e["exceptionDetails"].get("exception", {}).get("description", e))
            for e in self.events("Runtime.exceptionThrown")
        ]
        for e in self.events("Runtime.consoleAPICalled"):
            if e["type"] in ("error", "warning", "assert"):
                said.append(" ".join(str(a.get("value", a.get("description"))) for a in e["args"]))
        said += [
            e["entry"]["text"] for e in self.events("Log.entryAdded") if e["entry"]["level"] in ("error", "warning")
        ]
        return said + [f"dialog: {e['message']}" for e in self.events("Page.javascriptDialogOpening")]

    def requests(self) -> list[str]:
        """What was asked for beside the page itself and what it holds."""
        urls = [e["request"]["url"] for e in self.events("Network.requestWillBeSent") if e.get("type") != "Document"]
        return [url for url in urls if not url.startswith(("data:", "blob:"))]

    def screenshot(self, path: Path, height: int | None = None) -> None:
        """A picture of what is seen, or from the top to `height`."""
        width = self.run("innerWidth")
        clip = {} if height is None else {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=height is not None, **clip)
        path.write_bytes(base64.b64decode(found["data"]))
