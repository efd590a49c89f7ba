"""The one notation for names with settings: "labels=3", "hybrid(labels=2, beta=0.5)", "krum(f=2),mean", "fedavg+int8".

Methods' settings, partitions, data sets, models, aggregators, attacks and compressors are all read and written here.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from .errors import SartorError, need, see, unknown

T = TypeVar("T")
Value = bool | int | float | str | tuple[int, ...] | None
AUTHORS = "authors."
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


def look_up(
    kind: str,
    makers: Mapping[str, Callable[..., T]],
    text: str,
    also: Sequence[str] = (),
    do: str = "",
    options: Mapping[str, Any] | None = None,
) -> tuple[str, Callable[..., T], dict[str, Any]]:
    """The name that a text gives, who makes it, and its settings by name; `options` are settings from elsewhere.

    A name that is not known is refused with the nearest known ones, `also` among them, and the advice `do`.
    """
    name, plain, named = read(kind, text)
    maker = find(kind, makers, name)
    if maker is None:
        raise unknown(kind, name, [*makers, *also], do or see("names-and-settings"))
    for setting in sorted(named.keys() & (options or {}).keys()):
        raise SartorError(f"{name}: {setting} is given twice.")
    return name, maker, bind(name, list(inspect.signature(maker).parameters), plain, {**named, **(options or {})})


def find(kind: str, makers: Mapping[str, Callable[..., T]], name: str) -> Callable[..., T] | None:
    """Who makes what has this name; None: nobody.

    A name that begins with "authors." is one of sartor/papers/authors/, which no table lists.
    """
    if name.startswith(AUTHORS):
        return _authors()[kind].get(name.removeprefix(AUTHORS)) if kind in _authors() else None
    return makers.get(name)


def _authors() -> Mapping[str, Mapping[str, Callable[..., Any]]]:
    # Not imported above: papers/ stands on top of the house, and only the experiments that repeat a paper need it.
    names: Mapping[str, Mapping[str, Callable[..., Any]]] = importlib.import_module("sartor.papers.authors").NAMES
    return names


def bind(owner: str, known: Sequence[str], plain: Sequence[Value], named: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name: those without a name take the known names in turn."""
    if len(plain) > len(known):
        raise SartorError(f"{owner} takes {len(known)} settings ({', '.join(known) or 'none'}); got {len(plain)}.")
    out: dict[str, Any] = dict(zip(known, plain, strict=False))
    for name, value in named.items():
        if name not in known:
            need(bool(known), f"{owner} has no settings.")
            raise unknown(f"setting of {owner}", name, known, see("names-and-settings"))
        if name in out:
            raise SartorError(f"{owner}: {name} is given twice.")
        out[name] = value
    return out


def parse_value(text: str) -> Value:
    """A number, true, false, none, whole numbers divided by "/", or else the text itself."""
    text = text.strip()
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    if re.fullmatch(r"\d{1,9}(/\d{1,9})+", text):
        return tuple(int(part) for part in text.split("/"))
    for number in (int, float):
        with contextlib.suppress(ValueError):
            found = number(text)
            if isinstance(found, float) or abs(found) < 2**31:  # no count is larger
                return found
    return text


def write_value(value: object) -> str:
    """A setting as `parse_value` reads it."""
    if isinstance(value, tuple):
        return "/".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def name_of(makers: Mapping[str, Callable[..., Any]], thing: object) -> str:
    """The name that makes such a thing; of a class of the user's own, the class's name."""
    known = dict(makers)
    if type(thing).__module__.startswith("sartor.papers.authors."):
        known |= {f"{AUTHORS}{name}": maker for table in _authors().values() for name, maker in table.items()}
    return next((name for name, maker in known.items() if type(thing) is maker), type(thing).__name__)


def write(makers: Mapping[str, Callable[..., Any]], thing: object, short: bool = False) -> str:
    """The text that gives `thing` back; settings that are none are left out, in the short form defaults too."""
    values = {f.name: (getattr(thing, f.name), f.default) for f in fields(thing)} if is_dataclass(thing) else {}
    said = {k: v for k, (v, default) in values.items() if v is not None and not (short and v == default)}
    inside = ", ".join(f"{k}={write_value(v)}" for k, v in said.items())
    return f"{name_of(makers, thing)}({inside})" if inside else name_of(makers, thing)


def split_list(text: str, what: str) -> list[str]:
    """The items of a list with commas between them; those inside brackets belong to an item: "krum(f=2),mean"."""
    items, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        need(depth >= 0, f"{what}: a bracket is closed that was not opened; got {text!r}.")
        if letter == "," and depth == 0:
            items.append("")
        else:
            items[-1] += letter
    need(depth == 0, f"{what}: a bracket is not closed; got {text!r}.")
    items = [item.strip() for item in items]
    need(all(items), f"{what} are names, separated by commas; got {text!r}.")
    need(len(set(items)) == len(items), f"{what}: one is listed twice: {text}.")
    return items


def split_compressor(text: str) -> tuple[str, str | None]:
    """The method and the compressor of "fedavg+top-k(k=0.05)"; None where no compressor is written."""
    method, plus, compressor = text.partition("+")
    return method.strip(), compressor.strip() if plus else None
