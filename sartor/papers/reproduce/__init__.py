"""The papers' experiments, repeated: `sartor reproduce`."""

from . import claims_table, document, figures, listing, outputs
from .checks import checked
from .experiment import Experiment, load, names
from .listing import titles
from .mapping import Size
from .table import Reproduction

__all__ = [
    "Experiment",
    "Reproduction",
    "Size",
    "checked",
    "claims_table",
    "document",
    "figures",
    "listing",
    "load",
    "names",
    "outputs",
    "titles",
]
