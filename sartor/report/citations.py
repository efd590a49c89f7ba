"""The papers behind exactly the methods, attacks, aggregators and compressors of a report, as BibTeX.

A method's file says what to cite: keys of papers.bib, or whole entries. For the others papers.bib names with each entry
what it is used for: `sartor = {attacks/alie, aggregators/krum}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

from .. import methods
from .entries import Material
from .pieces import CodeBlock, Section, Words

KINDS = {"method": "methods", "attack": "attacks", "aggregator": "aggregators"}


@cache
def papers() -> dict[str, tuple[str, frozenset[str]]]:
    """By key: the entry without our own field, and what it is used for."""
    text = resources.files(__package__).joinpath("papers.bib").read_text(encoding="utf-8")
    cited = [(f"methods/{name}", word) for name, e in methods.NAMES.items() for word in e.cite]
    entries = [entry for entry in re.split(r"\n(?=@)", text) if entry.startswith("@")]
    entries += dict.fromkeys(word for _, word in cited if word.startswith("@"))
    found = {}
    for entry in entries:
        key = entry[entry.index("{") + 1 : entry.index(",")].strip()
        field = re.search(r"^\s*sartor\s*=\s*\{([^}]*)\},?\n", entry, re.MULTILINE)
        uses = {word.strip() for word in field.group(1).split(",")} if field else set()
        uses |= {name for name, word in cited if word in (key, entry)}
        found[key] = entry.replace(field.group(0) if field else "", "").strip(), frozenset(uses)
    return found


def used(recipe: Mapping[str, Any]) -> set[str]:
    """What a run uses, as papers.bib names it."""
    names = {f"methods/{recipe['method']}"} if "method" in recipe else set()
    settings = recipe.get("settings", {})
    if isinstance(inner := settings.get("global_method"), Mapping):
        names.add(f"methods/{inner.get('method')}")
    words = {"attacks": recipe.get("attack"), "compressors": recipe.get("compress")}
    for kind, word in [*words.items(), ("compressors", recipe.get("compress_down"))]:
        names |= {f"{kind}/{_name(word)}"} if word else set()
    for word in (recipe.get("aggregator"), settings.get("aggregate")):
        names |= {f"aggregators/{_name(word)}"} if word else set()
    return names


def _name(word: object) -> str:
    return str(word).split("(")[0].strip()


def bibtex(names: Iterable[str]) -> str:
    """The entries of these, each once."""
    wanted = set(names)
    return "\n\n".join(text for text, uses in papers().values() if uses & wanted) + "\n"


def section(material: Material) -> Section | None:
    """The citations."""
    names = {name for run in material.runs for name in used(run.recipe or run.summary or {})}
    if material.comparison is not None:
        for cell in material.comparison.cells:
            known = {k: cell.summary.get(k) for k in ("method", "attack", "aggregator", "compress", "compress_down")}
            names |= used({k: v for k, v in known.items() if v is not None})
    text = bibtex(names)
    if not text.strip():
        return None
    said = "If this is of use to you, cite the papers whose methods were used:"
    return Section("citations", "Citations", [Words(said), CodeBlock(text)])
