"""All partitions by name, and how they are read from and written as text."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from ... import spelling
from ...errors import unknown
from .assignment import Assignment, Partition
from .by_label import Dirichlet, Labels, Shards
from .label_blind import IID, Natural, Noise, Quantity
from .structured import Dominant, Hybrid, PowerLaw

__all__ = [
    "IID",
    "NAMES",
    "Assignment",
    "Dirichlet",
    "Dominant",
    "Hybrid",
    "Labels",
    "Natural",
    "Noise",
    "Partition",
    "PowerLaw",
    "Quantity",
    "Shards",
    "name_of",
    "parse",
    "settings",
    "spell",
]

NAMES: dict[str, type] = {
    "iid": IID,
    "labels": Labels,
    "shards": Shards,
    "dirichlet": Dirichlet,
    "quantity": Quantity,
    "noise": Noise,
    "natural": Natural,
    "hybrid": Hybrid,
    "dominant": Dominant,
    "power-law": PowerLaw,
}


def parse(text: str) -> Partition:
    """The partition that a text such as "hybrid", "labels=3" or "dirichlet(beta=0.1)" names."""
    name, plain, named = spelling.read("partition", text)
    if name not in NAMES:
        raise unknown("partition", name, NAMES)
    kind = NAMES[name]
    partition: Partition = kind(**spelling.bind(name, [f.name for f in fields(kind)], plain, named))
    return partition


def name_of(partition: Partition) -> str:
    """The name on the command line; of a partition of the user's own, its class's name."""
    own = type(partition).__name__
    return next((name for name, kind in NAMES.items() if type(partition) is kind), own)


def settings(partition: Partition) -> dict[str, object]:
    """The settings of a partition by name."""
    if not is_dataclass(partition):
        return {}
    return {f.name: getattr(partition, f.name) for f in fields(partition)}


def spell(partition: Partition) -> str:
    """The text that `parse` reads back: "hybrid(labels=2, beta=0.5, overlap=false)". What is none is left out."""
    said = {name: value for name, value in settings(partition).items() if value is not None}
    inside = ", ".join(f"{name}={spelling.write(value)}" for name, value in said.items())
    return f"{name_of(partition)}({inside})" if inside else name_of(partition)
