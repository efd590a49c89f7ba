"""Where a key stands in a TOML file, so that a mistake in it can be pointed at: the parser keeps no line numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADER = re.compile(r"\s*(\[\[?)([^\]]+)\]")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)\s*=""")
_PIECE = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([\w-]+))\s*(?:\.|$)""")


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """The line (the first is 1) of the key at `path`, or of the innermost table around it that has one.

    Numbers in the path count the tables of an array, as in ("cells", 2, "method").
    """
    wanted, best, depth = tuple(path), None, 0
    inside: tuple[str | int, ...] = ()
    counts: dict[tuple[str | int, ...], int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            inside = _in_arrays(_pieces(header.group(2)), counts)
            if header.group(1) == "[[":
                counts[inside] = counts.get(inside, -1) + 1
                inside = (*inside, counts[inside])
            here = inside
        elif key := _KEY.match(line):
            here = (*inside, *_pieces(key.group(1)))
        else:
            continue
        if len(here) > depth and here == wanted[: len(here)]:
            best, depth = number, len(here)
    return best


def _pieces(text: str) -> tuple[str, ...]:
    return tuple(next(part for part in found if part) for found in _PIECE.findall(text) if any(found))


def _in_arrays(pieces: tuple[str, ...], counts: dict[tuple[str | int, ...], int]) -> tuple[str | int, ...]:
    """A header's path; below an array of tables it is inside the last one."""
    here: tuple[str | int, ...] = ()
    for i, piece in enumerate(pieces):
        here = (*here, piece)
        if here in counts and i < len(pieces) - 1:
            here = (*here, counts[here])
    return here
