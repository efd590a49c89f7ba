"""Flower as a transport: requests are messages to SuperNodes, replies are theirs. Bytes in, bytes out.

Flower starts a new process at the site for every message, keeps nothing that outlives a SuperNode, and delivers a
message at most once. So nothing is kept in `Context.state`: what is in the bytes, that nothing happens twice and where
states lie is the business of sartor.federation.

A node is known by the name with which its key was registered (`flwr supernode register --name`). Where nodes are not
authenticated it is asked, and believed: then only the seat that a site drew when it joined tells it from another.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from ..rounds.remote_engine import Transport

_RECORD, _PAYLOAD, _NAME = "sartor", "payload", "name"
_WHO = b"?"  # the question for a name, and its answer's payload
_POLL = 0.1  # seconds between two looks for answers; Flower's own waits three
_LOOK = 2.0  # seconds between two looks at which nodes are there
_MARGIN = 60.0  # seconds that Flower keeps a message longer than we do


class Nodes:
    """A message for each node that bears a site's name.

    All of them: a SuperNode that was killed is listed for a minute beside the one that was started in its place. But
    none while the same one stands: a SuperNode takes messages one after the other, and repetitions would pile up. That
    a message is lost shows by an error, or by the node's going; if by neither, it is given up after `patience` seconds.
    """

    def __init__(self, grid: Grid, patience: float, say: Callable[[str], None]) -> None:
        self.grid, self.patience, self.say = grid, patience, say
        self.names: dict[int, str] = {}  # by node; "" while it has not yet said
        self.standing: dict[str, bytes] = {}  # by site: what it has not yet answered
        self.open: dict[str, tuple[int, bytes, float]] = {}  # by message: the node, the request, and when it was sent
        self.looked = -_LOOK

    def post(self, site: str, request: bytes) -> None:
        """A message for a site; one that is not there gets it when it comes."""
        self.standing[site] = request
        for node in [n for n, name in self.names.items() if name == site]:
            self._push(node, request)

    def collect(self, seconds: float) -> list[tuple[str, bytes]]:
        """What has come."""
        until = time.monotonic() + seconds
        while True:
            self._look()
            found = self._pull()
            left = until - time.monotonic()
            if found or left <= 0:
                return found
            time.sleep(min(_POLL, left))

    def _push(self, node: int, request: bytes) -> None:
        now = time.monotonic()
        sent = [at for to, what, at in self.open.values() if to == node and what == request]
        if sent and now - max(sent) < self.patience:
            return
        message = Message(_wrapped(request), node, MessageType.TRAIN, ttl=2 * self.patience + _MARGIN)
        self.open |= {number: (node, request, now) for number in self.grid.push_messages([message]) if number}

    def _look(self) -> None:
        """Nodes come and go; one that comes is asked for its name, or given what its site has not yet answered."""
        now = time.monotonic()
        if now - self.looked < _LOOK:
            return
        self.looked = now
        there = {n.node_id: n.name for n in self.grid.get_nodes()}
        self.names = {node: name for node, name in self.names.items() if node in there}
        self.open = {k: v for k, v in self.open.items() if v[0] in there and now - v[2] < 2 * self.patience}
        for node, name in there.items():
            if not self.names.setdefault(node, ""):
                self._met(node, name) if name else self._push(node, _WHO)

    def _met(self, node: int, name: str) -> None:
        self.names[node] = name
        if name in self.standing:
            self._push(node, self.standing[name])

    def _pull(self) -> list[tuple[str, bytes]]:
        found = []
        for reply in self.grid.pull_messages(list(self.open)) if self.open else ():
            node, *_ = self.open.pop(reply.metadata.reply_to_message_id, (0,))
            if node not in self.names:
                continue
            if reply.has_error():
                who = self.names[node] or f"of node {node}"
                self.say(f"site {who} did not answer (Flower's error {reply.error.code})")
                continue
            data = _payload(reply)
            if not self.names[node]:
                self._met(node, _name(reply))
            elif data is not None and data != _WHO:
                self.standing.pop(self.names[node], None)
                found.append((self.names[node], data))
        return found


def _wrapped(data: bytes, name: str = "") -> RecordDict:
    """Bytes as an array, which Flower cuts into pieces where it is large."""
    payload = Array(dtype="uint8", shape=(len(data),), stype=_RECORD, data=data)
    return RecordDict({_RECORD: ArrayRecord({_PAYLOAD: payload}), _NAME: ConfigRecord({_NAME: name})})


def _payload(message: Message) -> bytes | None:
    record = message.content.get(_RECORD)
    found = record.get(_PAYLOAD) if isinstance(record, ArrayRecord) else None
    return found.data if isinstance(found, Array) else None


def _name(message: Message) -> str:
    record = message.content.get(_NAME)
    found = record.get(_NAME) if isinstance(record, ConfigRecord) else None
    return found if isinstance(found, str) and len(found) <= 64 else ""


def server_app(lead: Callable[[Callable[..., Transport], Mapping[str, Any]], None]) -> ServerApp:
    """The server's side of a run: `lead` is given how to make a transport, and the run's configuration."""
    app = ServerApp()

    def main(grid: Grid, context: Context) -> None:
        lead(lambda patience, say: Nodes(grid, patience, say), context.run_config)

    app.main()(main)
    return app


def client_app(site: Callable[[Mapping[str, Any]], tuple[str, Callable[[bytes], bytes]]]) -> ClientApp:
    """A site's side: `site` gives, for a node's configuration, the site's name and what answers for it.

    Flower would send the text of an exception to the server: here it is shown at the site, and the server is told that
    there was one.
    """
    app = ClientApp()

    def train(message: Message, context: Context) -> Message:
        try:
            name, answer = site(context.node_config)
            request = _payload(message) or _WHO
            return Message(_wrapped(_WHO if request == _WHO else answer(request), name), reply_to=message)
        except Exception:
            traceback.print_exc()
            return Message(Error(2, "the site's own log says why"), reply_to=message)

    app.train()(train)
    return app
