"""How the arrays of a round are packed: as they are, or by somebody who makes fewer or other bytes of them.

What a server sends for a client, and a client's answer to "train", may be codes of any length. They stand one client
after the other in one array of bytes, `CODES`, and say themselves where each ends. Server and site each have their half
of the packing; whatever it must remember of a client belongs to the round after which the server last heard that
client, as everything else does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ...core import State
from .messages import Damaged

CODES = "codes"  # the array of bytes
LENGTH = "length"  # beside codes of a stack of clients, in rows of equal length: how long each is


class ServerPacking(Protocol):
    """The server's half."""

    codes_down: bool  # downlinks are codes
    codes_up: bool  # answers are

    def down(self, stage: str, round: int, clients: Sequence[int], rows: State) -> np.ndarray:
        """The codes of what these clients are sent, `rows` [c, ...]."""
        ...

    def most_up(self, round: int) -> int:
        """The most bytes of one client's answer."""
        ...

    def up(self, round: int, clients: Sequence[int], codes: bytes) -> State:
        """The messages [c, ...] in an answer; Damaged where it holds none."""
        ...

    def heard(self, round: int, ids: Tensor) -> State:
        """These clients' answers count: what they and the server remember moves on. Notes that go with the messages."""
        ...

    def save(self) -> State:
        """What is remembered of all clients."""
        ...

    def restore(self, states: State) -> None:
        """Take back what `save` gave."""
        ...


class SitePacking(Protocol):
    """A site's half."""

    codes_down: bool

    def most_down(self, clients: int) -> int:
        """The most bytes of codes in a request."""
        ...

    def split(self, codes: bytes, clients: int) -> list[bytes]:
        """The codes of each client; Damaged where they are not of so many."""
        ...

    def received(self, codes: Sequence[bytes], states: State) -> tuple[State, State]:
        """The downlink [c, ...] that clients in these states make of their codes, and what changes in the states."""
        ...


def stacked(rows: Sequence[State]) -> State:
    """Clients' rows as [c, ...]."""
    return {k: torch.stack([row[k] for row in rows]) for k in rows[0]}


def without_length(row: State) -> State:
    """One client's row, its codes as long as they are."""
    return {CODES: row[CODES][: int(row[LENGTH])].clone()} if LENGTH in row else row


def with_lengths(rows: Sequence[State]) -> State:
    """Rows of clients [c, ...], codes of different lengths filled up with zeros."""
    if CODES not in rows[0]:
        return stacked(rows)
    codes = [row[CODES] for row in rows]
    return {
        CODES: torch.nn.utils.rnn.pad_sequence(codes, batch_first=True),
        LENGTH: torch.tensor([len(code) for code in codes]),
    }


def trimmed(rows: State) -> list[bytes]:
    """Each client's codes, of such rows."""
    each = zip(rows[CODES].numpy(), rows[LENGTH].tolist(), strict=True)
    return [row[:length].tobytes() for row, length in each]


def joined(codes: Sequence[bytes]) -> np.ndarray:
    """Clients' codes as one array."""
    return np.frombuffer(b"".join(codes), np.uint8)


def codes_in(array: np.ndarray | None, most: int) -> bytes:
    """The bytes of a received array of codes; Damaged where it is none, or too long."""
    if array is None or array.dtype != np.uint8 or array.ndim != 1:
        raise Damaged("no codes, where codes were agreed on")
    if len(array) > most:
        raise Damaged("codes that are longer than anything that was agreed on")
    return array.tobytes()
