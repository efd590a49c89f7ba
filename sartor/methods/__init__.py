"""The methods, one paper a file. `NAMES` says what the command line calls them and with which settings they start.

Defaults are the settings that did well on the validation data of the embedded demo (MOCHA: of Vehicle), the same solver
for all; they are not the papers'.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .. import spelling
from ..core import Method
from ..errors import unknown
from ..solvers import SGD, Early
from .apfl import APFL
from .ditto import Ditto
from .ewc import EWC
from .fedadmm import FedADMM
from .fedamp import FedAMP, HeurFedAMP
from .fedavg import FedAvg
from .fedmgda import FedMGDA
from .fedper import FedPer
from .fedrep import FedRep
from .flame import FLAME
from .flame_lp_proj import FlameLpProj
from .ifca import IFCA
from .l2sgd import L2GD, L2SGD
from .lg_fedavg import LGFedAvg
from .local import LocalOnly
from .lp_proj import LpProj
from .mapper import Mapper
from .mocha import MOCHA
from .per_fedavg import PerFedAvg
from .pfedme import PFedMe
from .qffl import QFFL
from .rsa import RSA
from .scaffold import SCAFFOLD
from .skl import SKL
from .term import TERM


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
    "fedavg-es": Entry(
        FedAvg,
        "McMahan et al. 2017",
        "FedAvg, then fine-tuning that each client stops by its validation data",
        {"finetune": Early()},
    ),
    "per-fedavg": Entry(PerFedAvg, "Fallah et al. 2020", "meta-learning, Hessian-free; one step makes it personal"),
    "per-fedavg-fo": Entry(PerFedAvg, "Fallah et al. 2020", "the same to first order", {"variant": "FO"}),
    "apfl": Entry(APFL, "Deng et al. 2020", "a local model mixed with the global one by a learnt α"),
    "l2sgd": Entry(L2SGD, "Hanzely, Richtárik 2020", "personal models near their mean; Ditto's authors' solver"),
    "l2gd": Entry(L2SGD, "Hanzely, Richtárik 2020", "the same, loopless: a coin for each step", {"p": 0.1, "lam": 0.1}),
    "mapper": Entry(Mapper, "Mansour et al. 2020", "the best of a few mixtures of a local and the central model"),
    "ewc": Entry(EWC, "Kirkpatrick et al. 2017", "FedAvg, then fine-tuning held back by the Fisher information"),
    "skl": Entry(SKL, "Jiang et al. 2020", "FedAvg, then fine-tuning that keeps its predictions near the global ones"),
    "lg-fedavg": Entry(LGFedAvg, "Liang et al. 2020", "own representation, shared head; only the head is sent"),
    "fedper": Entry(FedPer, "Arivazhagan et al. 2019", "shared representation, own head, trained together"),
    "fedrep": Entry(FedRep, "Collins et al. 2021", "shared representation, own head, trained in turn"),
    "rsa": Entry(RSA, "Li et al. 2019", "personal models tied to the server's by an Lp norm; robust by signs"),
    "mocha": Entry(MOCHA, "Smith et al. 2017", "multi-task learning of linear models with learnt relations"),
    "fedadmm": Entry(FedADMM, "Zhou, Li 2023", "one global model by consensus ADMM"),
    "scaffold": Entry(SCAFFOLD, "Karimireddy et al. 2020", "one global model; control variates against drift"),
    "term": Entry(TERM, "Li et al. 2021", "one global model; tilted towards clients with a high loss"),
    "qffl": Entry(QFFL, "Li et al. 2020", "one global model; losses count to the power q + 1"),
    "fedmgda": Entry(FedMGDA, "Hu et al. 2022", "one global model along a direction good for all"),
    "ifca": Entry(IFCA, "Ghosh et al. 2020", "clusters: each client trains the model that fits it best"),
    "local": Entry(LocalOnly, "-", "each client alone; what federating has to beat"),
}


def FedProx(mu: float = 0.1, **settings: Any) -> FedAvg:
    """FedAvg whose clients stay near the received model: μ/2 ‖w − w^t‖²."""
    return FedAvg(mu=mu, **settings)


def entry(name: str) -> Entry:
    """The named method's entry; an unknown name is refused with the nearest known ones."""
    if name in NAMES:
        return NAMES[name]
    made = spelling.find("method", dict[str, type[Method]](), name)
    if not isinstance(made, type):
        raise unknown("method", name, NAMES)
    return Entry(made, "its authors' code", (made.__doc__ or "").splitlines()[0])


__all__ = [
    "APFL",
    "EWC",
    "FLAME",
    "IFCA",
    "L2GD",
    "L2SGD",
    "MOCHA",
    "NAMES",
    "QFFL",
    "RSA",
    "SCAFFOLD",
    "SKL",
    "TERM",
    "Ditto",
    "FedADMM",
    "FedAMP",
    "FedAvg",
    "FedMGDA",
    "FedPer",
    "FedProx",
    "FedRep",
    "FlameLpProj",
    "HeurFedAMP",
    "LGFedAvg",
    "LocalOnly",
    "LpProj",
    "Mapper",
    "PFedMe",
    "PerFedAvg",
    "entry",
]
