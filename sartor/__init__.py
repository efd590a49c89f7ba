"""Sartor: personalised federated learning. Many clients learn together; each leaves with a model cut to its own data."""

from . import data, models
from .data.clients import Clients
from .errors import Diverged, SartorError
from .fit import fit
from .methods import FLAME, Ditto, FedAMP, FedAvg, FedProx, FlameLpProj, HeurFedAMP, LocalOnly, LpProj, PFedMe
from .result import Result
from .solvers import SGD, Adam, Exact, Inexact

__version__ = "0.1.0"
