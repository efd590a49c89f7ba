"""What server and sites must agree on before the first round, field by field; every message bears its hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ...errors import SartorError


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one: {"settings": {"lam": 1}} becomes {"settings.lam": 1}."""
    out: dict[str, Any] = {}
    for k, v in values.items():
        out |= flat(v, f"{prefix}{k}.") if isinstance(v, Mapping) else {f"{prefix}{k}": v}
    return out


def digest(values: Mapping[str, Any]) -> str:
    """A hash of all fields."""
    return hashlib.sha256(json.dumps(flat(values), sort_keys=True, allow_nan=False).encode()).hexdigest()


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """The fields that differ, sorted: "settings.lam is 0.1 there and 0.2 here"."""
    a, b = flat(theirs), flat(ours)
    said = {k: (json.dumps(a[k]) if k in a else "absent", json.dumps(b[k]) if k in b else "absent") for k in a | b}
    return [f"{k} is {there} there and {here} here" for k, (there, here) in sorted(said.items()) if there != here]


def check(theirs: Mapping[str, Any], ours: Mapping[str, Any], who: str) -> None:
    """Refuse to start where a field differs."""
    found = differences(theirs, ours)
    if found:
        raise SartorError(f"{who} and this side disagree: {'; '.join(found)}. Agree on one recipe and start again.")
