# Written by docs/fill.py.
from .apfl import APFL
from .ditto import Ditto
from .entries import NAMES, Entry, entry
from .ewc import EWC
from .fedadmm import FedADMM
from .fedala import FedALA
from .fedamp import FedAMP, HeurFedAMP
from .fedavg import FedAvg, FedProx
from .fedbabu import FedBABU
from .fedfomo import FedFomo
from .fedlbfgs import FedLBFGS
from .fedmgda import FedMGDA
from .fedopt import FedOpt
from .fedper import FedPer
from .fedrep import FedRep
from .fedrod import FedRoD
from .flame import FLAME
from .flame_lp_proj import FlameLpProj
from .ifca import IFCA
from .knn_per import KNNPer
from .l2sgd import L2GD, L2SGD
from .lg_fedavg import LGFedAvg
from .local import LocalOnly
from .lp_proj import LpProj
from .mapper import Mapper
from .mixed_effects import MixedEffects
from .mocha import MOCHA
from .mr_mtl import MRMTL
from .per_fedavg import PerFedAvg
from .pfedme import PFedMe
from .qffl import QFFL
from .rsa import RSA
from .scaffold import SCAFFOLD
from .skl import SKL
from .term import TERM

__all__ = [
    "APFL",
    "EWC",
    "FLAME",
    "IFCA",
    "L2GD",
    "L2SGD",
    "MOCHA",
    "MRMTL",
    "NAMES",
    "QFFL",
    "RSA",
    "SCAFFOLD",
    "SKL",
    "TERM",
    "Ditto",
    "Entry",
    "FedADMM",
    "FedALA",
    "FedAMP",
    "FedAvg",
    "FedBABU",
    "FedFomo",
    "FedLBFGS",
    "FedMGDA",
    "FedOpt",
    "FedPer",
    "FedProx",
    "FedRep",
    "FedRoD",
    "FlameLpProj",
    "HeurFedAMP",
    "KNNPer",
    "LGFedAvg",
    "LocalOnly",
    "LpProj",
    "Mapper",
    "MixedEffects",
    "PFedMe",
    "PerFedAvg",
    "entry",
]
