"""NVFlare as a transport: requests are tasks that sites pull, replies their results. Bytes in, bytes out.

NVFlare brings mutually authenticated TLS, the sites' true names and a process for each site. What is in the bytes, and
that nothing happens twice, is the business of sartor.federation.
"""

from __future__ import annotations

import queue
import threading
import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.fuel.utils.memory_utils import cleanup_memory

from ...engines.orphans import die_with_parent
from ..rounds.remote_engine import Transport

TASK, PAYLOAD = "sartor", "payload"
_WAITING = 8  # messages of a site that wait to be read; more are a flood, and dropped
_CLEAN = 10  # rounds between two collections of what NVFlare leaves: tasks that refer to each other, freed pages


class Aborted(Exception):
    """NVFlare ends the job: the round that is being played has not happened."""


class Tasks:
    """One task for each site at a time."""

    def __init__(self, controller: Controller, context: FLContext, abort: Signal) -> None:
        self.controller, self.context, self.abort = controller, context, abort
        self.box: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self.waiting: dict[str, int] = {}  # by site: what is in the box
        self.lock = threading.Lock()
        self.standing: dict[str, Task] = {}
        self.there = {c.name for c in context.get_engine().get_clients()}
        self.posted = 0

    def post(self, site: str, request: bytes) -> None:
        """A task for a site, in place of the one that it has not yet answered; one that is not there gets none."""
        if site not in self.there:
            return
        if (old := self.standing.pop(site, None)) is not None:
            self.controller.cancel_task(old)
        data = Shareable()
        data[PAYLOAD] = request
        task = Task(TASK, data, result_received_cb=self._received)
        self.standing[site] = task
        self.controller.send(task, self.context, targets=[site])
        self.posted += 1
        if self.posted % (_CLEAN * len(self.there)) == 0:
            cleanup_memory()

    def _received(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        self.take(client_task.client, client_task.result)
        client_task.result = None  # a round's messages need not be kept until the job ends

    def take(self, client: Client, result: Any) -> None:
        """What a site sent; a site whose executor failed has sent nothing."""
        data = result.get(PAYLOAD) if isinstance(result, Shareable) else None
        if isinstance(data, bytes) and result.get_return_code(ReturnCode.OK) == ReturnCode.OK:
            with self.lock:
                waiting = self.waiting.get(client.name, 0)
                if waiting < _WAITING:
                    self.waiting[client.name] = waiting + 1
                    self.box.put((client.name, data))

    def collect(self, seconds: float) -> list[tuple[str, bytes]]:
        """What has come; waits in short spells, as the job may be ended meanwhile."""
        until = time.monotonic() + seconds
        while True:
            if self.abort.triggered:
                raise Aborted
            try:
                found = [self.box.get(timeout=max(0.0, min(0.2, until - time.monotonic())))]
            except queue.Empty:
                if time.monotonic() >= until:
                    return []
                continue
            with self.lock:
                while not self.box.empty():
                    found.append(self.box.get())
                self.waiting.clear()
            return found


class ServerSide(Controller):  # type: ignore[misc]
    """A job's server: plays over the transport until it is done or ended."""

    def __init__(self) -> None:
        super().__init__(task_check_period=0.05)
        die_with_parent()
        self.tasks: Tasks | None = None

    @abstractmethod
    def lead(self, kit: Path, transport: Transport) -> None:
        """The whole run."""

    def start_controller(self, fl_ctx: FLContext) -> None:
        pass

    def stop_controller(self, fl_ctx: FLContext) -> None:
        pass

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        self.tasks = Tasks(self, fl_ctx, abort_signal)
        try:
            self.lead(_kit(fl_ctx), self.tasks)
        except Aborted:
            self.log_info(fl_ctx, "the job was ended; what was not yet checkpointed has not happened")

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """A late answer to a request that was repeated since: the hub knows what to do with it."""
        if self.tasks is not None and task_name == TASK:
            self.tasks.take(client, result)


class SiteSide(Executor):  # type: ignore[misc]
    """A job's site: answers requests until the job ends."""

    def __init__(self) -> None:
        super().__init__()
        die_with_parent()

    @abstractmethod
    def begin(self, kit: Path, site: str) -> None:
        """Make ready."""

    @abstractmethod
    def answer(self, request: bytes) -> bytes:
        """The reply to a request."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.START_RUN:
            self.begin(_kit(fl_ctx), fl_ctx.get_identity_name())

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        request = shareable.get(PAYLOAD)
        if task_name != TASK or not isinstance(request, bytes):
            return make_reply(ReturnCode.TASK_UNKNOWN)
        reply = Shareable()
        reply[PAYLOAD] = self.answer(request)
        return reply


def _kit(fl_ctx: FLContext) -> Path:
    return Path(fl_ctx.get_engine().get_workspace().get_root_dir())


def job(name: str, server: str, site: str, sites: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A job's three files: it names classes that are installed everywhere, and carries no code and no settings.

    It goes to the sites on the list and to no other that the authority may have signed.
    """
    where = {"app": ["server", *sites]}
    return {
        "meta.json": {"name": name, "resource_spec": {}, "deploy_map": where, "min_clients": 1},
        "app/config/config_fed_server.json": {
            "format_version": 2,
            "server": {"task_request_interval": 0.05},
            "workflows": [{"id": "lead", "path": server, "args": {}}],
        },
        "app/config/config_fed_client.json": {
            "format_version": 2,
            "executors": [{"tasks": [TASK], "executor": {"path": site, "args": {}}}],
        },
    }
