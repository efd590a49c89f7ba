"""Data: known sets and the user's own, dealt out to clients by a partition.

For example:

    >>> clients = st.data.load("digits").split("dirichlet=0.3", clients=10, seed=0)  # dealt out to ten
    >>> mine = st.data.load(([[0.0], [1.0]] * 20, [0, 1] * 20, ["north"] * 20 + ["south"] * 20))
    >>> clients = mine.split("natural", seed=0)  # those that there are
"""

from .clients import Clients
from .dataset import Dataset
from .known_sets.readers import DATASETS, find
from .loading import load
from .measures import describe, facts, measure
from .partitions import (
    IID,
    NAMES,
    Dirichlet,
    Dominant,
    Hybrid,
    Labels,
    Natural,
    Noise,
    Partition,
    PowerLaw,
    Quantity,
    Shards,
    parse,
    spell,
)
from .tables.own_data import from_arrays

__all__ = [
    "DATASETS",
    "IID",
    "NAMES",
    "Clients",
    "Dataset",
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
    "describe",
    "facts",
    "find",
    "from_arrays",
    "load",
    "measure",
    "parse",
    "spell",
]
