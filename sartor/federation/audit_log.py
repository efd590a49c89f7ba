"""A site's audit log: a line for everything that was asked of the site and what left it, each with the hash of the line
before. Nothing leaves before its line is on the disk.

Who changes, removes or inserts a line breaks the chain from there on. Who cuts lines off its end does not: note the
last hash elsewhere from time to time (`sartor federation audit` prints it) and compare.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import SartorError, need, reason
from .rounds.messages import Damaged, Message, decode

AUDIT = "audit.jsonl"
_FIRST = "0" * 64


class AuditLog:
    """The log in a site's folder, of which one process at a time is the writer."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / AUDIT
        self._last: tuple[int, str] | None = None  # how many lines there are, and the last one's hash

    def add(self, entry: Mapping[str, Any]) -> None:
        """Another line; when this returns it is on the disk. SartorError where it cannot be."""
        try:
            count, before = self._last or self._end()
            line = {
                "line": count + 1,
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                **entry,
                "before": before,
            }
            line["hash"] = _hash(line)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as e:
            self._last = None
            raise SartorError(f"nothing leaves, as {self.path} cannot be written: {reason(e)}.") from e
        self._last = count + 1, line["hash"]

    def _end(self) -> tuple[int, str]:
        """Where the log goes on. A line that was cut short by a kill is taken away: what it is about has not left."""
        if not self.path.exists():
            return 0, _FIRST
        with self.path.open("rb+") as file:
            whole = file.read()
            end = whole.rfind(b"\n") + 1
            if end < len(whole):
                file.truncate(end)
        lines = whole[:end].splitlines()
        return (len(lines), _read(lines[-1], self.path, len(lines))["hash"]) if lines else (0, _FIRST)


def verified(folder: Path) -> list[dict[str, Any]]:
    """All lines of a site's log; refused with the first line that is not as it was written."""
    path, before = folder / AUDIT, _FIRST
    need(path.exists(), f"{folder} has no audit log: nothing was asked of this site yet.")
    found = []
    for at, text in enumerate(path.read_bytes().splitlines(), 1):
        line = _read(text, path, at)
        good = line["line"] == at and line["before"] == before and line["hash"] == _hash(line)
        need(good, f"{path} was changed: line {at} is not the one that was written there.")
        before = line["hash"]
        found.append(line)
    return found


def _hash(line: Mapping[str, Any]) -> str:
    plain = {k: v for k, v in line.items() if k != "hash"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _read(text: bytes, path: Path, at: int) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        line = json.loads(text)
        if isinstance(line, dict) and {"line", "before", "hash"} <= line.keys():
            return line
    raise SartorError(f"{path} was changed: line {at} cannot be read.")


def entry_of(request: bytes, reply: bytes) -> dict[str, Any]:
    """What was asked, and what leaves: kinds, rounds, and how much; never a value."""
    return {"asked": _about(request), "left": _about(reply) | {"bytes": len(reply)}}


def _about(data: bytes) -> dict[str, Any]:
    try:
        message: Message = decode(data)
    except Damaged as e:
        return {"what": "damaged", "why": str(e)}
    found: dict[str, Any] = {"what": message.kind, "run": message.run[:8], "round": message.round}
    found |= {"clients": len(message.clients), "numbers": sum(v.size for v in message.arrays.values())}
    return found | {k: message.note[k] for k in ("stage", "why", "limit") if isinstance(message.note.get(k), str)}


def words(line: Mapping[str, Any]) -> str:
    """A line for people."""
    asked, left = line["asked"], line["left"]
    what = left.get("stage") or left["what"]
    why = f" ({left['why']}{': ' + left['limit'] if 'limit' in left else ''})" if "why" in left else ""
    spent = f", epsilon {line['epsilon']:.3g} in all" if line.get("epsilon") is not None else ""
    asked_for = f"{asked['what']}" + (f" of round {asked['round'] + 1}" if asked["what"] == "train" else "")
    size = f"{left.get('numbers', 0)} numbers"
    return f"{line['line']}  {line['time']}  asked: {asked_for}; left: {what}{why}, {size}{spent}"
