"""Flower runs in this process: its own state of messages and nodes, its grid and its simulation loop, without Ray."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.client_app import ClientAppException
from flwr.common.constant import HEARTBEAT_INTERVAL_INF, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.compat.client.run_info_store import DeprecatedRunInfoStore
from flwr.proto.task_pb2 import Task
from flwr.server.superlink.fleet.vce.backend.backend import Backend
from flwr.server.superlink.fleet.vce.metrics import VceMetrics
from flwr.server.superlink.fleet.vce.vce_api import run_api
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.server.superlink.linkstate.in_memory_linkstate import RunRecord
from flwr.serverapp import ServerApp
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import InMemoryGrid

from sartor.federation.transports import flower as transport

Between = Callable[[str, Message, Context, Callable[[Message, Context], Message]], Message]


class Threads(Backend):
    """Flower's simulation with threads of this process in place of Ray's: a ClientApp is called for each message."""

    def __init__(self, workers: int, between: Callable[[Message, Context, Any], Message]) -> None:
        self.workers, self.between = workers, between

    def build(self, app_fn: Callable[[], ClientApp]) -> None:
        self.app = app_fn()

    @property
    def num_workers(self) -> int:
        return self.workers

    def is_worker_idle(self) -> bool:
        return True

    def terminate(self) -> None:
        pass

    def process_message(self, message: Message, context: Context) -> tuple[Message, Context]:
        try:
            return self.between(message, context, self.app), context
        except Exception as e:
            raise ClientAppException(str(e)) from e  # as Ray's actors do


@dataclass
class Simulated:
    """A run whose SuperNodes are in this process. `nodes`: each one's configuration, by a name that is registered."""

    server: ServerApp
    client: ClientApp
    nodes: Mapping[str, Mapping[str, Any]]
    config: Mapping[str, Any]
    registered: bool = True
    workers: int = 1
    between: Between = lambda name, message, context, app: app(message, context)
    contexts: list[Context] = field(default_factory=list)

    def play(self) -> None:
        """To the end; what the ServerApp raised is raised here."""
        run = Run.create_empty(run_id=secrets.randbits(62))
        run.primary_task_id, run.federation_id = secrets.randbits(62), NOOP_FEDERATION_ID
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, run.run_id, SUPERLINK_NODE_ID
        factory = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory())
        state = factory.state()
        state.run_ids[run.run_id] = RunRecord(run=run)
        state.task_store[run.primary_task_id] = Task(task_id=run.primary_task_id, run_id=run.run_id)
        places = {self._node(state, name): name for name in self.nodes}
        stores = {node: self._store(node, places[node], run.run_id) for node in places}
        grid, stop, failed = InMemoryGrid(state_factory=factory), threading.Event(), []
        grid.set_run(run)

        def lead() -> None:
            try:
                self.server(grid, Context(run.run_id, 0, {}, RecordDict(), dict(self.config)))
            except BaseException as e:
                failed.append(e)
            finally:
                stop.set()

        def between(message: Message, context: Context, app: ClientApp) -> Message:
            return self.between(places[context.node_id], message, context, app)

        thread = threading.Thread(target=lead)
        ids = {node: i for i, node in enumerate(places)}
        backend = Threads(self.workers, between)
        with mock.patch.object(transport, "_POLL", 0.01), mock.patch.object(transport, "_LOOK", 0.1):
            thread.start()
            run_api(lambda: self.client, lambda: backend, ids, factory, stores, stop, VceMetrics())
            thread.join()
        self.contexts = [s.retrieve_context(run.run_id) for s in stores.values()]
        if failed:
            raise failed[0]

    def _node(self, state: Any, name: str) -> int:
        known = name if self.registered else None
        key = secrets.token_bytes(32)
        node = state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, HEARTBEAT_INTERVAL_INF, name=known)
        state.acknowledge_node_heartbeat(node_id=node, heartbeat_interval=HEARTBEAT_INTERVAL_INF)
        return int(node)

    def _store(self, node: int, name: str, run: int) -> DeprecatedRunInfoStore:
        store = DeprecatedRunInfoStore(node_id=node, node_config=dict(self.nodes[name]))
        store.register_context(run_id=run)
        return store
