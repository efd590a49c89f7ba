"""What rounds with secure aggregation need of the two sides; who the masks are from is not their business."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

SECURE = "secure"  # in the note of a request: the sites of the round, with their keys
KEY = "mask_key"  # in the note of a site that is ready: its own
SEED = "seed"  # the array in the answer to "unmask"
SEED_BYTES = 32


class SiteMasking(Protocol):
    """A site's half."""

    most: int  # bytes of keys in a request

    def masked(self, round: int, note: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What leaves in place of these rows."""
        ...

    def opened(self, round: int, note: Any) -> bytes:
        """What takes off the mask that does not cancel; told once for a round."""
        ...


class ServerMasking(Protocol):
    """The server's half."""

    least: int  # sites in a sum

    @property
    def keys(self) -> Mapping[str, Any]:
        """Of the sites that have sent theirs."""
        ...

    def take(self, site: str, note: Any) -> None:
        """A site's key; refused where it is not its own."""
        ...

    def told(self, sites: list[str]) -> dict[str, list[str]]:
        """What these sites are told of each other."""
        ...

    def opened(self, arrays: Mapping[str, np.ndarray], seed: bytes) -> dict[str, np.ndarray]:
        """One site's rows without its own mask."""
        ...
