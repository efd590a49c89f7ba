"""Wrappers: a method made of a method. Attacks, compression, and clients that report their losses."""

from . import attacks
from .attack import Attack
from .base import Wrapper
from .compression import Compressed
from .hostile import Hostile, check_attackers, hostile_clients
from .losses import Reporting

__all__ = ["Attack", "Compressed", "Hostile", "Reporting", "Wrapper", "attacks", "check_attackers", "hostile_clients"]
