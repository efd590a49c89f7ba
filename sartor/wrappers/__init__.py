"""Wrappers: a method made of a method. Attacks, compression, privacy, personal parts by name, and clients
that report their losses."""

from . import attacks
from .attacks.attack import Attack
from .attacks.hostile import Hostile, check_attackers, hostile_clients
from .base import Wrapper
from .compression import Compressed
from .losses import Reporting
from .personal_parts import PersonalParts
from .privacy import Privacy, Private

__all__ = [
    "Attack",
    "Compressed",
    "Hostile",
    "PersonalParts",
    "Privacy",
    "Private",
    "Reporting",
    "Wrapper",
    "attacks",
    "check_attackers",
    "hostile_clients",
]
