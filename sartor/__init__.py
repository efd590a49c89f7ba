"""Sartor: personalised federated learning. Many clients learn together, each gets a model cut to its data."""

from . import aggregators, data, models
from .data import IID, Clients, Dirichlet, Dominant, Hybrid, Labels, Natural, Noise, PowerLaw, Quantity, Shards
from .dynamic import DynamicLam
from .errors import Diverged, SartorError, Silent
from .failures import Failures
from .fit import fit
from .methods import FLAME, Ditto, FedAMP, FedAvg, FedProx, FlameLpProj, HeurFedAMP, LocalOnly, LpProj, PFedMe
from .result import Result
from .solvers import SGD, Adam, Exact, Inexact
from .wrappers import attacks

__version__ = "0.1.0"

__all__ = [
    "FLAME",
    "IID",
    "SGD",
    "Adam",
    "Clients",
    "Dirichlet",
    "Ditto",
    "Diverged",
    "Dominant",
    "DynamicLam",
    "Exact",
    "Failures",
    "FedAMP",
    "FedAvg",
    "FedProx",
    "FlameLpProj",
    "HeurFedAMP",
    "Hybrid",
    "Inexact",
    "Labels",
    "LocalOnly",
    "LpProj",
    "Natural",
    "Noise",
    "PFedMe",
    "PowerLaw",
    "Quantity",
    "Result",
    "SartorError",
    "Shards",
    "Silent",
    "aggregators",
    "attacks",
    "data",
    "fit",
    "models",
]
