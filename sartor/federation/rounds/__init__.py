"""Exactly-once rounds between a server and its sites, on any transport: messages, stores, both sides' rules."""

from .agreement import check, differences, digest
from .client_store import Store, alone
from .messages import Damaged, Message, Spec, decode, encode, spec_of
from .remote_clients import Bench, Site
from .remote_engine import Hub, Transport, Waiting

__all__ = [
    "Bench",
    "Damaged",
    "Hub",
    "Message",
    "Site",
    "Spec",
    "Store",
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
