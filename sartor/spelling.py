"""Names with settings as text: "labels=3", "hybrid(labels=2, beta=0.5)", "synthetic(0,0)"."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .errors import SartorError, unknown

Value = bool | int | float | str | tuple[int, ...] | None
WORDS: dict[str, Value] = {"true": True, "false": False, "none": None}


def read(kind: str, text: str) -> tuple[str, list[Value], dict[str, Value]]:
    """The name, the settings without and those with a name of "name(2, beta=0.5)" or "name=2"."""
    match = re.fullmatch(r"\s*([\w.-]+)\s*(?:\((.*)\)|=(.*\S.*))?\s*", text)
    if match is None:
        raise SartorError(f'a {kind} is written NAME, NAME=VALUE or NAME(SETTING=VALUE, ...); got "{text}".')
    name, inside = match.group(1), match.group(2) if match.group(2) is not None else match.group(3)
    plain: list[Value] = []
    named: dict[str, Value] = {}
    for item in (inside or "").split(","):
        field, equals, value = item.partition("=")
        if equals:
            named[field.strip()] = parse_value(value)
        elif item.strip():
            plain.append(parse_value(item))
    return name, plain, named


def parse_value(text: str) -> Value:
    """A number, true, false, none, whole numbers divided by "/", or else the text itself."""
    text = text.strip()
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    if re.fullmatch(r"\d+(/\d+)+", text):
        return tuple(int(part) for part in text.split("/"))
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def write(value: object) -> str:
    """A setting as `parse_value` reads it."""
    if isinstance(value, tuple):
        return "/".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def bind(owner: str, known: Sequence[str], plain: Sequence[Value], named: dict[str, Value]) -> dict[str, Value]:
    """Settings by name: those without a name take the known names in turn."""
    if len(plain) > len(known):
        raise SartorError(f"{owner} takes {len(known)} settings ({', '.join(known) or 'none'}); got {len(plain)}.")
    out = dict(zip(known, plain, strict=False))
    for name, value in named.items():
        if name not in known:
            raise unknown(f"setting of {owner}", name, known) if known else SartorError(f"{owner} has no settings.")
        if name in out:
            raise SartorError(f"{owner}: {name} is given twice.")
        out[name] = value
    return out
