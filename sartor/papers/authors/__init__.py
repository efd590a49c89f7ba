"""What the papers' authors ran but did not write: slips and undocumented details of their code.

The experiments that repeat their numbers need it. Nothing here is listed among the library's methods, partitions and
data sets. A text names one of them with "authors." before it: "authors.flame-labels(k=2)" (see sartor/spelling.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .datasets import each_pixel, part_of
from .drifting import Drifting
from .partitions import FlameDirichlet, FlameHybrid, FlameLabels, FlameNoise, FlameQuantity, PFedMePowerLaw
from .slips import DittoEveryone, LGFedAvgEveryone, LpProjFromZero, PFedMeScoringW, RSAEveryone

NAMES: dict[str, dict[str, Callable[..., Any]]] = {
    "method": {
        "drifting": Drifting,
        "pfedme-scoring-w": PFedMeScoringW,
        "lp-proj-from-zero": LpProjFromZero,
        "ditto-everyone": DittoEveryone,
        "rsa-everyone": RSAEveryone,
        "lg-fedavg-everyone": LGFedAvgEveryone,
    },
    "partition": {
        "flame-labels": FlameLabels,
        "flame-dirichlet": FlameDirichlet,
        "flame-quantity": FlameQuantity,
        "flame-hybrid": FlameHybrid,
        "flame-noise": FlameNoise,
        "pfedme-power-law": PFedMePowerLaw,
    },
    "dataset": {"each-pixel": each_pixel, "part-of": part_of},
}
