"""Exactly-once rounds between a server and its sites, on any transport: messages, stores, both sides' rules."""

from .agreement import check, differences, digest
from .client_store import ClientStore, alone
from .messages import Damaged, Message, Spec, decode, encode, spec_of
from .remote_clients import Computation, RemoteClients
from .remote_engine import RemoteEngine, Transport, Waiting

__all__ = [
    "ClientStore",
    "Computation",
    "Damaged",
    "Message",
    "RemoteClients",
    "RemoteEngine",
    "Spec",
    "Transport",
    "Waiting",
    "alone",
    "check",
    "decode",
    "differences",
    "digest",
    "encode",
    "spec_of",
]
