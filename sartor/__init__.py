"""Sartor: personalised federated learning. Many clients learn together, each gets a model cut to its data."""

from . import aggregators, compressors, data, models
from .data import IID, Clients, Dirichlet, Dominant, Hybrid, Labels, Natural, Noise, PowerLaw, Quantity, Shards
from .errors import Diverged, OverBudget, SartorError, Silent
from .methods import (
    APFL,
    EWC,
    FLAME,
    IFCA,
    L2GD,
    L2SGD,
    MOCHA,
    QFFL,
    RSA,
    SCAFFOLD,
    SKL,
    TERM,
    Ditto,
    FedADMM,
    FedAMP,
    FedAvg,
    FedMGDA,
    FedPer,
    FedProx,
    FedRep,
    FlameLpProj,
    HeurFedAMP,
    LGFedAvg,
    LocalOnly,
    LpProj,
    Mapper,
    PerFedAvg,
    PFedMe,
)
from .run.absences import Failures
from .run.export import load as load_model
from .run.play import fit
from .run.result import Result
from .solvers import SGD, Adam, Early, Exact, Inexact
from .wrappers import Privacy, attacks
from .wrappers.dynamic_lam import DynamicLam

__version__ = "0.1.0"

_ESTIMATORS = ("PersonalizedClassifier", "PersonalizedRegressor", "WithinGroups")


def __getattr__(name: str) -> object:
    """The estimators, when they are asked for: scikit-learn is slow to import."""
    if name not in _ESTIMATORS:
        raise AttributeError(f"module 'sartor' has no attribute {name!r}")
    from . import estimators

    return getattr(estimators, name)


__all__ = [
    "APFL",
    "EWC",
    "FLAME",
    "IFCA",
    "IID",
    "L2GD",
    "L2SGD",
    "MOCHA",
    "QFFL",
    "RSA",
    "SCAFFOLD",
    "SGD",
    "SKL",
    "TERM",
    "Adam",
    "Clients",
    "Dirichlet",
    "Ditto",
    "Diverged",
    "Dominant",
    "DynamicLam",
    "Early",
    "Exact",
    "Failures",
    "FedADMM",
    "FedAMP",
    "FedAvg",
    "FedMGDA",
    "FedPer",
    "FedProx",
    "FedRep",
    "FlameLpProj",
    "HeurFedAMP",
    "Hybrid",
    "Inexact",
    "LGFedAvg",
    "Labels",
    "LocalOnly",
    "LpProj",
    "Mapper",
    "Natural",
    "Noise",
    "OverBudget",
    "PFedMe",
    "PerFedAvg",
    "PersonalizedClassifier",
    "PersonalizedRegressor",
    "PowerLaw",
    "Privacy",
    "Quantity",
    "Result",
    "SartorError",
    "Shards",
    "Silent",
    "WithinGroups",
    "aggregators",
    "attacks",
    "compressors",
    "data",
    "fit",
    "load_model",
    "models",
]
