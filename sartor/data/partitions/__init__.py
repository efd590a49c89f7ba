"""All partitions by name, and how they are read from and written as text."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from ... import spelling
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

NAMES: dict[str, type[Partition]] = {
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
    """The partition that a text such as "hybrid", "labels=3" or "dirichlet(beta=0.1)" names.

    For example:

        >>> st.data.parse("dirichlet=0.3")
        Dirichlet(beta=0.3)
    """
    _, kind, given = spelling.look_up("partition", NAMES, text)
    return kind(**given)


def name_of(partition: Partition) -> str:
    """The name on the command line; of a partition of the user's own, its class's name."""
    return spelling.name_of(NAMES, partition)


def settings(partition: Partition) -> dict[str, object]:
    """The settings of a partition by name."""
    if not is_dataclass(partition):
        return {}
    return {f.name: getattr(partition, f.name) for f in fields(partition)}


def spell(partition: Partition) -> str:
    """The text that `parse` reads back: "hybrid(labels=2, beta=0.5, overlap=false)". What is none is left out."""
    return spelling.write(NAMES, partition)
