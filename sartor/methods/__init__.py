"""The methods, one paper a file. `NAMES` says what the command line calls them and with which settings they start.

Defaults are the settings that did well on the validation data of the embedded demo, the same solver for all; they are
not the papers'.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..core import Method
from ..errors import unknown
from ..solvers import SGD
from .ditto import Ditto
from .fedamp import FedAMP, HeurFedAMP
from .fedavg import FedAvg
from .flame import FLAME
from .flame_lp_proj import FlameLpProj
from .local import LocalOnly
from .lp_proj import LpProj
from .pfedme import PFedMe


@dataclass(frozen=True)
class Entry:
    """A named method: its class, the settings that make it that method, its paper, one line."""

    make: type[Method]
    paper: str
    line: str
    preset: dict[str, Any] = field(default_factory=dict)


NAMES: dict[str, Entry] = {
    "flame": Entry(FLAME, "FLAME", "ADMM on Moreau envelopes; personal, local and global model"),
    "flame-lp-proj": Entry(FlameLpProj, "FLAME, Appendix C", "FLAME in a shared random subspace; tiny messages"),
    "pfedme": Entry(PFedMe, "pFedMe", "bi-level Moreau envelopes; personal and global model"),
    "ditto": Entry(Ditto, "Ditto", "a personal model regularised towards FedAvg's"),
    "lp-proj-1": Entry(LpProj, "Lp-Proj", "L1 coupling in a random subspace; tiny messages, robust", {"p": 1.0}),
    "lp-proj-2": Entry(LpProj, "Lp-Proj", "L2 coupling in a random subspace; tiny messages", {"p": 2.0}),
    "fedamp": Entry(FedAMP, "FedAMP", "attentive message passing; one cloud model per client"),
    "heurfedamp": Entry(FedAMP, "FedAMP", "FedAMP with cosine attention", {"attention": "cosine"}),
    "fedavg": Entry(FedAvg, "McMahan et al. 2017", "one global model: the average of local ones"),
    "fedprox": Entry(FedAvg, "Li et al. 2020", "FedAvg with a proximal term", {"mu": 0.1}),
    "fedavg-ft": Entry(
        FedAvg, "McMahan et al. 2017", "FedAvg, then fine-tuning at each client", {"finetune": SGD(epochs=5)}
    ),
    "fedprox-ft": Entry(
        FedAvg, "Li et al. 2020", "FedProx, then fine-tuning at each client", {"mu": 0.1, "finetune": SGD(epochs=5)}
    ),
    "local": Entry(LocalOnly, "-", "each client alone; what federating has to beat"),
}


def FedProx(mu: float = 0.1, **settings: Any) -> FedAvg:
    """FedAvg whose clients stay near the received model: μ/2 ‖w − w^t‖²."""
    return FedAvg(mu=mu, **settings)


def entry(name: str) -> Entry:
    """The named method's entry; an unknown name is refused with the nearest known ones."""
    if name not in NAMES:
        raise unknown("method", name, NAMES)
    return NAMES[name]


__all__ = [
    "FLAME",
    "NAMES",
    "Ditto",
    "FedAMP",
    "FedAvg",
    "FedProx",
    "FlameLpProj",
    "HeurFedAMP",
    "LocalOnly",
    "LpProj",
    "PFedMe",
    "entry",
]
