"""Sartor: personalised federated learning. Many clients learn together, each gets a model cut to its data."""

from . import data, models
from .data.clients import Clients
from .errors import Diverged, SartorError
from .fit import fit
from .methods import FLAME, Ditto, FedAMP, FedAvg, FedProx, FlameLpProj, HeurFedAMP, LocalOnly, LpProj, PFedMe
from .result import Result
from .solvers import SGD, Adam, Exact, Inexact

__version__ = "0.1.0"

__all__ = [
    "FLAME",
    "SGD",
    "Adam",
    "Clients",
    "Ditto",
    "Diverged",
    "Exact",
    "FedAMP",
    "FedAvg",
    "FedProx",
    "FlameLpProj",
    "HeurFedAMP",
    "Inexact",
    "LocalOnly",
    "LpProj",
    "PFedMe",
    "Result",
    "SartorError",
    "data",
    "fit",
    "models",
]
