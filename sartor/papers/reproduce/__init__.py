"""The papers' experiments, repeated: `sartor reproduce`."""

from . import document, figures, listing, outputs
from .checks import checked
from .experiment import Experiment, names
from .listing import titles
from .mapping import Size
from .table import Reproduction

__all__ = [
    "Experiment",
    "Reproduction",
    "Size",
    "checked",
    "document",
    "figures",
    "listing",
    "names",
    "outputs",
    "titles",
]
