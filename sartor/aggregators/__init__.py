"""Aggregators: many messages become one. `NAMES` says what the command line calls them.

For example:

    >>> method = st.FedAvg(aggregate=st.aggregators.TrimmedMean(share=0.2))
    >>> result = st.fit(method, model, clients, rounds=2)
"""

from __future__ import annotations

from ..core import Aggregator
from .base import Mean, gram, mean, regram
from .coordinates import Median, TrimmedMean
from .distances import GeometricMedian, Krum, MultiKrum
from .min_norm import fair_direction, fair_weights
from .norms import Clipping, FairDirection, KLoss, KNorm

NAMES: dict[str, type[Aggregator]] = {
    "mean": Mean,
    "median": Median,
    "trimmed-mean": TrimmedMean,
    "geometric-median": GeometricMedian,
    "krum": Krum,
    "multi-krum": MultiKrum,
    "clipping": Clipping,
    "k-norm": KNorm,
    "k-loss": KLoss,
    "fedmgda": FairDirection,
}

__all__ = [
    "NAMES",
    "Aggregator",
    "Clipping",
    "FairDirection",
    "GeometricMedian",
    "KLoss",
    "KNorm",
    "Krum",
    "Mean",
    "Median",
    "MultiKrum",
    "TrimmedMean",
    "fair_direction",
    "fair_weights",
    "gram",
    "mean",
    "regram",
]
