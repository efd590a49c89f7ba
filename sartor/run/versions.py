"""The upgrade rule: which versions' folders this one continues. Server and sites always have the same version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import __version__
from ..errors import SartorError, need, readable
from .recipe import SETTINGS

VERSION = __version__
# Its own, and the one before. A version that cannot read the folders of the one before it is a mistake:
# tests/federation/stored holds one of each.
READS = ("0.1.0",)
UNMARKED = "0.1.0"  # what is written in a folder without a version


def check_reads(version: object, where: str) -> None:
    """Refuse to go on from what a version wrote whose folders this one does not read."""
    if version not in READS:
        there = readable(str(version), 32)
        raise SartorError(
            f"{where} was written by Sartor {there}; this is {VERSION}, which goes on from {' and '.join(READS)}. "
            f"Finish the run with Sartor {there}, or start a new one."
        )


def check_same(theirs: object, who: str, mine: str) -> None:
    """Refuse to work with another version at the other end."""
    there = readable(str(theirs), 32)
    text = f"{who} has Sartor {there} and {mine} has {VERSION}: install the same version at server and sites."
    need(theirs == VERSION, text)


def continued(terms: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The terms of a run that began with this version or the one before, as this version writes them: a setting that
    there was not yet has its default."""
    check_reads(terms.get("sartor", UNMARKED), where)
    new = {name: about.default for name, about in SETTINGS.items() if not (about.free or about.own)}
    return new | {**terms, "sartor": VERSION}
