"""Exactly-once rounds between a server and its sites, on any transport: messages, stores, both sides' rules."""

from .agreement import check, differences, digest
from .hub import Hub, Transport, Waiting
from .messages import Damaged, Message, Spec, decode, encode, spec_of
from .site import Bench, Site
from .store import Store, alone

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
